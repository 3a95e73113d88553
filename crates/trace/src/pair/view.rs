//! One connection in two traces: arrivals, and the disposition of its packets and ranges.

use super::pair_state::PairState;
use crate::connection::{Connection, HalfConnection};
use crate::event::{Arrival, ArrivedPacket, Class, Direction, Disposition, PathDirection, Side};
use crate::link::{Identity, PendingArrival, ResolvedEvent};
use crate::observer::{Observer, PeriodFilter};
use crate::packet::Packet;
use crate::ranges::Tracker;

/// A connection with the state that determines its packets' dispositions.
pub(super) struct ConnectionView<'a, O> {
    pub(super) connection: &'a mut Connection,
    pub(super) pair_state: &'a mut PairState,
    pub(super) observer: &'a mut PeriodFilter<O>,
    /// The connection has ended.
    pub(super) ended: bool,
}

impl<O: Observer> ConnectionView<'_, O> {
    #[inline(never)]
    pub(super) fn packet(
        &mut self,
        direction: Direction,
        side: Side,
        packet: &Packet,
        fingerprint: u64,
        now_ns: i64,
    ) {
        let connection = &mut *self.connection;
        connection.seen.add(side, direction);
        connection.observe_time(now_ns, self.observer.start_ns());
        connection.learn_numbering(direction, packet);
        if side == Side::Sender {
            connection.update_state(direction, packet);
        }
        if self.departure_side(direction) == side {
            self.departs(direction, packet, fingerprint);
            self.acknowledges(direction.reverse(), packet);
        } else {
            self.arrives(direction, packet, fingerprint);
        }
        for direction in Direction::BOTH {
            // After a silence, earlier arrivals and losses are immediately certain.
            self.arrivals(direction);
            self.dispositions(direction);
            self.ranges(direction);
        }
    }

    /// The trace that shows the packets of a direction first.
    #[inline]
    pub(super) fn departure_side(&self, direction: Direction) -> Side {
        match self.connection.path_direction(direction) {
            PathDirection::ToReceiver => Side::Sender,
            PathDirection::ToSender => Side::Receiver,
        }
    }

    #[inline]
    fn departs(&mut self, direction: Direction, packet: &Packet, fingerprint: u64) {
        let Some(sent) = self.connection.sent(direction, packet) else {
            return;
        };
        self.observer.sent(self.connection, &sent);
        let disposition = Disposition {
            direction,
            path_direction: self.connection.path_direction(direction),
            packet: packet.number,
            sent_ns: packet.at_ns,
            class: sent.class,
            start: sent.start,
            end: sent.end,
            old_bytes: sent.old_bytes,
            arrival: Arrival::Unknown,
        };
        self.connection
            .link_mut(direction)
            .depart(fingerprint, disposition, packet.has_ip_id());
    }

    #[inline]
    fn arrives(&mut self, direction: Direction, packet: &Packet, fingerprint: u64) {
        let arrived = ArrivedPacket {
            direction,
            packet: packet.number,
            at_ns: packet.at_ns,
            payload_bytes: packet.payload_len,
            wire_bytes: packet.frame_len,
        };
        self.observer.arrived(self.connection, &arrived);
        if let Some(acked) = self.connection.acked(direction, packet) {
            self.observer.acked(self.connection, &acked);
        }
        let pending = PendingArrival {
            fingerprint,
            at_ns: packet.at_ns,
            packet: packet.number,
            seq: packet.seq.wrapping_add(u32::from(packet.flags.syn)),
            payload_len: packet.payload_len,
        };
        let link = self.connection.link_mut(direction);
        match link.expects(fingerprint) {
            Some(index) => {
                let side = self.departure_side(direction);
                self.delivered(direction, &pending, index, side);
            }
            None => link.arrive(pending),
        }
    }

    /// Processes pending arrivals that are identified.
    #[inline]
    pub(super) fn arrivals(&mut self, direction: Direction) {
        if self.connection.link_mut(direction).has_pending_arrivals() {
            self.resolve_arrivals(direction);
        }
    }

    fn resolve_arrivals(&mut self, direction: Direction) {
        let side = self.departure_side(direction);
        let known = self.pair_state.known_departures(side, self.ended);
        while let Some(event) = self.connection.link_mut(direction).next_resolved(known) {
            match event {
                ResolvedEvent::Arrival(pending, Identity::SentPacket(index)) => {
                    self.delivered(direction, &pending, index, side);
                }
                ResolvedEvent::Arrival(pending, Identity::Duplicate) => {
                    let counts =
                        self.observer
                            .has_arrived(self.connection, direction, pending.at_ns);
                    let delivery_stats = &mut self.connection.link_mut(direction).delivery_stats;
                    delivery_stats.duplicated_packets += u64::from(counts);
                }
                ResolvedEvent::Arrival(pending, Identity::Repeat) => {
                    let counts =
                        self.observer
                            .has_arrived(self.connection, direction, pending.at_ns);
                    if counts {
                        self.connection
                            .half_connection_mut(direction)
                            .repeat_arrived();
                    }
                }
                ResolvedEvent::Arrival(pending, Identity::Unknown) => {
                    self.delivered_unmatched(direction, &pending);
                }
                ResolvedEvent::Ack(ack) => self.received(direction, ack),
            }
        }
    }

    /// Processes an ACK that leaves the receiver of a direction.
    #[inline]
    fn acknowledges(&mut self, direction: Direction, packet: &Packet) {
        let Some(ack) = packet.ack.filter(|_| !packet.flags.rst) else {
            return;
        };
        let link = self.connection.link_mut(direction);
        if link.acked == Some(ack) {
            return;
        }
        link.acked = Some(ack);
        if link.has_pending_arrivals() {
            link.acknowledge(ack);
        } else {
            self.received(direction, ack);
        }
    }

    /// Marks all bytes before a sequence number as received, whether or not the receiver's trace
    /// shows it.
    #[inline]
    fn received(&mut self, direction: Direction, ack: u32) {
        if self.connection.is_unacceptable(direction, ack) {
            return;
        }
        let half = self.connection.half_connection_mut(direction);
        if let (Some(numbering), Some(tracker)) = (half.numbering, half.tracker.as_ref()) {
            let position = numbering.position(tracker.next(), ack);
            if tracker.is_near(position) {
                let position = half.fin.map_or(position, |fin| position.min(fin));
                self.received_before(direction, position, i64::MAX);
            }
        }
    }

    pub(super) fn received_before(&mut self, direction: Direction, position: i64, until_ns: i64) {
        let half = self.connection.half_connection_mut(direction);
        let HalfConnection { tracker, link, .. } = half;
        if let (Some(tracker), Some(link)) = (tracker, link) {
            tracker.received(position, until_ns, |range| {
                link.arrived_unseen(range.copies.iter().map(|copy| copy.packet));
            });
        }
    }

    #[inline]
    fn delivered(
        &mut self,
        direction: Direction,
        pending: &PendingArrival,
        index: usize,
        side: Side,
    ) {
        let half = self.connection.half_connection_mut(direction);
        let Some(link) = half.link.as_deref_mut() else {
            return;
        };
        let arrived_ns = self.pair_state.by_clock_of(side, pending.at_ns);
        let (index, is_ambiguous) = link.choose(index, arrived_ns);
        let Some(&disposition) = link.disposition(index) else {
            return;
        };
        let (mut repaired, mut new) = (0, 0);
        let probe = matches!(disposition.class, Class::KeepAlive | Class::WindowProbe);
        if let Some(tracker) = half.tracker.as_mut()
            && !probe
        {
            let old_end = match disposition.class {
                Class::New | Class::Control => disposition.start,
                _ => disposition
                    .start
                    .saturating_add_unsigned(disposition.old_bytes)
                    .min(disposition.end),
            };
            let packet = (!is_ambiguous).then_some(disposition.packet);
            let at_ns = pending.at_ns;
            if disposition.start < old_end {
                repaired = tracker.delivered(disposition.start, old_end, at_ns, packet);
            }
            new = tracker.delivered(old_end, disposition.end, at_ns, packet);
        }
        if self.observer.has_disposition(&disposition) {
            link.delivery_stats.delivered_bytes += (repaired + new).unsigned_abs();
        }
        let arrival = Arrival::Delivered {
            at_ns: pending.at_ns,
            packet: pending.packet,
            repaired_bytes: repaired.unsigned_abs(),
            is_ambiguous,
        };
        link.set_arrival(index, arrival);
        if !is_ambiguous {
            link.settle_acked(index);
            self.pair_state
                .matched(side, disposition.sent_ns, pending.at_ns);
        }
    }

    fn delivered_unmatched(&mut self, direction: Direction, pending: &PendingArrival) {
        let side = self.departure_side(direction);
        let arrived_ns = self.pair_state.by_clock_of(side, pending.at_ns);
        let counts = (self.observer).has_arrived(self.connection, direction, pending.at_ns);
        let half = self.connection.half_connection_mut(direction);
        let Some(link) = half.link.as_deref_mut() else {
            return;
        };
        link.delivery_stats.unmatched_packets += u64::from(counts);
        if let (Some(numbering), Some(tracker)) = (half.numbering, half.tracker.as_mut()) {
            let start = numbering.position(tracker.next(), pending.seq);
            let end = start + i64::from(pending.payload_len);
            if tracker.is_near(start) {
                let bytes = tracker.delivered(start, end, pending.at_ns, None);
                let floor = tracker.floor().min(end);
                if start < floor {
                    link.old_bytes_arrived(start, floor, arrived_ns);
                }
                tracker.each_range(start, end, |range| {
                    let sent = range.copies.iter().filter(|it| it.at_ns <= arrived_ns);
                    let bytes = (range.start.max(start), range.end.min(end));
                    link.arrived_otherwise(bytes, sent.map(|copy| copy.packet));
                });
                if counts {
                    link.delivery_stats.delivered_bytes += bytes.unsigned_abs();
                }
            }
        }
    }
}

