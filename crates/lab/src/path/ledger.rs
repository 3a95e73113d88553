//! What became of the frames that a path read.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The account of both directions of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Counts of the direction from the first device to the second.
    pub forward: Counts,
    /// Counts of the direction from the second device to the first.
    pub backward: Counts,
    /// The device that vanished while the path ran, as when its namespace was removed. The path
    /// ended there, and the run is not to be trusted. `None` in a sound run.
    pub device_gone: Option<String>,
}

/// The account of one direction.
///
/// At any moment received + duplicated = delivered + lost + queue_full + device_refused + inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Frames read from the sending side's device.
    pub received: Volume,
    /// Frames written to the receiving side's device.
    pub delivered: Volume,
    /// Frames lost as the configuration has it; counted when read.
    pub lost: Volume,
    /// Copies made of packets; counted when those were read.
    #[serde(default)]
    pub duplicated: Volume,
    /// Packets held back longer than the delay, copies left out; counted when read.
    #[serde(default)]
    pub held_back: Volume,
    /// Frames refused because the queue was full, or because 65,536 frames or 16 MiB were inside,
    /// the most that a direction holds.
    pub queue_full: Volume,
    /// Frames refused by the receiving side's device, as when it is down.
    pub device_refused: Volume,
    /// Frames waiting for the link or under delay. At the end of a path these are discarded.
    pub inside: Volume,
    /// How late the delivered frames were.
    pub delay_error: DelayError,
    /// How the delays of the delivered frames varied; `None` without jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Obtained>,
}

/// A number of frames and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Number of frames.
    pub packets: u64,
    /// Bytes of the Ethernet frames: header and payload, without preamble and checksum.
    pub bytes: u64,
}

/// By how much delays exceeded those set, delay errors included; what was held back is compared
/// with the delay that it was to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Obtained {
    /// The mean, in microseconds; below 0 if delays were shorter.
    pub mean_us: i64,
    /// The standard deviation, in microseconds.
    pub sd_us: u64,
}

/// By how much the actual departures missed the due ones, in microseconds, within 1 % of the
/// value. A frame never departs early. The clock starts when the path has read a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayError {
    /// The median delay error, in microseconds.
    pub p50_us: u64,
    /// The 99th percentile of the delay error, in microseconds.
    pub p99_us: u64,
    /// The largest delay error, in microseconds; 60 s stands for anything above.
    pub max_us: u64,
}

impl Volume {
    pub(crate) fn add(&mut self, frame_bytes: usize) {
        self.packets += 1;
        self.bytes += frame_bytes as u64;
    }

    pub(crate) fn remove(&mut self, frame_bytes: usize) {
        self.packets -= 1;
        self.bytes -= frame_bytes as u64;
    }
}

// How late frames depart.

const LARGEST_US: u64 = 60_000_000;

/// Collects delay errors in about 20 KiB, fixed: two significant digits from 1 µs to 60 s.
pub(crate) struct Punctuality(Histogram<u64>);

impl Punctuality {
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LARGEST_US, 2);
        Self(histogram.expect("constant bounds are valid"))
    }

    pub fn record(&mut self, late: Duration) {
        let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.min(LARGEST_US));
    }

    pub fn summary(&self) -> DelayError {
        DelayError {
            p50_us: self.0.value_at_quantile(0.50),
            p99_us: self.0.value_at_quantile(0.99),
            max_us: self.0.max(),
        }
    }
}
