//! Arrival at the receiver, and the order in which an application can read.

use smallvec::SmallVec;

use super::{Delivery, Range, Tracker};

impl Tracker {
    /// Enters the arrival of bytes, in the packet with that number in the sender's trace if that
    /// is known, and says how many of them arrived for the first time.
    #[inline]
    pub(crate) fn delivered(
        &mut self,
        begin: i64,
        end: i64,
        at_ns: i64,
        packet: Option<u64>,
    ) -> i64 {
        let Some(in_order) = self.in_order else {
            return 0;
        };
        self.next = self.next.max(end);
        if begin == end {
            return 0;
        }
        self.arrived(begin, end, in_order, at_ns, packet)
    }

    fn arrived(
        &mut self,
        begin: i64,
        end: i64,
        in_order: i64,
        at_ns: i64,
        packet: Option<u64>,
    ) -> i64 {
        let mut first = 0;
        let mut at = begin.max(self.floor);
        let mut index = self.index_of(at);
        while at < end {
            let gap_end = self.ranges.get(index).map_or(end, |range| range.begin);
            if gap_end > at {
                self.insert_unsent(index, at, gap_end.min(end));
            }
            self.isolate(&mut index, at, end);
            let range = &mut self.ranges[index];
            if range.delivery.is_none() {
                let is_it = |number| range.copies.iter().position(|copy| copy.packet == number);
                range.delivery = Some(Delivery {
                    at_ns,
                    copy: packet
                        .and_then(is_it)
                        .and_then(|place| place.try_into().ok()),
                    in_order_ns: None,
                    behind: (range.begin > in_order).then_some(in_order),
                });
                first += range.end - range.begin;
            }
            at = range.end;
            index += 1;
        }
        if begin <= in_order {
            self.read_on(Some(at_ns));
        }
        first
    }

    /// A range that arrived although the trace does not show that it was sent.
    fn insert_unsent(&mut self, index: usize, begin: i64, end: i64) {
        self.ranges.insert(
            index,
            Range {
                begin,
                end,
                copies: SmallVec::new(),
                acked_ns: None,
                sacked_ns: None,
                delivery: None,
                ends_packet: false,
            },
        );
    }

    /// Goes on over all that has arrived without a gap; an application can read it from that
    /// time on.
    fn read_on(&mut self, at_ns: Option<i64>) {
        let Some(mut in_order) = self.in_order else {
            return;
        };
        let mut index = self.index_of(in_order);
        while let Some(range) = self.ranges.get_mut(index)
            && range.begin <= in_order
            && let Some(delivery) = &mut range.delivery
        {
            delivery.in_order_ns = at_ns;
            in_order = range.end;
            index += 1;
        }
        self.in_order = Some(in_order);
    }

    /// Leaves out bytes that the receiver's trace misses, so that the rest is read in order. When
    /// that became possible is not known.
    pub(super) fn skip_missing(&mut self) {
        if let Some(in_order) = self.in_order
            && in_order < self.floor
        {
            self.in_order = Some(self.floor);
            self.read_on(None);
        }
    }
}
