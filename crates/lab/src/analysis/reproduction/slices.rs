//! Rates and drops of a group over time, in slices of equal width.

use std::collections::BTreeMap;
use std::ops::Range;

use pillion_stats::measure::quantile;
use pillion_trace::measure::{Measures, Rates};

use super::{Digest, GroupDigest, Message};
use crate::measure_ref::{DROPPED_IN_STEP, Kind, MeasureRef, SliceStatistic};

// Rates of a group over time, in slices of equal width.

/// The width of a slice, as `analyse` has it.
pub(super) const WIDTH_NS: i64 = 1_000_000_000;

/// IP's and Ethernet's headers, and UDP's, in bytes.
const HEADERS: u64 = 20 + 14;
const UDP_HEADER: u64 = 8;
/// What an IP packet has room for, on a link with an MTU of 1500 B.
const ROOM: u64 = 1480;

/// Of the directions of streams together, each slice that lies within the time of sending, which is in
/// seconds since the first packet; also those in which nothing happened.
pub(super) fn of_traces(main: &Measures, sending: &Range<f64>) -> BTreeMap<String, Vec<f64>> {
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
    let places = within(sending, width_s);
    if main.slices.iter().next().is_none() || places.is_empty() {
        return BTreeMap::new();
    }
    let placed_rates = main.slices.rates().map(|it| {
        let place = (it.begin_s / width_s).round() as usize;
        (place, it)
    });
    let rates: Vec<(usize, Rates)> = placed_rates.collect();
    let measures = at_sender.into_iter().chain(at_receiver);
    let all = measures.map(|(name, of)| {
        let values = rates.iter().map(|(place, it)| (*place, of(it)));
        (name.to_owned(), placed(values, &places))
    });
    all.collect()
}

/// The value at each of these places; 0 where there is none.
fn placed(values: impl Iterator<Item = (usize, f64)>, places: &Range<usize>) -> Vec<f64> {
    let mut all = vec![0.0; places.len()];
    for (place, value) in values.filter(|(place, _)| places.contains(place)) {
        all[place - places.start] = value;
    }
    all
}

/// The slices that lie within a time in seconds.
pub(super) fn within(time: &Range<f64>, width_s: f64) -> Range<usize> {
    let first = (time.start / width_s).ceil();
    let end = ((time.end + 1e-9) / width_s).floor();
    first as usize..end as usize
}

/// What has come of a group's datagrams, slice by slice since its streams began.
#[derive(Debug)]
pub struct Datagrams {
    began_ns: i64,
    /// Of each slice: bytes on the wire, and of payload.
    slices: Vec<[u64; 2]>,
}

impl Datagrams {
    /// For streams that were to send from this moment on, in nanoseconds since 1970, for so many
    /// seconds.
    #[must_use]
    pub fn new(began_ns: i64, duration_s: f64) -> Self {
        Self {
            began_ns,
            slices: vec![[0; 2]; duration_s as usize],
        }
    }

    /// Enters a datagram that came.
    pub fn add(&mut self, message: &Message) {
        let came_ns = message.written_ns + (message.latency_us * 1e3) as i64;
        let slice = (came_ns - self.began_ns).max(0) / WIDTH_NS;
        let payload = u64::from(message.size);
        let packets = (payload + UDP_HEADER).div_ceil(ROOM);
        if let Some([wire, read]) = self.slices.get_mut(slice as usize) {
            *wire += payload + UDP_HEADER + packets * HEADERS;
            *read += payload;
        }
    }
}

impl Digest {
    /// Adds the rates of groups of datagrams, by their names: traces tell of TCP alone.
    pub fn add_datagrams(&mut self, groups: BTreeMap<String, Datagrams>) {
        for (name, datagrams) in groups {
            let group = self.groups.entry(name).or_default();
            for (place, name) in [
                "received_throughput_bit_per_s",
                "received_goodput_bit_per_s",
            ]
            .into_iter()
            .enumerate()
            {
                let slices = datagrams.slices.iter();
                let rates: Vec<f64> = slices.map(|slice| slice[place] as f64 * 8.0).collect();
                let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
                group.values.insert(name.to_owned(), mean);
                group.slices.insert(name.to_owned(), rates);
            }
        }
    }
}

impl GroupDigest {
    /// A rate in each slice of a second, in the order of time.
    pub(super) fn of_slices(&self, measure: &MeasureRef) -> Option<&[f64]> {
        match &measure.kind {
            Kind::Slices(name, 1, None) => self.slices.get(name).map(Vec::as_slice),
            _ => None,
        }
    }
}

/// A statistic of slices of so many seconds, each the mean of its whole seconds.
pub(super) fn value(slices: &[f64], seconds: usize, asked: SliceStatistic) -> Option<f64> {
    let means = slices.chunks_exact(seconds);
    let means = means.map(|it| it.iter().sum::<f64>() / it.len() as f64);
    let mut means: Vec<f64> = means.collect();
    if means.is_empty() {
        return None;
    }
    match asked {
        SliceStatistic::Off(rate) => {
            let off = means.iter().map(|it| (it / rate - 1.0).abs());
            Some(off.sum::<f64>() / means.len() as f64)
        }
        SliceStatistic::Percentile(share) => {
            means.sort_by(f64::total_cmp);
            quantile(&means, share)
        }
    }
}

