//! One direction of a connection, and its probes.

use std::ops::AddAssign;

use serde::Serialize;

use crate::event::{Class, Passage, Sent};
use crate::link::Link;
use crate::link::hull::Hull;
use crate::packet::{Numbering, Packet};
use crate::prefetch;
use crate::ranges::Tracker;

/// One direction of a connection.
#[derive(Debug)]
pub struct HalfConnection {
    /// What has been counted so far; complete when the connection is finished.
    pub counts: Counts,
    /// The largest segment that this direction's sender announced that it takes, in bytes of
    /// payload, options not subtracted.
    pub mss: Option<u16>,
    /// The window scale that this direction's sender announced.
    pub window_scale: Option<u8>,
    /// When the first payload of this direction was seen.
    pub first_data_ns: Option<i64>,
    /// When the last payload of this direction was seen.
    pub last_data_ns: Option<i64>,
    pub(crate) numbering: Option<Numbering>,
    pub(crate) tracker: Option<Tracker>,
    /// The window that this direction's sender advertised last, not scaled, as its peer knows.
    pub(crate) window: Option<u16>,
    /// The position of this direction's FIN.
    /// The last probe of its peer's closed window whose byte may have been taken.
    pub(super) probed: Option<Probe>,
    pub(crate) fin: Option<i64>,
    pub(crate) fin_acked: bool,
    pub(crate) fin_sacked: bool,
    /// How its packets travel between the traces; only with a receiver's trace.
    pub(crate) link: Option<Box<Link>>,
}

/// What one direction sent, counted in the trace at its sender. Bytes are bytes of payload
/// unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// All packets, packets that the trace shows twice left out.
    pub packets: u64,
    /// The size of all packets on the wire with link headers, in bytes.
    pub wire_bytes: u64,
    /// The IP and TCP headers of all packets, in bytes.
    pub header_bytes: u64,
    /// Packets with payload, keep-alives and window probes left out; all of them are new,
    /// bundled or retransmitted.
    pub data_packets: u64,
    /// The payload of data packets, and the bytes of window probes that the peer took; the sum of
    /// new, bundled and retransmitted bytes.
    pub payload_bytes: u64,
    /// Packets with nothing but new bytes.
    pub new_packets: u64,
    /// Packets that begin below the highest byte sent and end above it.
    pub bundled_packets: u64,
    /// Packets without any new byte.
    pub retransmitted_packets: u64,
    /// Bytes sent for the first time, in whatever packet.
    pub new_bytes: u64,
    /// Bytes sent before, in packets with new bytes.
    pub bundled_bytes: u64,
    /// Bytes sent before, in packets without new bytes.
    pub retransmitted_bytes: u64,
    /// Of the bundled and retransmitted bytes, those that the sender knew to be delivered, or
    /// that were first sent before the trace began.
    pub stale_bytes: u64,
    /// Bytes that were acknowledged and that the trace does not show as sent.
    pub missing_bytes: u64,
    /// Probes of an idle connection (RFC 9293, section 3.8.4).
    pub keep_alives: u64,
    /// Probes of a closed window (RFC 9293, section 3.8.6.1).
    pub window_probes: u64,
    /// Packets without payload, SYN, FIN or RST.
    pub pure_acks: u64,
    /// Packets that are duplicate ACKs (RFC 5681, section 2), for what the other direction sent.
    pub duplicate_acks: u64,
    /// Packets that report bytes received twice (RFC 2883), of the other direction.
    pub dsacks: u64,
    /// Packets with SYN.
    pub syns: u64,
    /// Packets with FIN; more than one if it was sent again.
    pub fins: u64,
    /// Packets with RST.
    pub resets: u64,
    /// Packets with more payload than the peer takes in one segment: the trace was taken where
    /// the kernel or the device had not cut them yet, or had joined them already.
    pub offloaded_packets: u64,
    /// Packets that the trace shows a second time, left out of all else.
    pub repeated_packets: u64,
    /// Packets whose sequence number belongs to no window of this connection, and that no other
    /// packet shows to be another one's; left out of ranges.
    pub stray_packets: u64,
    /// Packets whose acknowledgement number belongs to none.
    pub stray_acks: u64,
    /// Most packets in flight at one time.
    pub most_in_flight: u32,
}

impl HalfConnection {
    pub(crate) fn new(has_receiver: bool) -> Self {
        Self {
            counts: Counts::default(),
            mss: None,
            window_scale: None,
            first_data_ns: None,
            last_data_ns: None,
            numbering: None,
            tracker: None,
            window: None,
            probed: None,
            fin: None,
            fin_acked: false,
            fin_sacked: false,
            link: has_receiver.then(Box::default),
        }
    }

