use std::ops::Range;

use serde::{Serialize, Serializer};

/// One direction over time, in slices of equal width that begin with the trace: slice `i` takes
/// what happened from `i` widths after its first packet on, and before `i + 1`.
#[derive(Debug, Clone)]
pub struct Slices {
    width_ns: i64,
    /// In order, each with its index; only those in which something happened.
    slices: Vec<(i64, Slice)>,
    /// The times of the slice that was asked for last, and its place: most follow in the same.
    last: (Range<i64>, usize),
}

/// What happened in one slice; bytes are of payload unless the name says otherwise. What only a
/// trace at the receiver tells is 0 without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    /// Size on the wire of the packets that were sent, with all headers.
    pub sent_wire_bytes: u64,
    /// Size on the wire of the packets that arrived, with all headers.
    pub received_wire_bytes: u64,
    /// Bytes that were acknowledged first.
    pub acked_bytes: u64,
    /// Bytes that the receiving application could read first.
    pub readable_bytes: u64,
    /// Packets with payload that were sent.
    pub data_packets: u32,
    /// Packets with payload that were sent and had no new byte.
    pub retransmitted_packets: u32,
    /// Packets with payload that were sent and lost on the way.
    pub lost_data_packets: u32,
    /// Most packets that a packet with payload found in flight.
    pub most_in_flight: u32,
    /// Packets that packets with payload found in flight, summed up.
    pub in_flight_sum: u64,
}

/// One slice as it is written: rates, shares and means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// When it began, in seconds since the trace's first packet.
    pub begin_s: f64,
    /// Throughput at the sender: all that was sent, with all headers.
    pub sent_throughput_bit_per_s: f64,
    /// Throughput at the receiver, with all headers, as the thesis' `tput` (section 3.4.2).
    pub received_throughput_bit_per_s: f64,
    /// Goodput at the sender: new payload acknowledged, as the thesis' `tcp-throughput`.
    pub acked_goodput_bit_per_s: f64,
    /// Goodput at the receiver: payload that its application could read.
    pub received_goodput_bit_per_s: f64,
    /// Packets with payload that were sent.
    pub data_packets: u32,
    /// Packets with payload that were sent and had no new byte.
    pub retransmitted_packets: u32,
    /// Packets with payload that were sent and lost on the way; 0 without a trace at the receiver.
    pub lost_data_packets: u32,
    /// Packets in flight as packets with payload found them when they were sent: the mean.
    pub in_flight_packets_mean: Option<f64>,
    /// The most packets in flight that a packet with payload found when it was sent.
    pub in_flight_packets_max: u32,
}

/// A day in slices of a second.
const MOST: i64 = 86_400;

impl Slices {
    pub(super) fn new(width_ns: i64) -> Self {
        Self {
            width_ns: width_ns.max(1),
            slices: Vec::new(),
            last: (0..0, 0),
        }
    }

    /// The slice of a time since the trace's first packet, in nanoseconds.
    #[inline]
    pub(super) fn at(&mut self, since_ns: i64) -> &mut Slice {
        let since_ns = since_ns.max(0);
        if !self.last.0.contains(&since_ns) {
            let index = since_ns / self.width_ns;
            let begin_ns = index * self.width_ns;
            let times = begin_ns..begin_ns.saturating_add(self.width_ns);
            self.last = (times, self.place(index));
        }
        &mut self.slices[self.last.1].1
    }

    fn place(&mut self, index: i64) -> usize {
        let last = self.slices.len().checked_sub(1);
        match last.map(|last| (last, self.slices[last].0)) {
            Some((last, at)) if at == index => last,
            Some((_, at)) if at > index => self.find(index),
            _ => {
                self.slices.push((index, Slice::default()));
                self.slices.len() - 1
            }
        }
    }

