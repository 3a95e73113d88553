use std::mem;
use std::ops::Range;

use serde::{Serialize, Serializer};

/// One direction over time, in slices of equal width that start with the trace's first packet.
/// Slice `i` covers the times from `i` to before `i + 1` widths.
#[derive(Debug, Clone)]
pub struct Slices {
    width_ns: i64,
    /// Slices with events, in order, each with its index.
    slices: Vec<(i64, Slice)>,
    /// The last used slice, because most events follow in the same: its times, its position, and
    /// its events, which replace those at the position.
    last: (Range<i64>, usize, Slice),
}

/// Events of one slice. Bytes are payload unless named otherwise. Values that need a receiver's
/// trace are 0 without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Slice {
    /// Wire size of sent packets, headers included.
    pub sent_wire_bytes: u64,
    /// Wire size of arrived packets, headers included.
    pub received_wire_bytes: u64,
    /// Bytes acknowledged for the first time.
    pub acked_bytes: u64,
    /// Bytes that became readable for the receiving application.
    pub readable_bytes: u64,
    /// Packets with payload sent.
    pub data_packets: u32,
    /// Packets with payload sent without a new byte.
    pub retransmitted_packets: u32,
    /// Packets with payload sent and lost on the path.
    pub lost_data_packets: u32,
    /// Maximum packets in flight when a packet with payload was sent.
    pub max_in_flight: u32,
    /// Sum of packets in flight over packets with payload.
    pub in_flight_sum: u64,
}

/// A slice as written: rates, counts and means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Start in seconds since the trace's first packet.
    pub start_s: f64,
    /// Throughput at the sender, headers included.
    pub sent_throughput_bit_per_s: f64,
    /// Throughput at the receiver, headers included; `tput` in the thesis (section 3.4.2).
    pub received_throughput_bit_per_s: f64,
    /// Goodput at the sender: new payload acknowledged; `tcp-throughput` in the thesis.
    pub acked_goodput_bit_per_s: f64,
    /// Goodput at the receiver: payload readable by its application.
    pub received_goodput_bit_per_s: f64,
    /// Packets with payload sent.
    pub data_packets: u32,
    /// Packets with payload sent without a new byte.
    pub retransmitted_packets: u32,
    /// Packets with payload sent and lost on the path; 0 without a receiver's trace.
    pub lost_data_packets: u32,
    /// Mean packets in flight when a packet with payload was sent.
    pub in_flight_packets_mean: Option<f64>,
    /// Maximum packets in flight when a packet with payload was sent.
    pub in_flight_packets_max: u32,
}

/// One day in slices of a second.
const MAX_DENSE_SLICES: i64 = 86_400;

impl Slices {
    pub(super) fn new(width_ns: i64) -> Self {
        Self {
            width_ns: width_ns.max(1),
            slices: Vec::new(),
            last: (0..0, usize::MAX, Slice::default()),
        }
    }

    /// The slice of a time since the trace's first packet, in nanoseconds.
    #[inline]
    pub(super) fn at(&mut self, since_ns: i64) -> &mut Slice {
        let since_ns = since_ns.max(0);
        if !self.last.0.contains(&since_ns) {
            self.store_last();
            let index = since_ns / self.width_ns;
            let start_ns = index * self.width_ns;
            let times = start_ns..start_ns.saturating_add(self.width_ns);
            let position = self.index_of(index);
            self.last = (times, position, self.slices[position].1);
        }
        &mut self.last.2
    }

    fn store_last(&mut self) {
        let (_, position, slice) =
            mem::replace(&mut self.last, (0..0, usize::MAX, Slice::default()));
        if let Some(last) = self.slices.get_mut(position) {
            last.1 = slice;
        }
    }

    fn index_of(&mut self, index: i64) -> usize {
        let last = self.slices.len().checked_sub(1);
        match last.map(|last| (last, self.slices[last].0)) {
            Some((last, at)) if at == index => last,
            Some((_, at)) if at > index => self.insert(index),
            _ => {
                self.slices.push((index, Slice::default()));
                self.slices.len() - 1
            }
        }
    }

