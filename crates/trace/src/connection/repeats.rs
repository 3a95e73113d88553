//! Packets that the trace at their sender shows again at once: sent twice, as by `pillion --copies`,
//! or captured twice.

use std::collections::VecDeque;

use super::HalfConnection;
use super::membership::Repeat;
use crate::packet::Packet;

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
struct Counts {
    packets: u64,
    payload_bytes: u64,
    header_bytes: u64,
    wire_bytes: u64,
    /// Repetitions in the receiver's trace.
    arrived: u64,
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

    pub(super) fn reset_counts(&mut self) {
        self.counts = Counts::default();
    }

    fn were_sent(&self) -> bool {
        self.reported > 0 && self.reported as f64 >= self.packets as f64 * MIN_REPORTED_SHARE
    }
}

impl HalfConnection {
    /// Counts a packet that the trace at its sender shows again.
    #[cold]
    pub(crate) fn repeated(&mut self, packet: &Packet, repeat: Repeat) {
        let (Repeat::PerhapsSent, Some(numbering), Some(tracker)) =
            (repeat, self.numbering, &self.tracker)
        else {
            self.counts.repeated_packets += 1;
            return;
        };
        let start = numbering.position(tracker.next(), packet.seq);
        let Repeats {
            packets,
            unreported,
            counts,
            ..
        } = &mut self.repeats;
        *packets += 1;
        if unreported.len() == MAX_UNREPORTED {
            unreported.pop_front();
        }
        unreported.push_back((start, start + i64::from(packet.payload_len)));
        counts.packets += 1;
        counts.payload_bytes += u64::from(packet.payload_len);
        counts.header_bytes += u64::from(packet.header_len);
        counts.wire_bytes += u64::from(packet.frame_len);
    }

    /// Counts a repeated packet in the receiver's trace.
    pub(crate) fn repeat_arrived(&mut self) {
        self.repeats.counts.arrived += 1;
    }

    pub(super) fn classify_repeats(&mut self) {
        let sent = self.repeats.were_sent();
        let repeats = std::mem::take(&mut self.repeats.counts);
        let counts = &mut self.counts;
        if !sent {
            counts.repeated_packets += repeats.packets + repeats.arrived;
            return;
        }
        counts.copied_packets = repeats.packets;
        counts.copied_bytes = repeats.payload_bytes;
        counts.payload_bytes += repeats.payload_bytes;
        counts.header_bytes += repeats.header_bytes;
        counts.wire_bytes += repeats.wire_bytes;
        if let Some(link) = &mut self.link {
            link.delivery_stats.delivered_copies = repeats.arrived;
        }
    }
}
