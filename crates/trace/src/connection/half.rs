//! One direction of a connection, and its probes.

use std::collections::VecDeque;
use std::mem;
use std::ops::AddAssign;

use serde::Serialize;

use super::repeats::{Repeat, Repeats};
use crate::event::{Class, DeliveryStats, SentPacket};
use crate::link::Link;
use crate::link::hull::Hull;
use crate::packet::{Numbering, Packet};
use crate::prefetch;
use crate::ranges::Tracker;

/// One direction of a connection.
#[derive(Debug)]
pub struct HalfConnection {
    /// Counters so far; complete when the connection is finished.
    pub counts: DirectionCounts,
    /// The MSS that this direction's sender announced: the largest payload it accepts, options not
    /// subtracted.
    pub mss: Option<u16>,
    /// The window scale that this direction's sender announced.
    pub window_scale: Option<u8>,
    /// When the first payload of this direction was seen.
    pub first_data_ns: Option<i64>,
    /// When the last payload of this direction was seen.
    pub last_data_ns: Option<i64>,
    pub(crate) numbering: Option<Numbering>,
    /// Earlier SYN-ACKs with other initial sequence numbers, until the peer's ACK chooses one.
    pub(super) other_syns: Vec<InitialSyn>,
    pub(crate) tracker: Option<Tracker>,
    /// The bytes of the last retransmissions that a DSACK may report.
    retransmissions: VecDeque<(i64, i64)>,
    /// Packets that the trace at their sender shows again at once.
    pub(super) repeats: Repeats,
    /// The last window that this direction's sender advertised, unscaled.
    pub(crate) window: Option<u16>,
    /// The last probe of the peer's closed window whose byte may have been accepted.
    pub(super) pending_probe: Option<Probe>,
    /// The position of this direction's FIN.
    pub(crate) fin: Option<i64>,
    pub(crate) fin_acked: bool,
    pub(crate) fin_sacked: bool,
    /// Transit of its packets between the traces; only with a receiver's trace.
    pub(crate) link: Option<Box<Link>>,
}

/// A SYN-ACK that the peer may take.
#[derive(Debug)]
pub(super) struct InitialSyn {
    numbering: Numbering,
    mss: Option<u16>,
    window_scale: Option<u8>,
}

/// Maximum number of retransmissions that wait for a DSACK.
const MAX_RETRANSMISSIONS: usize = 64;

/// Maximum number of SYN-ACKs that wait for the peer's choice.
const MAX_SYNS: usize = 4;

