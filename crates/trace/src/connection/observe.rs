//! Effects of a packet on its connection.

use super::half::HalfConnection;
use super::{Connection, Start};
use crate::event::Direction;
use crate::event::{Class, ReceivedAck, SentPacket};
use crate::packet::Packet;
use crate::packet::{MAX_WINDOW, Numbering};
use crate::ranges::CopyKind;

impl Connection {
    /// Learns the initial sequence numbers from a packet.
    #[inline]
    pub(crate) fn learn_numbering(&mut self, direction: Direction, packet: &Packet) {
        let is_established = self.handshake.completed_ns.is_some();
        let half = self.half_connection_mut(direction);
        if packet.flags.syn {
            half.learn_syn(packet, is_established);
        } else if packet.flags.rst {
            return;
        } else if half.numbering.is_none() {
            half.set_numbering(Numbering::new(packet.seq.wrapping_sub(1)));
        } else if !half.other_syns.is_empty() {
            half.choose_syn(packet.seq);
        }
        let other = self.half_connection_mut(direction.reverse());
        if let Some(ack) = packet.ack {
            if other.numbering.is_none() {
                other.set_numbering(Numbering::new(ack.wrapping_sub(1)));
            } else if !other.other_syns.is_empty() && !packet.flags.syn {
                other.choose_syn(ack);
            }
        }
    }

    /// Updates the state by handshake, FIN and RST.
    #[inline]
    pub(crate) fn update_state(&mut self, direction: Direction, packet: &Packet) {
        if packet.flags.syn {
            self.handle_syn(direction, packet);
        } else if packet.flags.rst {
            self.handle_rst(direction, packet);
        } else {
            self.handle_handshake_ack(direction, packet);
        }
    }

    fn handle_syn(&mut self, direction: Direction, packet: &Packet) {
        let handshake = &mut self.handshake;
        match (packet.ack, direction) {
            (Some(_), _) => {
                handshake.syn_acks = handshake.syn_acks.saturating_add(1);
                handshake.syn_ack_ns.get_or_insert(packet.at_ns);
                // Captures on several processors may show the ACK first.
                let is_acked =
                    |ack: u32| (1..MAX_WINDOW).contains(&ack.wrapping_sub(packet.seq).into());
                if direction == Direction::Backward && self.early_ack.is_some_and(is_acked) {
                    handshake.completed_ns.get_or_insert(packet.at_ns);
                }
            }
            (None, Direction::Forward) => {
                self.start = Start::Syn;
                handshake.syns = handshake.syns.saturating_add(1);
                handshake.first_syn_ns.get_or_insert(packet.at_ns);
                if handshake.syn_ack_ns.is_none() {
                    handshake.last_syn_ns = Some(packet.at_ns);
                }
            }
            (None, Direction::Backward) => handshake.simultaneous = true,
        }
    }

    #[inline]
    fn handle_handshake_ack(&mut self, direction: Direction, packet: &Packet) {
        if self.handshake.syn_acks == 0 && direction == Direction::Forward {
            self.early_ack = packet.ack;
        }
        let expected = self.handshake.syn_acks > 0
            && self.handshake.completed_ns.is_none()
            && (direction == Direction::Forward || self.handshake.simultaneous);
        if expected
            && let Some(ack) = packet.ack
            && let Some(numbering) = self.half_connection(direction.reverse()).numbering
            && (1..MAX_WINDOW).contains(&numbering.position(1, ack))
        {
            self.handshake.completed_ns = Some(packet.at_ns);
        }
    }

    fn handle_rst(&mut self, direction: Direction, packet: &Packet) {
        if self.handshake.completed_ns.is_some() || self.start == Start::Midway {
            self.reset = true;
        } else if direction == Direction::Backward && packet.ack.is_some() {
            self.refused = true;
        }
    }

