//! One connection in two traces: its arrivals, and the fate of its packets and ranges once it is clear.

use super::sides::Sides;
use crate::connection::{Connection, HalfConnection, LARGEST_FRAME};
use crate::event::{Arrival, Arrived, Class, Direction, Fate, PathDirection, Side};
use crate::link::{Clear, Identity, Waiting};
use crate::observer::{Observer, Since};
use crate::packet::Packet;
use crate::ranges::Tracker;

/// A connection with all that the fate of its packets depends on.
pub(super) struct View<'a, O> {
    pub(super) connection: &'a mut Connection,
    pub(super) sides: &'a mut Sides,
    pub(super) observer: &'a mut Since<O>,
    /// No more will come of it.
    pub(super) ended: bool,
}

impl<O: Observer> View<'_, O> {
    #[inline(never)]
    pub(super) fn packet(
        &mut self,
        direction: Direction,
        side: Side,
        packet: &Packet,
        print: u64,
        now_ns: i64,
    ) {
        let connection = &mut *self.connection;
        connection.seen.add(side, direction);
        connection.sees(now_ns, self.observer.begin_ns());
        connection.learn(direction, packet);
        if side == Side::Sender {
            connection.open_and_close(direction, packet);
        }
        if self.departure_side(direction) == side {
            self.departs(direction, packet, print);
            self.acknowledges(direction.reverse(), packet);
        } else {
            self.arrives(direction, packet, print);
        }
        for direction in Direction::BOTH {
            // After a silence it is clear at once what had arrived before it, and what is lost.
            self.arrivals(direction);
            self.fates(direction);
            self.ranges(direction);
        }
    }

    /// At which trace the packets of a direction are seen first.
    #[inline]
    pub(super) fn departure_side(&self, direction: Direction) -> Side {
        match self.connection.path_direction(direction) {
            PathDirection::ToReceiver => Side::Sender,
            PathDirection::ToSender => Side::Receiver,
        }
    }

    #[inline]
    fn departs(&mut self, direction: Direction, packet: &Packet, print: u64) {
        let Some(sent) = self.connection.sent(direction, packet) else {
            return;
        };
        self.observer.sent(self.connection, &sent);
        let fate = Fate {
            direction,
            path_direction: self.connection.path_direction(direction),
            packet: packet.number,
            sent_ns: packet.at_ns,
            class: sent.class,
            begin: sent.begin,
            end: sent.end,
            old_bytes: sent.old_bytes,
            arrival: Arrival::Unknown,
        };
        self.connection.link_mut(direction).depart(print, fate);
    }

    #[inline]
    fn arrives(&mut self, direction: Direction, packet: &Packet, print: u64) {
        let arrived = Arrived {
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
        let waiting = Waiting {
            print,
            at_ns: packet.at_ns,
            packet: packet.number,
            seq: packet.seq.wrapping_add(u32::from(packet.flags.syn)),
            payload_len: packet.payload_len,
        };
        let link = self.connection.link_mut(direction);
        match link.expects(print) {
            Some(index) => {
                let side = self.departure_side(direction);
                self.delivered(direction, &waiting, index, side);
            }
            None => link.arrive(waiting),
        }
    }

    /// Enters what has arrived and waits, as far as it is clear what it is.
    #[inline]
    pub(super) fn arrivals(&mut self, direction: Direction) {
        if self.connection.link_mut(direction).waits() {
            self.waiting_arrivals(direction);
        }
    }

    fn waiting_arrivals(&mut self, direction: Direction) {
        let side = self.departure_side(direction);
        let certain_ns = if self.ended {
            i64::MAX
        } else {
            self.sides.certain_ns(side)
        };
        while let Some(clear) = self.connection.link_mut(direction).next_clear(certain_ns) {
            match clear {
                Clear::Arrival(waiting, Identity::Sent(index)) => {
                    self.delivered(direction, &waiting, index, side);
                }
                Clear::Arrival(waiting, Identity::Duplicate) => {
                    let counts =
                        self.observer
                            .has_arrived(self.connection, direction, waiting.at_ns);
                    let passage = &mut self.connection.link_mut(direction).passage;
                    passage.duplicated_packets += u64::from(counts);
                }
                Clear::Arrival(waiting, Identity::Unknown) => {
                    self.delivered_unmatched(direction, &waiting);
                }
                Clear::Ack(ack) => self.received(direction, ack),
            }
        }
    }

    /// An ACK leaves the receiver of a direction.
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
        if link.waits() {
            link.acknowledge(ack);
        } else {
            self.received(direction, ack);
        }
    }

    /// All before this sequence number has been received, whether or not the receiver's trace
    /// shows it.
    #[inline]
    fn received(&mut self, direction: Direction, ack: u32) {
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
    fn delivered(&mut self, direction: Direction, waiting: &Waiting, index: usize, side: Side) {
        let half = self.connection.half_connection_mut(direction);
        let Some(link) = half.link.as_deref_mut() else {
            return;
        };
        let Some(&fate) = link.fate(index) else {
            return;
        };
        let (mut repaired, mut new) = (0, 0);
        let probe = matches!(fate.class, Class::KeepAlive | Class::WindowProbe);
        if let Some(tracker) = half.tracker.as_mut()
            && !probe
        {
            let old_end = match fate.class {
                Class::New | Class::Control => fate.begin,
                _ => fate
                    .begin
                    .saturating_add_unsigned(fate.old_bytes)
                    .min(fate.end),
            };
            let (at_ns, packet) = (waiting.at_ns, Some(fate.packet));
            if fate.begin < old_end {
                repaired = tracker.delivered(fate.begin, old_end, at_ns, packet);
            }
            new = tracker.delivered(old_end, fate.end, at_ns, packet);
        }
        if self.observer.has_fate(&fate) {
            link.passage.delivered_bytes += (repaired + new).unsigned_abs();
        }
        let arrival = Arrival::Delivered {
            at_ns: waiting.at_ns,
            packet: waiting.packet,
            repaired_bytes: repaired.unsigned_abs(),
        };
        link.settle(index, arrival);
        self.sides.matched(side, fate.sent_ns, waiting.at_ns);
    }

    fn delivered_unmatched(&mut self, direction: Direction, waiting: &Waiting) {
        let limit = self.segment_limit(direction);
        let counts = (self.observer).has_arrived(self.connection, direction, waiting.at_ns);
        let half = self.connection.half_connection_mut(direction);
        let Some(link) = half.link.as_deref_mut() else {
            return;
        };
        link.passage.unmatched_packets += u64::from(counts);
        link.regrouped |= waiting.payload_len > limit;
        if let (Some(numbering), Some(tracker)) = (half.numbering, half.tracker.as_mut()) {
            let begin = numbering.position(tracker.next(), waiting.seq);
            let end = begin + i64::from(waiting.payload_len);
            if tracker.is_near(begin) {
                let bytes = tracker.delivered(begin, end, waiting.at_ns, None);
                tracker.brought_otherwise(begin, end, waiting.at_ns, |range| {
                    link.arrived_otherwise(range.copies.iter().map(|copy| copy.packet));
                });
                if counts {
                    link.passage.delivered_bytes += bytes.unsigned_abs();
                }
            }
        }
    }

    /// Larger segments do not travel.
    pub(super) fn segment_limit(&self, direction: Direction) -> u32 {
        let mss = self.connection.half_connection(direction.reverse()).mss;
        mss.map_or(LARGEST_FRAME, u32::from)
    }
}

