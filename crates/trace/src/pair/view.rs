use super::clock::PathDirection;
use super::fate::{Arrival, Fate};
use super::link::{Clear, Identity, Waiting};
use super::sides::Sides;
use crate::connection::{Connection, Direction, HalfConnection, LARGEST_FRAME, Side};
use crate::event::{Arrived, Class, Observer};
use crate::packet::Packet;
use crate::since::Since;

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
