//! Arrival at the receiver, and the order in which an application can read.

use smallvec::SmallVec;

use super::{Delivery, FirstArrival, Range, ReadTime, Tracker};

impl Tracker {
    /// Records the arrival of bytes, in the packet with this number in the sender's trace if known.
    /// Returns how many bytes arrived for the first time.
    #[inline]
    pub(crate) fn delivered(
        &mut self,
        start: i64,
        end: i64,
        at_ns: i64,
        packet: Option<u64>,
    ) -> i64 {
        let Some(in_order) = self.in_order else {
            return 0;
        };
        if start == end {
            return 0;
        }
        self.next = self.next.max(end);
        self.arrived(start, end, in_order, at_ns, packet)
    }

    fn arrived(
        &mut self,
        start: i64,
        end: i64,
        in_order: i64,
        at_ns: i64,
        packet: Option<u64>,
    ) -> i64 {
        let mut first = 0;
        // Bytes before this position were received already.
        let mut at = start.max(in_order);
        let mut index = self.index_of(at);
        while at < end {
            let gap_end = self.ranges.get(index).map_or(end, |range| range.start);
            if gap_end > at {
                self.insert_unsent(index, at, gap_end.min(end));
            }
            self.isolate(&mut index, at, end);
            let range = &mut self.ranges[index];
            if range.delivery.is_none() {
                range.delivery = Some(Delivery {
                    at_ns,
                    first_arrival: first_arrival(range, packet),
                    readable: ReadTime::Never,
                    waited_for: (range.start > in_order).then_some(in_order),
                });
                first += range.end - range.start;
            }
            at = range.end;
            index += 1;
        }
        if start <= in_order {
            self.advance_in_order(ReadTime::At(at_ns));
        }
        first
    }

    /// Inserts a range that arrived, but whose transmission is not in the trace.
    fn insert_unsent(&mut self, index: usize, start: i64, end: i64) {
        self.take_acked_gaps(start, end);
        self.ranges.insert(
            index,
            Range {
                start,
                end,
                copies: SmallVec::new(),
                acked_ns: None,
                sacked_ns: None,
                delivery: None,
                ends_packet: false,
                arrived_unseen: false,
            },
        );
    }

    /// Advances over all ranges that have arrived without a gap; the application can read them from
    /// that time on.
    fn advance_in_order(&mut self, readable: ReadTime) {
        let Some(mut in_order) = self.in_order else {
            return;
        };
        let mut index = self.index_of(in_order);
        while let Some(range) = self.ranges.get_mut(index)
            && range.start <= in_order
            && let Some(delivery) = &mut range.delivery
        {
            delivery.readable = readable;
            in_order = range.end;
            index += 1;
        }
        self.in_order = Some(in_order);
    }

    /// Records that all bytes before `ack` have been received, at `until_ns` or earlier by the
    /// receiver's clock. Ranges without a delivery arrived at an unknown time and are passed to
    /// `unseen`. Ranges that waited for them became readable at an unknown time, unless they
    /// arrived later.
    #[inline]
    pub(crate) fn received(&mut self, ack: i64, until_ns: i64, unseen: impl FnMut(&Range)) {
        if self.in_order.is_some_and(|in_order| in_order < ack) {
            self.receive_unseen(ack, until_ns, unseen);
        }
    }

    #[cold]
    #[inline(never)]
    fn receive_unseen(&mut self, ack: i64, until_ns: i64, mut unseen: impl FnMut(&Range)) {
        let Some(mut at) = self.in_order else { return };
        let mut latest_ns = i64::MIN;
        let mut index = self.index_of(at);
        while let Some(range) = self.ranges.get(index)
            && (range.start < ack || range.start <= at.max(ack) && range.delivery.is_some())
        {
            if range.end > ack && range.delivery.is_none() {
                self.cut(index, ack);
            }
            let range = &mut self.ranges[index];
            match &mut range.delivery {
                Some(delivery) => {
                    latest_ns = latest_ns.max(delivery.at_ns);
                    delivery.readable = if latest_ns > until_ns {
                        ReadTime::At(latest_ns)
                    } else {
                        ReadTime::Unknown
                    };
                }
                None => {
                    range.arrived_unseen = true;
                    unseen(range);
                }
            }
            at = range.end;
            index += 1;
        }
        self.in_order = Some(at.max(ack));
    }

    /// Whether any byte between these positions has not arrived.
    pub(crate) fn misses(&self, start: i64, end: i64) -> bool {
        let start = start.max(self.in_order.unwrap_or(end));
        let ranges = self.ranges.range(self.index_of(start)..);
        let mut ranges = ranges.take_while(|range| range.start < end);
        start < end && ranges.any(|range| range.delivery.is_none())
    }

    /// Passes ranges between these positions to `unseen` if an ACK or SACK block covered them but
    /// the receiver's trace does not show their arrival. Only ACKs before `known_ns` count, because
    /// later arrivals may still appear.
    pub(crate) fn unseen(&self, start: i64, end: i64, known_ns: i64, unseen: impl FnMut(&Range)) {
        let is_known = |ns: Option<i64>| ns.is_some_and(|ns| ns < known_ns);
        let covered = |range: &&Range| {
            range.arrived_unseen || range.sacked_ns.is_some() || is_known(range.acked_ns)
        };
        let ranges = self.ranges.range(self.index_of(start)..);
        let ranges = ranges.take_while(|range| range.start < end);
        ranges
            .filter(|range| range.delivery.is_none())
            .filter(covered)
            .for_each(unseen);
    }

    /// The end of the first unreadable range, and the time of the ACK that covers it, if any.
    pub(crate) fn acked_unread(&self) -> Option<(i64, i64)> {
        let range = self.ranges.get(self.index_of(self.in_order?))?;
        Some((range.end, range.acked_ns?))
    }

    /// Passes the ranges with bytes between these positions.
    pub(crate) fn each_range(&self, start: i64, end: i64, report: impl FnMut(&Range)) {
        let ranges = self.ranges.range(self.index_of(start)..);
        let ranges = ranges.take_while(|range| range.start < end);
        ranges.for_each(report);
    }

    /// Skips bytes without a known arrival, so that later ranges become readable.
    pub(super) fn skip_missing(&mut self) {
        self.received(self.floor, i64::MAX, |_| {});
    }
}

fn first_arrival(range: &Range, packet: Option<u64>) -> FirstArrival {
    if range.copies.is_empty() {
        return FirstArrival::Missed;
    }
    let is_it = |number| range.copies.iter().position(|copy| copy.packet == number);
    let index = packet.and_then(is_it);
    let index = index.and_then(|index| index.try_into().ok());
    index.map_or(FirstArrival::Other, FirstArrival::Copy)
}