    fn insert(&mut self, index: i64) -> usize {
        match self.slices.binary_search_by_key(&index, |slice| slice.0) {
            Ok(position) => position,
            Err(position) => {
                self.slices.insert(position, (index, Slice::default()));
                position
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.store_last();
        for (index, slice) in other.iter() {
            let position = self.index_of(index);
            self.slices[position].1.add(slice);
        }
    }

    /// Slice width in seconds.
    #[must_use]
    pub fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// Slices with events in order, each with its index.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Slice)> {
        let (_, last, last_slice) = &self.last;
        let slices = self.slices.iter().enumerate();
        slices.map(move |(position, (index, slice))| match position == *last {
            true => (*index, last_slice),
            false => (*index, slice),
        })
    }

    /// All slices as rates. Idle slices are included, unless there are more than 86,400 from the
    /// first to the last. The last slice may extend beyond the end of the trace.
    pub fn rates(&self) -> impl Iterator<Item = Rates> {
        let ends = self.slices.first().zip(self.slices.last());
        let whole = ends.is_some_and(|(first, last)| last.0 - first.0 < MAX_DENSE_SLICES);
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
            start_s: index as f64 * width_s,
            sent_throughput_bit_per_s: per_second(slice.sent_wire_bytes),
            received_throughput_bit_per_s: per_second(slice.received_wire_bytes),
            acked_goodput_bit_per_s: per_second(slice.acked_bytes),
            received_goodput_bit_per_s: per_second(slice.readable_bytes),
            data_packets: slice.data_packets,
            retransmitted_packets: slice.retransmitted_packets,
            lost_data_packets: slice.lost_data_packets,
            in_flight_packets_mean: (slice.data_packets > 0)
                .then(|| slice.in_flight_sum as f64 / f64::from(slice.data_packets)),
            in_flight_packets_max: slice.max_in_flight,
        }
    }
}

impl Slice {
    fn add(&mut self, other: &Self) {
        add_fields! {
            self += other:
            sent_wire_bytes, received_wire_bytes, acked_bytes, readable_bytes, data_packets,
            retransmitted_packets, lost_data_packets
        }
        self.max_in_flight = self.max_in_flight.max(other.max_in_flight);
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
    fn slice_includes_start_and_excludes_end() {
        let mut slices = Slices::new(S);
        for (at_ns, bytes) in [(2 * S - 1, 1), (2 * S, 10), (3 * S - 1, 100), (5 * S, 7)] {
            slices.at(at_ns).acked_bytes += bytes;
        }
        assert_eq!(acked(&slices), [(1, 1), (2, 110), (5, 7)]);
    }

    #[test]
    fn rates_include_idle_slices() {
        let mut slices = Slices::new(S / 2);
        slices.at(S).acked_bytes = 100;
        slices.at(3 * S).acked_bytes = 10;
        let rates = slices.rates();
        let rates: Vec<_> = rates
            .map(|rates| (rates.start_s, rates.acked_goodput_bit_per_s))
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
    fn earlier_time_inserts_slice_before_first() {
        let mut slices = Slices::new(S);
        for (at_ns, bytes) in [(3 * S, 3), (S, 1), (-S, 9), (S, 2)] {
            slices.at(at_ns).acked_bytes += bytes;
        }
        assert_eq!(acked(&slices), [(0, 9), (1, 3), (3, 3)]);
    }

    #[test]
    fn distant_time_allocates_no_idle_slices() {
        let mut slices = Slices::new(1);
        slices.at(0).acked_bytes = 1;
        slices.at(i64::MAX - 1).acked_bytes = 2;
        assert_eq!(slices.rates().count(), 2);
    }

    #[test]
    fn slices_add_by_time() {
        let (mut one, mut other) = (Slices::new(S), Slices::new(S));
        one.at(2 * S).acked_bytes = 1;
        other.at(0).acked_bytes = 100;
        other.at(2 * S).acked_bytes = 10;
        one.add(&other);
        assert_eq!(acked(&one), [(0, 100), (2, 11)]);
    }
}