/// Packets and bytes that one direction sent, counted in the trace at its sender. Bytes are payload
/// unless named otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DirectionCounts {
    /// All packets, except copies and packets that the trace shows twice.
    pub packets: u64,
    /// The size of all packets on the wire with link headers, copies included, in bytes.
    pub wire_bytes: u64,
    /// The IP and TCP headers of all packets, copies included, in bytes.
    pub header_bytes: u64,
    /// Packets with payload, except keep-alives and window probes. Each is new, bundled or
    /// retransmitted.
    pub data_packets: u64,
    /// The payload of data packets, copies and accepted window probes: the sum of new, bundled,
    /// retransmitted and copied bytes.
    pub payload_bytes: u64,
    /// Packets with only new bytes.
    pub new_packets: u64,
    /// Packets that start below the highest byte sent and end above it.
    pub bundled_packets: u64,
    /// Packets without a new byte.
    pub retransmitted_packets: u64,
    /// Copies: packets sent again at once, unchanged, that the receiver reports as received twice
    /// (RFC 2883). In no other count of packets.
    pub copied_packets: u64,
    /// Bytes sent for the first time, in any packet.
    pub new_bytes: u64,
    /// Bytes sent before, in packets with new bytes.
    pub bundled_bytes: u64,
    /// Bytes sent before, in packets without new bytes.
    pub retransmitted_bytes: u64,
    /// Bytes in copies.
    pub copied_bytes: u64,
    /// Bundled and retransmitted bytes that the sender knew to be delivered, or that were first
    /// sent before the trace started.
    pub stale_bytes: u64,
    /// Acknowledged bytes whose transmission is not in the trace.
    pub missing_bytes: u64,
    /// Probes of an idle connection (RFC 9293, section 3.8.4).
    pub keep_alives: u64,
    /// Probes of a closed window (RFC 9293, section 3.8.6.1).
    pub window_probes: u64,
    /// Packets without payload, SYN, FIN or RST.
    pub pure_acks: u64,
    /// Duplicate ACKs (RFC 5681, section 2) for data of the other direction.
    pub duplicate_acks: u64,
    /// Packets with a DSACK (RFC 2883) for data or the FIN of the other direction.
    pub dsacks: u64,
    /// Packets with SYN.
    pub syns: u64,
    /// Packets with FIN, retransmissions included.
    pub fins: u64,
    /// Packets with RST.
    pub resets: u64,
    /// Retransmitted packets whose bytes had all been acknowledged, by ACK or SACK, or that a DSACK
    /// reports as received twice (RFC 2883, RFC 3708).
    pub spurious_retransmissions: u64,
    /// Packets that close the window: window 0, without SYN, FIN and RST.
    pub zero_windows: u64,
    /// Packets with bytes below others that were captured earlier: retransmissions of bytes that
    /// were lost before the capture, or reordered.
    pub hole_filling_packets: u64,
    /// The shortest time that a hole was open, in nanoseconds.
    #[serde(skip)]
    pub shortest_hole_ns: Option<i64>,
    /// Packets with more payload than the peer's MSS. The trace was taken before segmentation or
    /// after coalescing by the kernel or device.
    pub offloaded_packets: u64,
    /// Packets that the trace shows a second time; in no other count.
    pub repeated_packets: u64,
    /// Packets outside every window of this connection, unless another packet assigns them to
    /// another connection. In no range.
    pub stray_packets: u64,
    /// Packets whose acknowledgement number is outside every window.
    pub stray_acks: u64,
    /// Maximum packets in flight.
    pub most_in_flight: u32,
}

impl HalfConnection {
    pub(crate) fn new(has_receiver: bool) -> Self {
        Self {
            counts: DirectionCounts::default(),
            mss: None,
            window_scale: None,
            first_data_ns: None,
            last_data_ns: None,
            numbering: None,
            other_syns: Vec::new(),
            tracker: None,
            retransmissions: VecDeque::new(),
            repeats: Repeats::default(),
            window: None,
            pending_probe: None,
            fin: None,
            fin_acked: false,
            fin_sacked: false,
            link: has_receiver.then(Box::default),
        }
    }

    /// Delivery of its packets, if there are two traces, whether or not both show the connection.
    #[must_use]
    pub fn delivery_stats(&self) -> Option<&DeliveryStats> {
        self.link.as_deref().map(|link| &link.delivery_stats)
    }

    /// The lower hull of its packets' raw delays; empty with one trace.
    pub(crate) fn lowest(&self) -> Hull {
        let link = self.link.as_deref();
        link.map_or_else(Hull::default, |link| link.lowest().clone())
    }

    /// The sequence number on the wire of a position; `None` before any packet of this direction.
    #[must_use]
    pub fn sequence_number(&self, position: i64) -> Option<u32> {
        Some(self.numbering?.number(position))
    }

    /// Records a retransmission, which may be spurious. `is_reported`: its bytes had been
    /// acknowledged.
    #[cold]
    pub(super) fn retransmitted(&mut self, bytes: (i64, i64), is_reported: bool) {
        if is_reported {
            self.counts.spurious_retransmissions += 1;
            return;
        }
        if self.retransmissions.len() == MAX_RETRANSMISSIONS {
            self.retransmissions.pop_front();
        }
        self.retransmissions.push_back(bytes);
    }

