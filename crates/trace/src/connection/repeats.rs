//! Packets that the trace at their sender shows again at once: sent twice, as by `pillion --copies`,
//! or captured twice.

use std::collections::VecDeque;
use std::mem;

use crate::packet::Packet;

/// A packet that a trace shows a second time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// It was captured twice.
    Captured,
    /// It was captured or sent twice. The receiver's reports decide.
    PerhapsSent,
}

/// Repeated packets of one direction.
#[derive(Debug, Default)]
pub(super) struct Repeats {
    /// Repeated packets that were perhaps sent.
    packets: u64,
    /// Repeated packets that the receiver reported as received twice. A packet that was captured
    /// twice is never reported.
    reported: u64,
    /// Bytes of the last repeated packets, which a DSACK may still report.
    unreported: VecDeque<(i64, i64)>,
    counts: Counts,
}

/// Counts of repeated packets that were perhaps sent.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) payload_bytes: u64,
    pub(super) header_bytes: u64,
    pub(super) wire_bytes: u64,
    /// Repetitions in the receiver's trace.
    pub(super) arrived: u64,
}

/// Maximum number of repeated packets that wait for a DSACK.
const MAX_UNREPORTED: usize = 256;

/// Copies are reported, except those whose packet, copy or ACK was lost, and the last ones.
const MIN_REPORTED_SHARE: f64 = 0.25;

impl Repeats {
    /// Records that the receiver received these bytes twice.
    pub(super) fn received_twice(&mut self, bytes: (i64, i64)) {
        if let Some(index) = self.unreported.iter().position(|it| *it == bytes) {
            self.unreported.remove(index);
            self.reported += 1;
        }
    }

    /// Counts a packet that was perhaps sent, whose payload starts at this position.
    pub(super) fn add(&mut self, packet: &Packet, start: i64) {
        self.packets += 1;
        if self.unreported.len() == MAX_UNREPORTED {
            self.unreported.pop_front();
        }
        let end = start + i64::from(packet.payload_len);
        self.unreported.push_back((start, end));
        let counts = &mut self.counts;
        counts.packets += 1;
        counts.payload_bytes += u64::from(packet.payload_len);
        counts.header_bytes += u64::from(packet.header_len);
        counts.wire_bytes += u64::from(packet.frame_len);
    }

    /// Counts a repeated packet in the receiver's trace.
    pub(super) fn add_arrived(&mut self) {
        self.counts.arrived += 1;
    }

    /// Returns the counts since the last call, and resets them.
    pub(super) fn take_counts(&mut self) -> Counts {
        mem::take(&mut self.counts)
    }

    pub(super) fn were_sent(&self) -> bool {
        self.reported > 0 && self.reported as f64 >= self.packets as f64 * MIN_REPORTED_SHARE
    }
}
