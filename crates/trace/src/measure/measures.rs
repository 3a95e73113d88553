use pillion_stats::measure::{Distribution, Percentile};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::batch::{Acknowledgement, Departure, End, Extent, Total, Transit};
use super::delay::Delay;
use super::latency::{Blocking, Completion, Latency};
use super::packets::{Loss, Spacing, Volume, nth_place};
use super::slices::Slices;
use crate::event::PathDirection;
use crate::link::hull::Hull;
use crate::pair::Clock;
use crate::{Arrived, Class};

/// All that is measured of one direction, of one connection or of several together.
#[derive(Debug, Clone)]
pub struct Measures {
    /// What was sent.
    pub sent: Volume,
    /// What of it was lost; only with a trace at the receiver that shows it.
    pub loss: Option<Box<Loss>>,
    /// Times at the sender.
    pub latency: Latency,
    /// Times of whole connections.
    pub completion: Completion,
    /// Times from the sender to the receiver; empty without a trace there.
    pub delay: Delay,
    /// Packets one after the other.
    pub spacing: Spacing,
    /// What waited for missing bytes; empty without a trace at the receiver.
    pub head_of_line: Blocking,
    /// Everything over time.
    pub slices: Slices,
    /// The size of all packets that arrived, with all headers; of those sent where no trace at the
    /// receiver shows it.
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

    /// Whether a packet with payload is known to have arrived; or was sent, where no trace at the
    /// receiver shows what arrived.
    pub(super) fn brought_data(&self) -> bool {
        match &self.loss {
            Some(loss) => loss.data_packets > loss.passage.lost_data_packets,
            None => self.sent.counts.data_packets > 0 || self.spacing.has_arrived(),
        }
    }

    #[inline]
    pub(super) fn sent(&mut self, sent: &Departure, since_ns: i64) {
        let slice = self.slices.at(since_ns);
        slice.sent_wire_bytes += u64::from(sent.wire_bytes);
        if !sent.class.carries_data() {
            return;
        }
        slice.data_packets += 1;
        slice.in_flight_sum += u64::from(sent.in_flight);
        slice.most_in_flight = slice.most_in_flight.max(sent.in_flight);
        let again = matches!(sent.class, Class::Retransmission { .. });
        slice.retransmitted_packets += u32::from(again);
        self.spacing.sent(sent);
        self.completion.sent(sent);
        if let Class::Retransmission { nth } = sent.class
            && let Some(place) = nth_place(nth)
        {
            self.sent.nth_retransmissions[place] += 1;
        }
    }

    #[inline]
    pub(super) fn acked(&mut self, acked: &Acknowledgement, since_ns: i64) {
        if acked.bytes > 0 {
            self.slices.at(since_ns).acked_bytes += acked.bytes;
            self.completion.acked(since_ns);
        }
        self.latency.acked(acked);
    }

    #[inline]
    pub(super) fn arrived(&mut self, arrived: &Arrived, since_ns: i64) {
        let wire_bytes = u64::from(arrived.wire_bytes);
        self.carried_wire_bytes += wire_bytes;
        self.slices.at(since_ns).received_wire_bytes += wire_bytes;
        if arrived.payload_bytes > 0 {
            self.spacing.arrived(arrived);
        }
    }

    /// Enters what became of a packet with payload.
    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit, sent_since_ns: i64) {
        self.loss.get_or_insert_default().fate(fate);
        self.delay.fate(fate);
        self.completion.fate(fate);
        if fate.outcome == End::Lost {
            self.slices.at(sent_since_ns).lost_data_packets += 1;
        }
    }

    /// `readable_since_ns`: when its receiver could read it, if it could.
    #[inline]
    pub(super) fn range(&mut self, range: &Extent, readable_since_ns: i64) {
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

    /// Takes over what the connection counted itself.
    pub(super) fn finished(&mut self, total: &Total) {
        self.completion.finished(total);
        self.sent.counts = total.counts;
        self.sent.duplicate_acks_received = total.duplicate_acks_received;
        match total.passage {
            Some(passage) => self.loss.get_or_insert_default().passage = passage,
            None => {
                self.loss = None;
                // One that only the receiver's trace shows is told by what arrived.
                self.carried_wire_bytes = self.carried_wire_bytes.max(total.counts.wire_bytes);
            }
        }
    }

    pub(super) fn compare(&mut self, way: PathDirection, clock: &Clock, lowest: &Hull) {
        self.delay.compare(way, clock, lowest);
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

    pub(super) fn settle(&mut self) {
        self.sent.settle();
        if let Some(loss) = &mut self.loss {
            loss.settle();
        }
        self.latency.settle();
        self.completion.settle();
        self.delay.settle();
        self.spacing.settle();
        self.head_of_line.settle();
    }
}

/// For `serialize_with`: a summary of times, in milliseconds.
pub(super) fn milliseconds<S: Serializer>(
    distribution: &Distribution,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Summary(distribution, 1e6).serialize(serializer)
}

/// A distribution in short, with how much of its values' unit one of the output's is.
pub(super) struct Summary<'a>(pub(super) &'a Distribution, pub(super) f64);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(distribution, unit) = *self;
        let whole = |value: Option<u64>| value.map(|value| value as f64 / unit);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &distribution.len())?;
        map.serialize_entry("exact", &distribution.is_exact())?;
        map.serialize_entry("sample", &distribution.sample())?;
        map.serialize_entry("min", &whole(distribution.min()))?;
        map.serialize_entry("mean", &distribution.mean().map(|mean| mean / unit))?;
        map.serialize_entry("sd", &distribution.sd().map(|sd| sd / unit))?;
        for percentile in Percentile::ALL {
            let value = distribution.quantile(percentile.share);
            map.serialize_entry(percentile.name, &whole(value))?;
        }
        map.serialize_entry("max", &whole(distribution.max()))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use crate::measure::Distribution;

    use super::*;

    #[test]
    fn a_direction_without_data_takes_less_than_a_kilobyte() {
        assert_eq!(size_of::<Distribution>(), size_of::<usize>());
        assert!(size_of::<Measures>() < 1024, "{}", size_of::<Measures>());
    }
}
