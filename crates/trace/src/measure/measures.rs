use super::batch::{
    AckSample, DirectionTotals, RangeSample, SentSample, TransitResult, TransitSample,
};
use super::delay::Delay;
use super::latency::{Blocking, Completion, Latency};
use super::packets::{Loss, Spacing, Volume, nth_index};
use super::slices::Slices;
use crate::event::PathDirection;
use crate::link::hull::Hull;
use crate::pair::Clock;
use crate::{ArrivedPacket, Class};

/// All measures of one direction, of one connection or a group.
#[derive(Debug, Clone)]
pub struct Measures {
    /// Packets and bytes sent.
    pub sent: Volume,
    /// Losses; only if a receiver's trace shows the connection.
    pub loss: Option<Box<Loss>>,
    /// Times at the sender.
    pub latency: Latency,
    /// Times of whole connections.
    pub completion: Completion,
    /// Times from sender to receiver; empty without a receiver's trace.
    pub delay: Delay,
    /// Spacing and sizes of packets.
    pub spacing: Spacing,
    /// Head-of-line blocking; empty without a receiver's trace.
    pub head_of_line: Blocking,
    /// Values per time slice.
    pub slices: Slices,
    /// Wire size of all arrived packets, headers included; of sent packets if no receiver's trace
    /// shows the connection.
    pub(super) carried_wire_bytes: u64,
}

impl Measures {
    pub(super) fn new(slice_ns: i64, one_clock: bool) -> Self {
        Self {
            sent: Volume::default(),
            loss: None,
            latency: Latency::default(),
            completion: Completion::default(),
            delay: Delay::new(one_clock),
            spacing: Spacing::default(),
            head_of_line: Blocking::default(),
            slices: Slices::new(slice_ns),
            carried_wire_bytes: 0,
        }
    }

    /// Whether a packet with payload is known to have arrived; without a receiver's trace, whether
    /// one was sent.
    pub(super) fn delivered_data(&self) -> bool {
        match &self.loss {
            Some(loss) => loss.data_packets > loss.delivery_stats.lost_data_packets,
            None => self.sent.counts.data_packets > 0 || self.spacing.has_arrived(),
        }
    }

    #[inline]
    pub(super) fn sent(&mut self, sent: &SentSample, since_ns: i64) {
        let slice = self.slices.at(since_ns);
        slice.sent_wire_bytes += u64::from(sent.wire_bytes);
        if !sent.class.carries_data() {
            return;
        }
        slice.data_packets += 1;
        slice.in_flight_sum += u64::from(sent.in_flight);
        slice.max_in_flight = slice.max_in_flight.max(sent.in_flight);
        let again = matches!(sent.class, Class::Retransmission { .. });
        slice.retransmitted_packets += u32::from(again);
        self.spacing.sent(sent);
        self.completion.sent(sent);
        if let Class::Retransmission { nth } = sent.class
            && let Some(index) = nth_index(nth)
        {
            self.sent.nth_retransmissions[index] += 1;
        }
    }

    #[inline]
    pub(super) fn acked(&mut self, acked: &AckSample, since_ns: i64) {
        if acked.bytes > 0 {
            self.slices.at(since_ns).acked_bytes += acked.bytes;
            self.completion.acked(since_ns);
        }
        self.latency.acked(acked);
    }

    #[inline]
    pub(super) fn arrived(&mut self, arrived: &ArrivedPacket, since_ns: i64) {
        let wire_bytes = u64::from(arrived.wire_bytes);
        self.carried_wire_bytes += wire_bytes;
        self.slices.at(since_ns).received_wire_bytes += wire_bytes;
        if arrived.payload_bytes > 0 {
            self.spacing.arrived(arrived);
        }
    }

    /// Adds the disposition of a packet with payload.
    #[inline]
    pub(super) fn disposition(&mut self, disposition: &TransitSample, sent_since_ns: i64) {
        self.loss.get_or_insert_default().disposition(disposition);
        self.delay.disposition(disposition);
        self.completion.disposition(disposition);
        if disposition.outcome == TransitResult::Lost {
            self.slices.at(sent_since_ns).lost_data_packets += 1;
        }
    }

    /// `readable_since_ns`: when its receiver could read it, if known.
    #[inline]
    pub(super) fn range(&mut self, range: &RangeSample, readable_since_ns: i64) {
        self.latency.range(range);
        self.delay.range(range);
        let Some(delivery) = range.delivery else {
            return;
        };
        self.loss.get_or_insert_default().range(range);
        self.head_of_line.range(range);
        if delivery.in_order_ns().is_some() {
            self.slices.at(readable_since_ns).readable_bytes += range.len;
        }
    }

    /// Adds the connection's own counters.
    pub(super) fn finished(&mut self, total: &DirectionTotals) {
        self.completion.finished(total);
        self.sent.counts = total.counts;
        self.sent.duplicate_acks_received = total.duplicate_acks_received;
        match total.delivery_stats {
            Some(delivery_stats) => {
                self.loss.get_or_insert_default().delivery_stats = delivery_stats;
            }
            None => {
                self.loss = None;
                // If only the receiver's trace shows the connection, its arrivals count.
                self.carried_wire_bytes = self.carried_wire_bytes.max(total.counts.wire_bytes);
            }
        }
    }

    pub(super) fn apply_clock(&mut self, way: PathDirection, clock: &Clock, lowest: &Hull) {
        self.delay.apply_clock(way, clock, lowest);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent.add(&other.sent);
        if let Some(loss) = &other.loss {
            self.loss.get_or_insert_default().add(loss);
        }
        self.latency.add(&other.latency);
        self.completion.add(&other.completion);
        self.delay.add(&other.delay);
        self.spacing.add(&other.spacing);
        self.head_of_line.add(&other.head_of_line);
        self.slices.add(&other.slices);
        self.carried_wire_bytes += other.carried_wire_bytes;
    }

    pub(super) fn finalize(&mut self) {
        self.sent.finalize();
        if let Some(loss) = &mut self.loss {
            loss.finalize();
        }
        self.latency.finalize();
        self.completion.finalize();
        self.delay.finalize();
        self.spacing.finalize();
        self.head_of_line.finalize();
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::Distribution;

    use super::*;

    #[test]
    fn empty_measures_take_less_than_a_kilobyte() {
        assert_eq!(size_of::<Distribution>(), size_of::<usize>());
        assert!(size_of::<Measures>() < 1024, "{}", size_of::<Measures>());
    }
}