// How the drops of periodic streams lie within the time from one message to the next (thesis,
// section 4.3.4).

/// The parts of an inter-transmission time in which drops are counted, and how many are a quarter.
const PARTS: usize = 20;
const QUARTER: usize = PARTS / 4;

/// Of fewer drops, chance alone puts far more than a quarter into those parts in which most are.
const FEWEST: usize = 200;

/// Of drops at these times, the share that fell into the quarter of the inter-transmission time, of
/// twenty parts the five, in which most did: about 0.25 where they lie evenly, and 1 where the same
/// places in time are hit again and again. Both in nanoseconds, by one clock; none of so few drops
/// that chance would decide.
fn busiest_quarter(times_ns: &[u64], itt_ns: u64) -> Option<f64> {
    if times_ns.len() < FEWEST || itt_ns == 0 {
        return None;
    }
    let mut counts = [0_usize; PARTS];
    for time in times_ns {
        let part = (time % itt_ns) as f64 / itt_ns as f64 * PARTS as f64;
        counts[(part as usize).min(PARTS - 1)] += 1;
    }
    counts.sort_unstable();
    let most: usize = counts[PARTS - QUARTER..].iter().sum();
    Some(most as f64 / times_ns.len() as f64)
}

impl Digest {
    /// Adds how the queue's drops of a group's packets, at these times, lie within the group's mean
    /// inter-transmission time; both in nanoseconds.
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
    fn slices_are_those_that_lie_whole_within_the_time_of_sending() {
        assert_eq!(within(&(0.3..3.0), 1.0), 1..3);
        assert_eq!(within(&(-0.1..2.999), 1.0), 0..2);
        assert!(within(&(0.3..0.9), 1.0).is_empty());
    }

    #[test]
    fn slices_of_several_seconds_are_means_of_whole_ones() {
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
    fn a_slice_in_which_nothing_happened_counts_at_either_end_as_well() {
        let happened = [(0, 9.0), (3, 5.0), (4, 7.0), (6, 9.0)];
        assert_eq!(placed(happened.into_iter(), &(2..6)), [0.0, 5.0, 7.0, 0.0]);
    }

    #[test]
    fn datagrams_count_in_the_second_in_which_they_came_with_all_headers() {
        let mut datagrams = Datagrams::new(5_000_000_000, 2.5);
        for (written_ns, latency_us, size) in [
            (5_000_000_000, 0.0, 1472),
            // Too late for the first second, and in two packets.
            (5_999_999_000, 2.0, 1473),
            // In no whole second.
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
        let mut digest = Digest::default();
        digest.add_datagrams(BTreeMap::from([("udp".to_owned(), datagrams)]));
        let group = &digest.groups["udp"];
        let slices = group.of_slices(&"received_throughput_bit_per_s of slices".parse().unwrap());
        let second = 8.0 * (1473.0 + 8.0 + 68.0);
        assert_eq!(slices, Some(&[1514.0 * 8.0, second][..]));
        let value = |measure: &str| group.named(measure).unwrap();
        let mean = value("received_goodput_bit_per_s");
        assert_eq!(mean, (1472.0 + 1473.0) * 8.0 / 2.0);
        assert_eq!(
            value("received_throughput_bit_per_s of slices p100"),
            second
        );
        let off = value("received_throughput_bit_per_s of slices off 12112");
        assert!((off - (second / 12112.0 - 1.0) / 2.0).abs() < 1e-9, "{off}");
    }

    const ITT_NS: u64 = 100_000_000;

    #[test]
    fn drops_in_step_are_told_from_those_that_lie_evenly() {
        // 100 of each interval's 20 parts in turn, and all at one place of each.
        let evenly: Vec<u64> = (0..2000).map(|it| it * (ITT_NS + ITT_NS / 20)).collect();
        let share = busiest_quarter(&evenly, ITT_NS).unwrap();
        assert!((share - 0.25).abs() < 0.01, "{share}");
        let in_step: Vec<u64> = (0..2000).map(|it| 7 + it * ITT_NS).collect();
        assert_eq!(busiest_quarter(&in_step, ITT_NS), Some(1.0));
    }

    #[test]
    fn of_few_drops_nothing_is_said() {
        let mut digest = Digest::default();
        digest.add_drops("thin", &[0; FEWEST - 1], ITT_NS);
        digest.add_drops("thick", &[0; FEWEST], 0);
        assert_eq!(digest, Digest::default());
        digest.add_drops("thin", &[0; FEWEST], ITT_NS);
        assert_eq!(digest.groups["thin"].named(DROPPED_IN_STEP), Some(1.0));
    }
}