    /// How its packets fared on the way, where there is a trace at either end, whether or not both
    /// show the connection.
    #[must_use]
    pub fn passage(&self) -> Option<&Passage> {
        self.link.as_deref().map(|link| &link.passage)
    }

    /// The lowest raw delays of its packets; none without a trace at either end.
    pub(crate) fn lowest(&self) -> Hull {
        let link = self.link.as_deref();
        link.map_or_else(Hull::default, |link| link.lowest().clone())
    }

    /// The sequence number that stands for a position on the wire; none before any packet of
    /// this direction is known.
    #[must_use]
    pub fn sequence_number(&self, position: i64) -> Option<u32> {
        Some(self.numbering?.number(position))
    }

    /// Sets where its sequence numbers begin.
    pub(crate) fn number(&mut self, numbering: Numbering) {
        self.numbering = Some(numbering);
        self.tracker = Some(Tracker::new(self.link.is_some()));
    }

    /// Has the processor fetch what its next packet needs.
    #[inline]
    pub(crate) fn fetch_kept(&self) {
        if let Some(link) = &self.link {
            prefetch(&**link);
        }
        if let Some(first) = self.tracker.as_ref().and_then(Tracker::first) {
            prefetch(first);
        }
    }

    /// Whether any byte was sent, and each is acknowledged.
    pub(crate) fn is_all_acked(&self) -> bool {
        let tracker = self.tracker.as_ref();
        tracker.is_some_and(|it| self.counts.new_bytes > 0 && it.acked() >= it.next())
    }

    /// Whether all bytes were sent and acknowledged, FIN included.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.fin_acked
    }

    pub(crate) fn window_is_closed(&self) -> bool {
        self.window == Some(0)
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.wire_bytes += other.wire_bytes;
        self.header_bytes += other.header_bytes;
        self.data_packets += other.data_packets;
        self.payload_bytes += other.payload_bytes;
        self.new_packets += other.new_packets;
        self.bundled_packets += other.bundled_packets;
        self.retransmitted_packets += other.retransmitted_packets;
        self.new_bytes += other.new_bytes;
        self.bundled_bytes += other.bundled_bytes;
        self.retransmitted_bytes += other.retransmitted_bytes;
        self.stale_bytes += other.stale_bytes;
        self.missing_bytes += other.missing_bytes;
        self.keep_alives += other.keep_alives;
        self.window_probes += other.window_probes;
        self.pure_acks += other.pure_acks;
        self.duplicate_acks += other.duplicate_acks;
        self.dsacks += other.dsacks;
        self.syns += other.syns;
        self.fins += other.fins;
        self.resets += other.resets;
        self.offloaded_packets += other.offloaded_packets;
        self.repeated_packets += other.repeated_packets;
        self.stray_packets += other.stray_packets;
        self.stray_acks += other.stray_acks;
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
    }
}

/// Keep-alives with a byte of garbage are told from a byte sent again by the silence before
/// them; no kernel probes an idle connection more often than this.
const IDLE_NS: i64 = 1_000_000_000;

/// A probe of a closed window with a byte that was never sent before: it is payload once the peer has
/// taken it.
#[derive(Debug)]
pub(crate) struct Probe {
    begin: i64,
    at_ns: i64,
    packet: u64,
}

impl HalfConnection {
    /// Whether a packet only asks for an answer. Counts it if it does, and if it is a mere ACK.
    #[inline]
    pub(super) fn probe(
        &mut self,
        packet: &Packet,
        sent: &Sent,
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
        let before_all = sent.begin == acked - 1;
        let tests_window = before_all || !empty && (sent.begin == acked || sent.begin == next);
        if peer_closed && tests_window {
            self.counts.window_probes += 1;
            let is_new = !empty && sent.begin == next;
            self.probed = is_new.then_some(Probe {
                begin: sent.begin,
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

    /// Forgets a probe whose byte is sent as payload.
    #[inline]
    pub(super) fn forget_probe(&mut self, begin: i64, end: i64) {
        self.probed
            .take_if(|probe| (begin..end).contains(&probe.begin));
    }

    /// Counts and places the byte of a probe, if it is one of those that the peer has acknowledged,
    /// which are all before this position.
    #[inline]
    pub(super) fn place_probe(&mut self, acked: i64) {
        if let Some(probe) = self.probed.take_if(|probe| probe.begin < acked)
            && let Some(tracker) = self.tracker.as_mut()
        {
            tracker.sent(probe.begin, probe.begin + 1, probe.at_ns, probe.packet);
            self.counts.payload_bytes += 1;
            self.counts.new_bytes += 1;
        }
    }
}