    /// Records a bundle. A DSACK of its bytes does not show that a retransmission was spurious.
    #[inline]
    pub(super) fn bundled(&mut self, (start, end): (i64, i64)) {
        if !self.retransmissions.is_empty() {
            self.retransmissions
                .retain(|it| it.1 <= start || end <= it.0);
        }
    }

    /// Counts a packet that the trace at its sender shows again.
    #[cold]
    pub(crate) fn repeated(&mut self, packet: &Packet, repeat: Repeat) {
        match (repeat, self.numbering, &self.tracker) {
            (Repeat::PerhapsSent, Some(numbering), Some(tracker)) => {
                let start = numbering.position(tracker.next(), packet.seq);
                self.repeats.add(packet, start);
            }
            _ => self.counts.repeated_packets += 1,
        }
    }

    /// Counts a repeated packet in the receiver's trace.
    pub(crate) fn repeat_arrived(&mut self) {
        self.repeats.add_arrived();
    }

    pub(super) fn classify_repeats(&mut self) {
        let repeats = self.repeats.take_counts();
        let counts = &mut self.counts;
        if !self.repeats.were_sent() {
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

    /// Counts the retransmission that a DSACK reports, or the copy.
    #[cold]
    pub(super) fn received_twice(&mut self, (left, right): (i64, i64)) {
        let contains = |&(start, end): &(i64, i64)| start <= left && left < right && right <= end;
        if let Some(index) = self.retransmissions.iter().position(contains) {
            self.retransmissions.remove(index);
            self.counts.spurious_retransmissions += 1;
        } else {
            self.repeats.received_twice((left, right));
        }
    }

    /// Learns from a SYN. Of several with different initial sequence numbers, the last one counts
    /// until the peer chooses. An established connection ignores them (RFC 9293, section 3.10.7.4).
    pub(super) fn learn_syn(&mut self, packet: &Packet, is_established: bool) {
        let numbering = Numbering::new(packet.seq);
        if self.numbering != Some(numbering) {
            let is_fresh = self.tracker.as_ref().is_none_or(Tracker::is_fresh);
            if !is_fresh || is_established {
                return;
            }
            if let Some(numbering) = self.numbering
                && packet.ack.is_some()
                && self.other_syns.len() < MAX_SYNS
            {
                self.other_syns.push(InitialSyn {
                    numbering,
                    mss: self.mss.take(),
                    window_scale: self.window_scale.take(),
                });
            }
            self.set_numbering(numbering);
        }
        self.mss = packet.mss.or(self.mss);
        self.window_scale = packet.window_scale.or(self.window_scale);
    }

    /// Chooses the SYN-ACK that precedes this sequence number, which the peer acknowledged or this
    /// end used (RFC 9293, section 3.10.7.3).
    #[cold]
    pub(super) fn choose_syn(&mut self, number: u32) {
        let distance = |it: Numbering| number.wrapping_sub(it.initial()).wrapping_sub(1);
        let others = mem::take(&mut self.other_syns).into_iter();
        if let Some(closest) = others.min_by_key(|it| distance(it.numbering))
            && let Some(numbering) = self.numbering
            && distance(closest.numbering) < distance(numbering)
        {
            self.set_numbering(closest.numbering);
            (self.mss, self.window_scale) = (closest.mss, closest.window_scale);
        }
    }

    /// Sets the start of its sequence numbers.
    pub(crate) fn set_numbering(&mut self, numbering: Numbering) {
        self.numbering = Some(numbering);
        self.tracker = Some(Tracker::new(self.link.is_some()));
    }

    /// Prefetches the state that its next packet needs.
    #[inline]
    pub(crate) fn prefetch_state(&self) {
        if let Some(link) = &self.link {
            prefetch(&**link);
        }
        if let Some(first) = self.tracker.as_ref().and_then(Tracker::first) {
            prefetch(first);
        }
    }

    /// Whether any byte was sent, and all are acknowledged.
    pub(crate) fn is_all_acked(&self) -> bool {
        let tracker = self.tracker.as_ref();
        tracker.is_some_and(|it| self.counts.new_bytes > 0 && it.acked() >= it.next())
    }

    /// Whether all bytes were sent and acknowledged, FIN included.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.fin_acked
    }

    pub(crate) fn window_is_closed(&self) -> bool {
        self.window == Some(0)
    }
}

impl AddAssign for DirectionCounts {
    fn add_assign(&mut self, other: Self) {
        add_fields! {
            self += other:
            packets, wire_bytes, header_bytes, data_packets, payload_bytes, new_packets,
            bundled_packets, retransmitted_packets, copied_packets, new_bytes, bundled_bytes,
            retransmitted_bytes, copied_bytes, stale_bytes, missing_bytes, keep_alives,
            window_probes, pure_acks, duplicate_acks, dsacks, syns, fins, resets,
            spurious_retransmissions, zero_windows, hole_filling_packets, offloaded_packets,
            repeated_packets, stray_packets, stray_acks
        }
        let holes_ns = [self.shortest_hole_ns, other.shortest_hole_ns];
        self.shortest_hole_ns = holes_ns.into_iter().flatten().min();
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
    }
}

/// Minimum silence before a keep-alive with a garbage byte, which otherwise looks like a
/// retransmitted byte. No kernel probes an idle connection more often.
const IDLE_NS: i64 = 1_000_000_000;

/// A probe of a closed window with a new byte. The byte is payload once the peer accepts it.
#[derive(Debug)]
pub(crate) struct Probe {
    start: i64,
    at_ns: i64,
    packet: u64,
}

impl HalfConnection {
    /// Classifies and counts a probe, or counts a pure ACK. `None` if the packet is not a probe.
    #[inline]
    pub(super) fn probe(
        &mut self,
        packet: &Packet,
        sent: &SentPacket,
        peer_closed: bool,
    ) -> Option<Class> {
        if packet.flags.syn || packet.flags.fin || packet.payload_len > 1 {
            return None;
        }
        let tracker = self.tracker.as_ref()?;
        let (acked, next) = (tracker.acked(), tracker.next());
        let empty = packet.payload_len == 0;
        let idle = self
            .last_data_ns
            .is_none_or(|last| packet.at_ns.saturating_sub(last) >= IDLE_NS);
        let before_all = sent.start == acked - 1;
        let tests_window = before_all || !empty && (sent.start == acked || sent.start == next);
        if peer_closed && tests_window {
            self.counts.window_probes += 1;
            let is_new = !empty && sent.start == next;
            self.pending_probe = is_new.then_some(Probe {
                start: sent.start,
                at_ns: packet.at_ns,
                packet: packet.number,
            });
            Some(Class::WindowProbe)
        } else if before_all && (empty || acked == next && idle) {
            self.counts.keep_alives += 1;
            Some(Class::KeepAlive)
        } else {
            self.counts.pure_acks += u64::from(empty);
            None
        }
    }

    /// Discards a probe whose byte is sent as payload.
    #[inline]
    pub(super) fn discard_probe(&mut self, start: i64, end: i64) {
        self.pending_probe
            .take_if(|probe| (start..end).contains(&probe.start));
    }

    /// Counts the byte of the pending probe as sent, once the peer has acknowledged it. `acked`: all
    /// bytes before this position are acknowledged.
    #[inline]
    pub(super) fn commit_probe(&mut self, acked: i64) {
        if let Some(probe) = self.pending_probe.take_if(|probe| probe.start < acked)
            && let Some(tracker) = self.tracker.as_mut()
        {
            tracker.sent(probe.start, probe.start + 1, probe.at_ns, probe.packet);
            self.counts.payload_bytes += 1;
            self.counts.new_bytes += 1;
        }
    }
}
