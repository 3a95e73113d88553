use std::collections::VecDeque;

use serde::{Serialize, Serializer};

/// One direction over time, in slices of equal width that begin with the trace: slice `i` takes
/// what happened from `i` widths after its first packet on, and before `i + 1`.
#[derive(Debug, Clone)]
pub struct Slices {
    width_ns: i64,
    first: i64,
    slices: VecDeque<Slice>,
    /// What fell more than [`MOST`] slices away from the first.
    outside: u64,
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
    /// Of these, without a new byte.
    pub retransmitted_packets: u32,
    /// Of these, lost.
    pub lost_data_packets: u32,
    /// Most packets that one of these found in flight.
    pub most_in_flight: u32,
    /// Packets that these found in flight, summed up.
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
    /// Of these, without a new byte.
    pub retransmitted_packets: u32,
    /// Of these, lost on the way; 0 without a trace at the receiver.
    pub lost_data_packets: u32,
    /// Packets in flight as packets with payload found them when they were sent: the mean.
    pub in_flight_packets_mean: Option<f64>,
    /// And the most.
    pub in_flight_packets_max: u32,
}

/// A day in slices of a second.
const MOST: i64 = 86_400;

impl Slices {
    pub(super) fn new(width_ns: i64) -> Self {
        Self {
            width_ns: width_ns.max(1),
            first: 0,
            slices: VecDeque::new(),
            outside: 0,
        }
    }

    /// The slice of a time since the trace's first packet, in nanoseconds.
    #[inline]
    pub(super) fn at(&mut self, since_ns: i64) -> Option<&mut Slice> {
        self.place(since_ns.clamp(0, i64::MAX / 2) / self.width_ns)
    }

    fn place(&mut self, index: i64) -> Option<&mut Slice> {
        if self.slices.is_empty() {
            self.first = index;
        }
        let last = self.first - 1 + self.slices.len() as i64;
        if index < self.first {
            if last - index >= MOST {
                self.outside += 1;
                return None;
            }
            for _ in index..self.first {
                self.slices.push_front(Slice::default());
            }
            self.first = index;
        } else if index > last {
            if index - self.first >= MOST {
                self.outside += 1;
                return None;
            }
            let length = (index - self.first) as usize + 1;
            self.slices.resize(length, Slice::default());
        }
        self.slices.get_mut((index - self.first) as usize)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.outside += other.outside;
        for (index, slice) in (other.first..).zip(&other.slices) {
            if let Some(own) = self.place(index) {
                own.add(slice);
            }
        }
    }

    /// The width of each, in seconds.
    #[must_use]
    pub fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// Those from the first to the last in which anything happened, each with its index.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &Slice)> {
        (self.first..).zip(&self.slices)
    }

    /// The same as rates; the last slice may reach beyond the end of the trace.
    pub fn rates(&self) -> impl Iterator<Item = Rates> {
        let width_s = self.width_s();
        self.iter().map(move |(index, slice)| Rates {
            begin_s: index as f64 * width_s,
            sent_throughput_bit_per_s: slice.sent_wire_bytes as f64 * 8.0 / width_s,
            received_throughput_bit_per_s: slice.received_wire_bytes as f64 * 8.0 / width_s,
            acked_goodput_bit_per_s: slice.acked_bytes as f64 * 8.0 / width_s,
            received_goodput_bit_per_s: slice.readable_bytes as f64 * 8.0 / width_s,
            data_packets: slice.data_packets,
            retransmitted_packets: slice.retransmitted_packets,
            lost_data_packets: slice.lost_data_packets,
            in_flight_packets_mean: (slice.data_packets > 0)
                .then(|| slice.in_flight_sum as f64 / f64::from(slice.data_packets)),
            in_flight_packets_max: slice.most_in_flight,
        })
    }

    /// Packets and ACKs that fell more than 86,400 slices away from the others and are in none.
    #[must_use]
    pub fn outside(&self) -> u64 {
        self.outside
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
            slices.at(at_ns).unwrap().acked_bytes += bytes;
        }
        assert_eq!(acked(&slices), [(1, 1), (2, 110), (3, 0), (4, 0), (5, 7)]);
        let rates: Vec<Rates> = slices.rates().collect();
        assert_eq!(rates[1].begin_s, 2.0);
        assert_eq!(rates[1].acked_goodput_bit_per_s, 880.0);
    }

    #[test]
    fn what_comes_before_the_first_slice_makes_it_begin_earlier() {
        let mut slices = Slices::new(S);
        slices.at(3 * S).unwrap().acked_bytes = 3;
        slices.at(S).unwrap().acked_bytes = 1;
        slices.at(-S).unwrap().acked_bytes = 9;
        assert_eq!(acked(&slices), [(0, 9), (1, 1), (2, 0), (3, 3)]);
    }

    #[test]
    fn a_time_far_off_takes_no_memory() {
        let mut slices = Slices::new(S);
        slices.at(0).unwrap().acked_bytes = 1;
        assert_eq!(slices.at(i64::MAX), None);
        assert_eq!((acked(&slices), slices.outside()), (vec![(0, 1)], 1));
    }

    #[test]
    fn slices_add_up_by_their_time() {
        let (mut one, mut other) = (Slices::new(S), Slices::new(S));
        one.at(2 * S).unwrap().acked_bytes = 1;
        other.at(2 * S).unwrap().acked_bytes = 10;
        other.at(0).unwrap().acked_bytes = 100;
        one.add(&other);
        assert_eq!(acked(&one), [(0, 100), (1, 0), (2, 11)]);
    }
}
