//! Rates and drops of a group over time, in slices of equal width.

use std::collections::BTreeMap;
use std::ops::Range;

use pillion_stats::measure::quantile;
use pillion_trace::measure::{Measures, Rates};

use crate::measure_ref::SliceStatistic;

// Rates of a group over time, in slices of equal width.

/// The width of a slice, the default of `analyse`.
pub(super) const WIDTH_NS: i64 = 1_000_000_000;

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
pub(super) fn busiest_quarter(times_ns: &[u64], itt_ns: u64) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::super::RunMeasures;
    use super::*;
    use crate::measure_ref::DROPPED_IN_STEP;

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
