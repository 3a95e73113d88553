//! Rates and drops of a group over time, in slices of equal width.

use std::collections::BTreeMap;
use std::ops::Range;

use pillion_stats::measure::quantile;
use pillion_trace::measure::{Measures, Rates};

use super::{GroupMeasures, Message, RunMeasures};
use crate::measure_ref::{DROPPED_IN_STEP, Kind, MeasureRef, SliceStatistic};

// Rates of a group over time, in slices of equal width.

/// The width of a slice, the default of `analyse`.
pub(super) const WIDTH_NS: i64 = 1_000_000_000;

/// Headers of IP and Ethernet, and of UDP, in bytes.
const HEADERS: u64 = 20 + 14;
const UDP_HEADER: u64 = 8;
/// The maximum payload of an IP packet, on a link with an MTU of 1500 B.
const MAX_IP_PAYLOAD: u64 = 1480;

/// Returns the rates of combined directions in each slice within the sending time, including empty
/// ones. `sending` is in seconds since the first packet.
pub(super) fn from_traces(main: &Measures, sending: &Range<f64>) -> BTreeMap<String, Vec<f64>> {
    type Rate = (&'static str, fn(&Rates) -> f64);
    let at_sender: [Rate; 2] = [
        ("sent_throughput_bit_per_s", |it| {
            it.sent_throughput_bit_per_s
        }),
        ("acked_goodput_bit_per_s", |it| it.acked_goodput_bit_per_s),
    ];
    let at_receiver: [Rate; 2] = [
        ("received_throughput_bit_per_s", |it| {
            it.received_throughput_bit_per_s
        }),
        ("received_goodput_bit_per_s", |it| {
            it.received_goodput_bit_per_s
        }),
    ];
    let at_receiver = at_receiver.into_iter().filter(|_| main.loss.is_some());
    let width_s = main.slices.width_s();
    let indices = complete_slices(sending, width_s);
    if main.slices.iter().next().is_none() || indices.is_empty() {
        return BTreeMap::new();
    }
    let indexed_rates = main.slices.rates().map(|it| {
        let index = (it.start_s / width_s).round() as usize;
        (index, it)
    });
    let rates: Vec<(usize, Rates)> = indexed_rates.collect();
    let measures = at_sender.into_iter().chain(at_receiver);
    let all = measures.map(|(name, of)| {
        let values = rates.iter().map(|(index, it)| (*index, of(it)));
        (name.to_owned(), with_gaps(values, &indices))
    });
    all.collect()
}

/// Returns the value at each index; 0 for a missing one.
fn with_gaps(values: impl Iterator<Item = (usize, f64)>, indices: &Range<usize>) -> Vec<f64> {
    let mut all = vec![0.0; indices.len()];
    for (index, value) in values.filter(|(index, _)| indices.contains(index)) {
        all[index - indices.start] = value;
    }
    all
}

/// Returns the indices of the slices completely within a time in seconds.
pub(super) fn complete_slices(time: &Range<f64>, width_s: f64) -> Range<usize> {
    let first = (time.start / width_s).ceil();
    let end = ((time.end + 1e-9) / width_s).floor();
    first as usize..end as usize
}

/// The received datagrams of a group, by slices since the start of its streams.
#[derive(Debug)]
pub struct Datagrams {
    started_ns: i64,
    /// Bytes on the wire and payload bytes of each slice.
    slices: Vec<[u64; 2]>,
}

impl Datagrams {
    /// Creates empty slices. Streams send from `started_ns`, in nanoseconds since 1970, for
    /// `duration_s` seconds.
    #[must_use]
    pub fn new(started_ns: i64, duration_s: f64) -> Self {
        Self {
            started_ns,
            slices: vec![[0; 2]; duration_s as usize],
        }
    }

    /// Adds a received datagram.
    pub fn add(&mut self, message: &Message) {
        let received_ns = message.written_ns + (message.latency_us * 1e3) as i64;
        let slice = (received_ns - self.started_ns).max(0) / WIDTH_NS;
        let payload = u64::from(message.size);
        let packets = (payload + UDP_HEADER).div_ceil(MAX_IP_PAYLOAD);
        if let Some([wire, read]) = self.slices.get_mut(slice as usize) {
            *wire += payload + UDP_HEADER + packets * HEADERS;
            *read += payload;
        }
    }
}

impl RunMeasures {
    /// Adds the rates of datagram groups, by group name, because traces only have TCP.
    pub fn add_datagrams(&mut self, groups: BTreeMap<String, Datagrams>) {
        for (name, datagrams) in groups {
            let group = self.groups.entry(name).or_default();
            for (index, name) in [
                "received_throughput_bit_per_s",
                "received_goodput_bit_per_s",
            ]
            .into_iter()
            .enumerate()
            {
                let slices = datagrams.slices.iter();
                let rates: Vec<f64> = slices.map(|slice| slice[index] as f64 * 8.0).collect();
                let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
                group.values.insert(name.to_owned(), mean);
                group.slices.insert(name.to_owned(), rates);
            }
        }
    }
}

impl GroupMeasures {
    /// Returns a rate for each second, in order of time.
    pub(super) fn per_slice(&self, measure: &MeasureRef) -> Option<&[f64]> {
        match &measure.kind {
            Kind::Slices(name, 1, None) => self.slices.get(name).map(Vec::as_slice),
            _ => None,
        }
    }
}

/// Returns a statistic of slices of `seconds` seconds. Each slice is the mean of its complete
/// seconds.
pub(super) fn value(slices: &[f64], seconds: usize, statistic: SliceStatistic) -> Option<f64> {
    let means = slices.chunks_exact(seconds);
    let means = means.map(|it| it.iter().sum::<f64>() / it.len() as f64);
    let mut means: Vec<f64> = means.collect();
    if means.is_empty() {
        return None;
    }
    match statistic {
        SliceStatistic::Off(rate) => {
            let distance = means.iter().map(|it| (it / rate - 1.0).abs());
            Some(distance.sum::<f64>() / means.len() as f64)
        }
        SliceStatistic::Percentile(share) => {
            means.sort_by(f64::total_cmp);
            quantile(&means, share)
        }
    }
}

// The position of periodic streams' drops within the time between two messages (thesis, section
// 4.3.4).

/// Bins per inter-transmission time, and bins per quarter of it.
const BINS: usize = 20;
const QUARTER_BINS: usize = BINS / 4;

/// With fewer drops, the fullest bins have far more than a quarter by chance.
const MIN_DROPS: usize = 200;

/// Returns the share of drops in the fullest quarter of the inter-transmission time: the five
/// fullest of twenty bins. It is about 0.25 for evenly spread drops, and 1 if the same positions
/// are hit repeatedly. All times are in nanoseconds by one clock. `None` if there are too few
/// drops.
fn busiest_quarter(times_ns: &[u64], itt_ns: u64) -> Option<f64> {
    if times_ns.len() < MIN_DROPS || itt_ns == 0 {
        return None;
    }
    let mut counts = [0_usize; BINS];
    for time in times_ns {
        let bin = (time % itt_ns) as f64 / itt_ns as f64 * BINS as f64;
        counts[(bin as usize).min(BINS - 1)] += 1;
    }
    counts.sort_unstable();
    let fullest: usize = counts[BINS - QUARTER_BINS..].iter().sum();
    Some(fullest as f64 / times_ns.len() as f64)
}

impl RunMeasures {
    /// Adds the share of drops in the fullest quarter of the group's mean inter-transmission time.
    /// Both arguments are in nanoseconds.
    pub fn add_drops(&mut self, group: &str, times_ns: &[u64], itt_ns: u64) {
        if let Some(share) = busiest_quarter(times_ns, itt_ns) {
            let group = self.groups.entry(group.to_owned()).or_default();
            group.values.insert(DROPPED_IN_STEP.to_owned(), share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_slices_completely_within_sending_time_count() {
        assert_eq!(complete_slices(&(0.3..3.0), 1.0), 1..3);
        assert_eq!(complete_slices(&(-0.1..2.999), 1.0), 0..2);
        assert!(complete_slices(&(0.3..0.9), 1.0).is_empty());
    }

    #[test]
    fn long_slices_are_means_of_complete_seconds() {
        let rates = [1.0, 3.0, 5.0, 7.0, 100.0];
        let percentile = |seconds, share| value(&rates, seconds, SliceStatistic::Percentile(share));
        assert_eq!(percentile(2, 0.0), Some(2.0));
        assert_eq!(
            percentile(2, 1.0),
            Some(6.0),
            "the fifth second has no other"
        );
        assert_eq!(value(&rates, 2, SliceStatistic::Off(4.0)), Some(0.5));
        assert_eq!(percentile(6, 0.5), None);
    }

    #[test]
    fn empty_slices_at_both_ends_count_as_zero() {
        let happened = [(0, 9.0), (3, 5.0), (4, 7.0), (6, 9.0)];
        assert_eq!(
            with_gaps(happened.into_iter(), &(2..6)),
            [0.0, 5.0, 7.0, 0.0]
        );
    }

    #[test]
    fn datagrams_count_with_headers_in_second_of_arrival() {
        let mut datagrams = Datagrams::new(5_000_000_000, 2.5);
        for (written_ns, latency_us, size) in [
            (5_000_000_000, 0.0, 1472),
            // Too late for the first second, and in two packets.
            (5_999_999_000, 2.0, 1473),
            // Not within a complete second.
            (7_100_000_000, 0.0, 1472),
        ] {
            datagrams.add(&Message {
                stream: 0,
                sender: ([127, 0, 0, 1], 20000).into(),
                sequence: 0,
                size,
                written_ns,
                latency_us,
            });
        }
        let mut measures = RunMeasures::default();
        measures.add_datagrams(BTreeMap::from([("udp".to_owned(), datagrams)]));
        let group = &measures.groups["udp"];
        let slices = group.per_slice(&"received_throughput_bit_per_s of slices".parse().unwrap());
        let second = 8.0 * (1473.0 + 8.0 + 68.0);
        assert_eq!(slices, Some(&[1514.0 * 8.0, second][..]));
        let value = |measure: &str| group.named(measure).unwrap();
        let mean = value("received_goodput_bit_per_s");
        assert_eq!(mean, (1472.0 + 1473.0) * 8.0 / 2.0);
        assert_eq!(
            value("received_throughput_bit_per_s of slices p100"),
            second
        );
        let distance = value("received_throughput_bit_per_s of slices off 12112");
        assert!(
            (distance - (second / 12112.0 - 1.0) / 2.0).abs() < 1e-9,
            "{distance}"
        );
    }

    const ITT_NS: u64 = 100_000_000;

    #[test]
    fn busiest_quarter_distinguishes_synchronised_drops() {
        // 100 drops in each of an interval's 20 bins in turn, then all at one position.
        let evenly: Vec<u64> = (0..2000).map(|it| it * (ITT_NS + ITT_NS / 20)).collect();
        let share = busiest_quarter(&evenly, ITT_NS).unwrap();
        assert!((share - 0.25).abs() < 0.01, "{share}");
        let in_step: Vec<u64> = (0..2000).map(|it| 7 + it * ITT_NS).collect();
        assert_eq!(busiest_quarter(&in_step, ITT_NS), Some(1.0));
    }

    #[test]
    fn too_few_drops_give_no_value() {
        let mut measures = RunMeasures::default();
        measures.add_drops("thin", &[0; MIN_DROPS - 1], ITT_NS);
        measures.add_drops("thick", &[0; MIN_DROPS], 0);
        assert_eq!(measures, RunMeasures::default());
        measures.add_drops("thin", &[0; MIN_DROPS], ITT_NS);
        assert_eq!(measures.groups["thin"].named(DROPPED_IN_STEP), Some(1.0));
    }
}