    /// Counts a packet and adds its payload to the ranges, in the trace at its sender. `None` if
    /// its sequence number is far outside the window.
    #[inline]
    pub(crate) fn sent(&mut self, direction: Direction, packet: &Packet) -> Option<SentPacket> {
        let (half, peer) = self.halves_mut(direction);
        let mut sent = SentPacket {
            direction,
            packet: packet.number,
            at_ns: packet.at_ns,
            class: Class::Control,
            push: packet.flags.psh,
            start: 0,
            end: 0,
            new_bytes: 0,
            old_bytes: 0,
            wire_bytes: packet.frame_len,
            in_flight: 0,
            bytes_in_flight: 0,
        };
        half.count_headers(packet);
        let (Some(numbering), Some(tracker)) = (half.numbering, half.tracker.as_mut()) else {
            return Some(sent);
        };
        if packet.flags.syn && packet.seq != numbering.initial() {
            // A SYN-ACK that the peer did not take, or may not take.
            return Some(sent);
        }
        let at = numbering.position(tracker.next(), packet.seq);
        sent.start = at + i64::from(packet.flags.syn);
        sent.end = sent.start + i64::from(packet.payload_len);
        sent.in_flight = tracker.in_flight();
        sent.bytes_in_flight = tracker.outstanding().unsigned_abs();
        if packet.flags.rst {
            return Some(sent);
        }
        if !tracker.is_near(at) {
            half.counts.stray_packets += 1;
            return None;
        }
        if packet.flags.fin {
            half.fin = Some(sent.end);
        }
        if let Some(probe) = half.probe(packet, &sent, peer.window_is_closed()) {
            sent.class = probe;
        } else if packet.payload_len > 0 {
            half.add_payload(packet, &mut sent, peer.window.is_some());
            half.discard_probe(sent.start, sent.end);
            let too_large = match peer.mss {
                Some(mss) => packet.payload_len > u32::from(mss),
                None => packet.payload_len > MAX_FRAME,
            };
            half.counts.offloaded_packets += u64::from(too_large);
        }
        Some(sent)
    }

    /// Whether an ACK answers the SYN of this direction with another number, as a half-open
    /// connection does (RFC 9293, section 3.10.7.3).
    #[inline]
    pub(crate) fn is_unacceptable(&self, direction: Direction, ack: u32) -> bool {
        let half = self.half_connection(direction);
        let answered = self.half_connection(direction.reverse()).counts.syns > 0;
        half.counts.syns > 0
            && !answered
            && half.counts.data_packets == 0
            && half.numbering.is_some_and(|it| it.number(1) != ack)
    }

    /// Applies an ACK in the trace at the sender of the acknowledged data. `direction` is the ACK's
    /// own.
    #[inline]
    pub(crate) fn acked(&mut self, direction: Direction, packet: &Packet) -> Option<ReceivedAck> {
        let ack = packet.ack.filter(|_| !packet.flags.rst)?;
        if self.is_unacceptable(direction.reverse(), ack) {
            self.half_connection_mut(direction).counts.stray_acks += 1;
            return None;
        }
        let (own, half) = self.halves_mut(direction);
        let last_window = own.window.replace(packet.window);
        let (is_first, same_window) = (last_window.is_none(), last_window == Some(packet.window));
        let (numbering, tracker) = (half.numbering?, half.tracker.as_mut()?);
        if is_first && half.counts.syns == 0 {
            tracker.start_before_trace(numbering.position(tracker.acked(), ack));
        }
        let before = tracker.acked();
        let position = numbering.position(tracker.next(), ack);
        if !tracker.is_near(position) {
            own.counts.stray_acks += 1;
            return None;
        }
        let outstanding = tracker.outstanding() > 0;
        if let Some(fin) = half.fin {
            half.fin_acked |= position > fin;
        }
        let payload = half.fin.map_or(position, |fin| position.min(fin));
        half.commit_probe(payload);
        let tracker = half.tracker.as_mut()?;
        let advance = tracker.apply_ack(payload, packet.at_ns);
        half.counts.missing_bytes += advance.unseen.unsigned_abs();
        let mut blocks = [(0, 0); 4];
        let wire = packet.sack.as_slice();
        let end = half.fin.unwrap_or(i64::MAX);
        let mut covers_fin = false;
        for (block, &(left, right)) in blocks.iter_mut().zip(wire) {
            let left = numbering.position(position, left);
            let right = numbering.position(left, right);
            covers_fin |= (left..right).contains(&end);
            *block = (left, right);
        }
        let reports_fin = covers_fin && !half.fin_sacked;
        half.fin_sacked |= covers_fin;
        let blocks = blocks.get(..wire.len()).unwrap_or_default();
        let sacked = tracker.apply_sack(position, blocks, end, packet.at_ns);
        let bare = packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin;
        let has_news = match wire {
            [] => same_window,
            _ => sacked.bytes > 0 || reports_fin,
        };
        let outstanding = outstanding || sacked.bytes > 0;
        let duplicate = bare && outstanding && position == before && !is_first && has_news;
        own.counts.duplicate_acks += u64::from(duplicate);
        if let Some(bytes) = sacked.duplicate {
            own.counts.dsacks += 1;
            half.received_twice(bytes);
        }
        Some(ReceivedAck {
            direction: direction.reverse(),
            packet: packet.number,
            at_ns: packet.at_ns,
            position,
            bytes: advance.bytes.unsigned_abs(),
            sacked_bytes: sacked.bytes.unsigned_abs(),
            duplicate,
            dsack: sacked.duplicate,
            rtt_ns: advance
                .sample_from_ns
                .map(|from| packet.at_ns.saturating_sub(from)),
        })
    }

