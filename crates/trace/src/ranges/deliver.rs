//! Arrival at the receiver, and the order in which an application can read.

use smallvec::SmallVec;

use super::{Bringer, Delivery, Range, Readable, Tracker};

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
        if begin == end {
            return 0;
        }
        self.next = self.next.max(end);
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
        // What was received before is here once more.
        let mut at = begin.max(in_order);
        let mut index = self.index_of(at);
        while at < end {
            let gap_end = self.ranges.get(index).map_or(end, |range| range.begin);
            if gap_end > at {
                self.insert_unsent(index, at, gap_end.min(end));
            }
            self.isolate(&mut index, at, end);
            let range = &mut self.ranges[index];
            if range.delivery.is_none() {
                range.delivery = Some(Delivery {
                    at_ns,
                    bringer: bringer(range, packet),
                    readable: Readable::Never,
                    behind: (range.begin > in_order).then_some(in_order),
                });
                first += range.end - range.begin;
            }
            at = range.end;
            index += 1;
        }
        if begin <= in_order {
            self.read_on(Readable::At(at_ns));
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
                arrived_unseen: false,
            },
        );
    }

    /// Goes on over all that has arrived without a gap; an application can read it from that
    /// time on.
    fn read_on(&mut self, readable: Readable) {
        let Some(mut in_order) = self.in_order else {
            return;
        };
        let mut index = self.index_of(in_order);
        while let Some(range) = self.ranges.get_mut(index)
            && range.begin <= in_order
            && let Some(delivery) = &mut range.delivery
        {
            delivery.readable = readable;
            in_order = range.end;
            index += 1;
        }
        self.in_order = Some(in_order);
    }

    /// Enters that all before `ack` has been received, by `until_ns` at the latest by the clock of
    /// the receiver's trace. What of it the trace does not show arrived at a time that is not
    /// known; `unseen` is told each such range. What waited behind it could be read at a time that
    /// is not known either, unless it came later.
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
            && (range.begin < ack || range.begin <= at.max(ack) && range.delivery.is_some())
        {
            if range.end > ack && range.delivery.is_none() {
                self.cut(index, ack);
            }
            let range = &mut self.ranges[index];
            match &mut range.delivery {
                Some(delivery) => {
                    latest_ns = latest_ns.max(delivery.at_ns);
                    delivery.readable = if latest_ns > until_ns {
                        Readable::At(latest_ns)
                    } else {
                        Readable::Unknown
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
    pub(crate) fn misses(&self, begin: i64, end: i64) -> bool {
        let begin = begin.max(self.in_order.unwrap_or(end));
        let ranges = self.ranges.range(self.index_of(begin)..);
        let mut ranges = ranges.take_while(|range| range.begin < end);
        begin < end && ranges.any(|range| range.delivery.is_none())
    }

    /// Tells each range between these positions which an ACK or a SACK block covered, as they do
    /// what has arrived, and of which the receiver's trace does not show that it did. ACKs count
    /// that came before `known_ns`: of later ones it may show that yet.
    pub(crate) fn unseen(&self, begin: i64, end: i64, known_ns: i64, unseen: impl FnMut(&Range)) {
        let is_known = |ns: Option<i64>| ns.is_some_and(|ns| ns < known_ns);
        let covered = |range: &&Range| {
            range.arrived_unseen || range.sacked_ns.is_some() || is_known(range.acked_ns)
        };
        let ranges = self.ranges.range(self.index_of(begin)..);
        let ranges = ranges.take_while(|range| range.begin < end);
        ranges
            .filter(|range| range.delivery.is_none())
            .filter(covered)
            .for_each(unseen);
    }

    /// The end of the first range that could not be read yet, and when an ACK came that covers it,
    /// if one did.
    pub(crate) fn acked_unread(&self) -> Option<(i64, i64)> {
        let range = self.ranges.get(self.index_of(self.in_order?))?;
        Some((range.end, range.acked_ns?))
    }

    /// Tells each range between these positions that a packet brought at this time which is none of
    /// those sent.
    pub(crate) fn brought_otherwise(
        &self,
        begin: i64,
        end: i64,
        at_ns: i64,
        brought: impl FnMut(&Range),
    ) {
        let is_it =
            |delivery: Delivery| (delivery.bringer, delivery.at_ns) == (Bringer::Other, at_ns);
        let ranges = self.ranges.range(self.index_of(begin)..);
        let ranges = ranges.take_while(|range| range.begin < end);
        ranges
            .filter(|range| range.delivery.is_some_and(is_it))
            .for_each(brought);
    }

    /// Leaves out bytes of which nothing shows that they arrived, so that the rest is read in
    /// order.
    pub(super) fn skip_missing(&mut self) {
        self.received(self.floor, i64::MAX, |_| {});
    }
}

fn bringer(range: &Range, packet: Option<u64>) -> Bringer {
    if range.copies.is_empty() {
        return Bringer::Missed;
    }
    let is_it = |number| range.copies.iter().position(|copy| copy.packet == number);
    let place = packet.and_then(is_it);
    let index = place.and_then(|place| place.try_into().ok());
    index.map_or(Bringer::Other, Bringer::Copy)
}