    fn find(&mut self, index: i64) -> usize {
        match self.slices.binary_search_by_key(&index, |slice| slice.0) {
            Ok(place) => place,
            Err(place) => {
                self.slices.insert(place, (index, Slice::default()));
                place
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (index, slice) in other.iter() {
            let place = self.place(index);
            self.slices[place].1.add(slice);
        }
        // One that was inserted has moved those behind it.
        self.last = (0..0, 0);
    }

    /// The width of each, in seconds.
    #[must_use]
    pub fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// Those in which anything happened, in order, each with its index.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Slice)> {
        self.slices.iter().map(|(index, slice)| (*index, slice))
    }

    /// All slices as rates, with those between the first and the last in which nothing happened,
    /// unless there are more than 86,400 from the first to the last. The last slice may reach
    /// beyond the end of the trace.
    pub fn rates(&self) -> impl Iterator<Item = Rates> {
        let ends = self.slices.first().zip(self.slices.last());
        let whole = ends.is_some_and(|(first, last)| last.0 - first.0 < MOST);
        let mut expected = i64::MAX;
        self.iter().flat_map(move |(index, slice)| {
            let idle = if whole { expected.min(index) } else { index }..index;
            expected = index.saturating_add(1);
            let idle = idle.map(|index| self.rate(index, &Slice::default()));
            idle.chain(std::iter::once(self.rate(index, slice)))
        })
    }

    fn rate(&self, index: i64, slice: &Slice) -> Rates {
        let width_s = self.width_s();
        let per_second = |bytes: u64| bytes as f64 * 8.0 / width_s;
        Rates {
            begin_s: index as f64 * width_s,
            sent_throughput_bit_per_s: per_second(slice.sent_wire_bytes),
            received_throughput_bit_per_s: per_second(slice.received_wire_bytes),
            acked_goodput_bit_per_s: per_second(slice.acked_bytes),
            received_goodput_bit_per_s: per_second(slice.readable_bytes),
            data_packets: slice.data_packets,
            retransmitted_packets: slice.retransmitted_packets,
            lost_data_packets: slice.lost_data_packets,
            in_flight_packets_mean: (slice.data_packets > 0)
                .then(|| slice.in_flight_sum as f64 / f64::from(slice.data_packets)),
            in_flight_packets_max: slice.most_in_flight,
        }
    }
}

impl Slice {
    fn add(&mut self, other: &Self) {
        self.sent_wire_bytes += other.sent_wire_bytes;
        self.received_wire_bytes += other.received_wire_bytes;
        self.acked_bytes += other.acked_bytes;
        self.readable_bytes += other.readable_bytes;
        self.data_packets += other.data_packets;
        self.retransmitted_packets += other.retransmitted_packets;
        self.lost_data_packets += other.lost_data_packets;
        self.most_in_flight = self.most_in_flight.max(other.most_in_flight);
        self.in_flight_sum += other.in_flight_sum;
    }
}

impl Serialize for Slices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rates())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn acked(slices: &Slices) -> Vec<(i64, u64)> {
        let bytes = |(index, slice): (i64, &Slice)| (index, slice.acked_bytes);
        slices.iter().map(bytes).collect()
    }

    #[test]
    fn a_slice_has_its_beginning_and_not_its_end() {
        let mut slices = Slices::new(S);
        for (at_ns, bytes) in [(2 * S - 1, 1), (2 * S, 10), (3 * S - 1, 100), (5 * S, 7)] {
            slices.at(at_ns).acked_bytes += bytes;
        }
        assert_eq!(acked(&slices), [(1, 1), (2, 110), (5, 7)]);
    }

    #[test]
    fn rates_tell_of_slices_in_which_nothing_happened_as_well() {
        let mut slices = Slices::new(S / 2);
        slices.at(S).acked_bytes = 100;
        slices.at(3 * S).acked_bytes = 10;
        let rates = slices.rates();
        let rates: Vec<_> = rates
            .map(|rates| (rates.begin_s, rates.acked_goodput_bit_per_s))
            .collect();
        assert_eq!(
            rates,
            [
                (1.0, 1600.0),
                (1.5, 0.0),
                (2.0, 0.0),
                (2.5, 0.0),
                (3.0, 160.0)
            ]
        );
    }

    #[test]
    fn what_comes_before_the_first_slice_is_put_before_it() {
        let mut slices = Slices::new(S);
        for (at_ns, bytes) in [(3 * S, 3), (S, 1), (-S, 9), (S, 2)] {
            slices.at(at_ns).acked_bytes += bytes;
        }
        assert_eq!(acked(&slices), [(0, 9), (1, 3), (3, 3)]);
    }

    #[test]
    fn a_time_far_off_takes_no_memory() {
        let mut slices = Slices::new(1);
        slices.at(0).acked_bytes = 1;
        slices.at(i64::MAX - 1).acked_bytes = 2;
        assert_eq!(slices.rates().count(), 2);
    }

    #[test]
    fn slices_add_up_by_their_time() {
        let (mut one, mut other) = (Slices::new(S), Slices::new(S));
        one.at(2 * S).acked_bytes = 1;
        other.at(0).acked_bytes = 100;
        other.at(2 * S).acked_bytes = 10;
        one.add(&other);
        assert_eq!(acked(&one), [(0, 100), (2, 11)]);
    }
}