    /// The half that sends in this direction, and its peer.
    #[inline]
    fn halves_mut(&mut self, direction: Direction) -> (&mut HalfConnection, &mut HalfConnection) {
        let [forward, backward] = &mut self.halves;
        match direction {
            Direction::Forward => (forward, backward),
            Direction::Backward => (backward, forward),
        }
    }
}

/// No link in use has larger frames.
const MAX_FRAME: u32 = 9216;

impl HalfConnection {
    /// Counts a packet that does not belong to this connection.
    pub(super) fn count_stray(&mut self, packet: &Packet) {
        self.count_headers(packet);
        self.counts.stray_packets += 1;
    }

    #[inline]
    fn count_headers(&mut self, packet: &Packet) {
        let counts = &mut self.counts;
        let flags = packet.flags;
        counts.packets += 1;
        counts.wire_bytes += u64::from(packet.frame_len);
        counts.header_bytes += u64::from(packet.header_len);
        if flags.syn || flags.fin || flags.rst {
            counts.syns += u64::from(flags.syn);
            counts.fins += u64::from(flags.fin);
            counts.resets += u64::from(flags.rst);
        } else {
            counts.zero_windows += u64::from(packet.window == 0);
        }
    }

    #[inline]
    fn add_payload(&mut self, packet: &Packet, sent: &mut SentPacket, peer_acked: bool) {
        let Some(tracker) = self.tracker.as_mut() else {
            return;
        };
        let is_repeated = sent.end <= tracker.next();
        let is_reported = is_repeated && peer_acked && tracker.is_reported(sent.start, sent.end);
        self.first_data_ns.get_or_insert(packet.at_ns);
        self.last_data_ns = Some(packet.at_ns);
        let placed = tracker.sent(sent.start, sent.end, packet.at_ns, packet.number);
        let in_flight = tracker.in_flight();
        sent.new_bytes = (placed.new + placed.already_acked).unsigned_abs();
        sent.old_bytes = (placed.redundant + placed.stale).unsigned_abs();
        let counts = &mut self.counts;
        counts.most_in_flight = counts.most_in_flight.max(in_flight);
        counts.data_packets += 1;
        counts.payload_bytes += u64::from(packet.payload_len);
        counts.new_bytes += sent.new_bytes;
        counts.stale_bytes += placed.stale.unsigned_abs();
        counts.missing_bytes = counts
            .missing_bytes
            .saturating_sub(placed.already_acked.unsigned_abs());
        if let Some(since_ns) = placed.hole_since_ns {
            counts.hole_filling_packets += 1;
            let open_ns = packet.at_ns.saturating_sub(since_ns);
            counts.shortest_hole_ns = counts.shortest_hole_ns.into_iter().chain([open_ns]).min();
        }
        sent.class = match placed.kind() {
            CopyKind::New => {
                counts.new_packets += 1;
                Class::New
            }
            CopyKind::Bundled => {
                counts.bundled_packets += 1;
                counts.bundled_bytes += sent.old_bytes;
                self.bundled((sent.start, sent.end));
                Class::Bundled
            }
            CopyKind::Retransmission => {
                counts.retransmitted_packets += 1;
                counts.retransmitted_bytes += sent.old_bytes;
                if is_reported || !placed.was_bundled {
                    self.retransmitted((sent.start, sent.end), is_reported);
                }
                Class::Retransmission {
                    nth: u32::try_from(placed.earlier_copies).unwrap_or(u32::MAX),
                }
            }
        };
    }
}