impl<O: Observer> ConnectionView<'_, O> {
    #[inline]
    pub(super) fn dispositions(&mut self, direction: Direction) {
        let side = self.departure_side(direction);
        let loss_deadline_ns = if self.ended {
            i64::MAX
        } else {
            self.pair_state.loss_deadline_ns(side)
        };
        while self
            .connection
            .link_mut(direction)
            .has_disposition(loss_deadline_ns)
            && (self.ended || !self.waits_for_ack(direction))
        {
            self.disposition(direction, side);
        }
    }

    /// Whether the oldest packet has no known arrival and its bytes are missing. After long gaps an
    /// ACK may still report them.
    #[inline]
    fn waits_for_ack(&self, direction: Direction) -> bool {
        let half = self.connection.half_connection(direction);
        let (Some(tracker), Some(link)) = (&half.tracker, &half.link) else {
            return false;
        };
        let (start, end) = link.next_payload();
        link.front_is_unresolved() && tracker.misses(start, end)
    }

    /// Reports the next disposition.
    #[inline(never)]
    fn disposition(&mut self, direction: Direction, side: Side) {
        if self.connection.link_mut(direction).front_is_unresolved() {
            self.declare_lost(direction, side);
        }
        if let Some(disposition) = self.connection.link_mut(direction).take_disposition() {
            if self.observer.has_disposition(&disposition) {
                self.connection
                    .link_mut(direction)
                    .delivery_stats
                    .count(&disposition);
            }
            self.observer.disposition(self.connection, &disposition);
        }
    }

    /// Resolves the oldest packet, whose arrival is not known.
    #[inline(never)]
    fn declare_lost(&mut self, direction: Direction, side: Side) {
        if self.connection.only_at().is_some() {
            return;
        }
        let covered_ns = self.pair_state.covered_ns(side);
        let known_ns = if self.ended {
            i64::MAX
        } else {
            self.pair_state.known_ns(side)
        };
        let HalfConnection { tracker, link, .. } = self.connection.half_connection_mut(direction);
        if let (Some(tracker), Some(link)) = (tracker, link) {
            let (start, end) = link.next_payload();
            tracker.unseen(start, end, known_ns, |range| {
                link.arrived_unseen(range.copies.iter().map(|copy| copy.packet));
            });
        }
        let link = self.connection.link_mut(direction);
        link.declare_lost(covered_ns);
    }

    #[inline]
    pub(super) fn ranges(&mut self, direction: Direction) {
        while self.connection.has_finished_range(direction) {
            self.range(direction);
        }
        let first = self.connection.first_range(direction);
        if let Some(acked_ns) = first.and_then(|first| first.acked_ns) {
            self.apply_sender_ack(direction, acked_ns);
        }
    }

    /// If the receiver's trace shows neither arrival nor ACK of the first range, the ACK at the
    /// sender proves its arrival.
    #[cold]
    #[inline(never)]
    fn apply_sender_ack(&mut self, direction: Direction, acked_ns: i64) {
        let side = self.departure_side(direction);
        if acked_ns >= self.pair_state.known_ns(side)
            || self.connection.link_mut(direction).has_pending_arrivals()
        {
            return;
        }
        if let Some(end) = self
            .connection
            .first_range(direction)
            .map(|first| first.end)
        {
            let until_ns = self.pair_state.by_clock_of_other(side, acked_ns);
            self.received_before(direction, end, until_ns);
        }
        while self.connection.has_finished_range(direction) {
            self.range(direction);
        }
    }

    /// Applies all ACKs that reached the sender of a direction, at the end of the traces.
    pub(super) fn apply_final_acks(&mut self, direction: Direction) {
        let side = self.departure_side(direction);
        loop {
            let tracker = self.connection.half_connection(direction).tracker.as_ref();
            let Some((end, acked_ns)) = tracker.and_then(Tracker::acked_unread) else {
                return;
            };
            let until_ns = self.pair_state.by_clock_of_other(side, acked_ns);
            self.received_before(direction, end, until_ns);
        }
    }

    /// Reports and drops the first range.
    #[inline(never)]
    pub(super) fn range(&mut self, direction: Direction) {
        if let Some(range) = self.connection.first_range(direction) {
            let acked = range.acked_ns.is_some() || range.arrived_unseen;
            let unseen = acked
                && range.delivery.is_none()
                && (self.observer).has_range(self.connection, direction, range);
            let unseen_bytes = if unseen { range.len() } else { 0 };
            self.observer.range(self.connection, direction, range);
            self.connection
                .link_mut(direction)
                .delivery_stats
                .unseen_bytes += unseen_bytes;
            self.connection.drop_first_range(direction);
        }
    }
}
