//! What became of packets and ranges, once that is clear.

use super::view::View;
use crate::connection::{Direction, HalfConnection, Side};
use crate::event::Observer;
use crate::ranges::Tracker;

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
