//! Statistics of the frames that a path read.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Statistics of both directions of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathStats {
    /// Counts of the direction from the first device to the second.
    pub forward: DirectionStats,
    /// Counts of the direction from the second device to the first.
    pub backward: DirectionStats,
    /// The device that vanished while the path ran, for example with its namespace. The path
    /// stopped then, and the run is invalid. `None` in a valid run.
    pub device_gone: Option<String>,
}

/// Statistics of one direction.
///
/// At any time, received + duplicated = delivered + lost + queue_full + overflowed + device_refused
/// + inside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Frames read from the sending side's device.
    pub received: Volume,
    /// Frames written to the receiving side's device.
    pub delivered: Volume,
    /// Frames lost by the loss model; counted when read.
    pub lost: Volume,
    /// Copies of packets; counted when the original was read.
    #[serde(default)]
    pub duplicated: Volume,
    /// Packets delayed so that others overtook them, without copies; counted when read.
    #[serde(default)]
    pub reordered: Volume,
    /// Frames dropped because the link's queue was full.
    pub queue_full: Volume,
    /// Frames dropped because the direction held its maximum of 65,536 frames or 16 MiB.
    #[serde(default)]
    pub overflowed: Volume,
    /// Frames refused by the receiving side's device, for example because it is down.
    pub device_refused: Volume,
    /// Frames waiting for the link or delayed. They are discarded when the path stops.
    pub inside: Volume,
    /// Lateness of the delivered frames.
    pub delay_error: DelayError,
    /// Variation of the delivered frames' delays; `None` without jitter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterStats>,
}

/// A number of frames and their total size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Number of frames.
    pub packets: u64,
    /// Bytes of the Ethernet frames: header and payload, without preamble and checksum.
    pub bytes: u64,
}

/// Difference between actual and configured delays, including delay errors. A reordered frame is
/// compared with its own due time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JitterStats {
    /// The mean, in microseconds; below 0 if delays were shorter.
    pub mean_us: i64,
    /// The standard deviation, in microseconds.
    pub sd_us: u64,
}

/// Difference between actual and due departures, in microseconds, within 1 % of the value. A frame
/// never departs early. The clock starts when the path has read a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayError {
    /// The median delay error, in microseconds.
    pub p50_us: u64,
    /// The 99th percentile of the delay error, in microseconds.
    pub p99_us: u64,
    /// The largest delay error, in microseconds; values above 60 s count as 60 s.
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

// Lateness of departures.

const MAX_US: u64 = 60_000_000;

/// A histogram of delay errors of constant size, about 20 KiB: two significant digits from 1 µs to
/// 60 s.
pub(crate) struct DelayErrorHistogram(Histogram<u64>);

impl DelayErrorHistogram {
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_US, 2);
        Self(histogram.expect("constant bounds are valid"))
    }

    pub fn record(&mut self, late: Duration) {
        let us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.min(MAX_US));
    }

    pub fn summary(&self) -> DelayError {
        DelayError {
            p50_us: self.0.value_at_quantile(0.50),
            p99_us: self.0.value_at_quantile(0.99),
            max_us: self.0.max(),
        }
    }
}