impl<O: Observer> View<'_, O> {
    #[inline]
    pub(super) fn fates(&mut self, direction: Direction) {
        let side = self.departure_side(direction);
        let given_up_ns = if self.ended {
            i64::MAX
        } else {
            self.sides.given_up_ns(side)
        };
        while self.connection.link_mut(direction).has_fate(given_up_ns)
            && (self.ended || !self.waits_for_ack(direction))
        {
            self.fate(direction, side);
        }
    }

    /// Whether nothing shows that the next packet arrived, and none else has brought what it
    /// carried: an ACK may still tell that it did, behind bytes that are missing for long.
    #[inline]
    fn waits_for_ack(&self, direction: Direction) -> bool {
        let half = self.connection.half_connection(direction);
        let (Some(tracker), Some(link)) = (&half.tracker, &half.link) else {
            return false;
        };
        let (begin, end) = link.next_payload();
        link.gives_up() && tracker.misses(begin, end)
    }

    /// Tells the next fate.
    #[inline(never)]
    fn fate(&mut self, direction: Direction, side: Side) {
        if self.connection.link_mut(direction).gives_up() {
            self.give_up(direction, side);
        }
        if let Some(fate) = self.connection.link_mut(direction).take_fate() {
            if self.observer.has_fate(&fate) {
                self.connection.link_mut(direction).passage.count(&fate);
            }
            self.observer.fate(self.connection, &fate);
        }
    }

    /// Says what became of the next packet, of which nothing shows that it arrived.
    #[inline(never)]
    fn give_up(&mut self, direction: Direction, side: Side) {
        if self.connection.only_at().is_some() {
            return;
        }
        let covered_ns = self.sides.covered_ns(side);
        let known_ns = if self.ended {
            i64::MAX
        } else {
            self.sides.known_ns(side)
        };
        let limit = self.segment_limit(direction);
        let HalfConnection { tracker, link, .. } = self.connection.half_connection_mut(direction);
        if let (Some(tracker), Some(link)) = (tracker, link) {
            let (begin, end) = link.next_payload();
            tracker.unseen(begin, end, known_ns, |range| {
                link.arrived_unseen(range.copies.iter().map(|copy| copy.packet));
            });
        }
        let link = self.connection.link_mut(direction);
        link.give_up(covered_ns, limit);
    }

    #[inline]
    pub(super) fn ranges(&mut self, direction: Direction) {
        while self.connection.has_finished_range(direction) {
            self.range(direction);
        }
        let first = self.connection.first_range(direction);
        if let Some(acked_ns) = first.and_then(|first| first.acked_ns) {
            self.acked_unseen(direction, acked_ns);
        }
    }

    /// Where the receiver's trace shows neither the arrival of the first range nor an ACK of it,
    /// the ACK that reached the sender says that it arrived.
    #[cold]
    #[inline(never)]
    fn acked_unseen(&mut self, direction: Direction, acked_ns: i64) {
        let side = self.departure_side(direction);
        if acked_ns >= self.sides.known_ns(side) || self.connection.link_mut(direction).waits() {
            return;
        }
        if let Some(end) = self
            .connection
            .first_range(direction)
            .map(|first| first.end)
        {
            let until_ns = self.sides.by_clock_of_other(side, acked_ns);
            self.received_before(direction, end, until_ns);
        }
        while self.connection.has_finished_range(direction) {
            self.range(direction);
        }
    }

    /// Enters all that ACKs say which reached the sender of a direction, when no more is to come of
    /// either trace.
    pub(super) fn acked_to_the_end(&mut self, direction: Direction) {
        let side = self.departure_side(direction);
        loop {
            let tracker = self.connection.half_connection(direction).tracker.as_ref();
            let Some((end, acked_ns)) = tracker.and_then(Tracker::acked_unread) else {
                return;
            };
            let until_ns = self.sides.by_clock_of_other(side, acked_ns);
            self.received_before(direction, end, until_ns);
        }
    }

    /// Tells the first range, and forgets it.
    #[inline(never)]
    pub(super) fn range(&mut self, direction: Direction) {
        if let Some(range) = self.connection.first_range(direction) {
            let acked = range.acked_ns.is_some() || range.arrived_unseen;
            let unseen = acked
                && range.delivery.is_none()
                && (self.observer).has_range(self.connection, direction, range);
            let unseen_bytes = if unseen { range.len() } else { 0 };
            self.observer.range(self.connection, direction, range);
            self.connection.link_mut(direction).passage.unseen_bytes += unseen_bytes;
            self.connection.drop_first_range(direction);
        }
    }
}
