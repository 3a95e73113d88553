//! What is kept of a run: each group's values, distributions and slices, and measures computed from them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use pillion_stats::measure::quantile;
use pillion_trace::Period;
use pillion_trace::measure::catalogue::{distributions, in_unit};
use pillion_trace::measure::{
    Group, Measures, Meter, Options, Results, Single, Slice, Together, jain_index,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::slices;
use crate::analysis::people::{typing, voice};
use crate::analysis::{OpenError, Traces};
use crate::measure_ref::{
    BODY, DELIVERY_LATENCY, DistributionStatistic, JAIN_OF_ALL, Kind, MeasureRef, PlayOut,
    SliceStatistic, Statistic, StreamStatistic, levels,
};

/// What is kept of a run's traces: all that numbers and figures are made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// Each group of streams.
    pub groups: BTreeMap<String, GroupDigest>,
    /// What casts doubt on the run; its summary keeps that already.
    #[serde(skip)]
    pub doubts: Vec<String>,
}

/// What is kept of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupDigest {
    /// Single values by name: those that `analyse --json` has of handshakes, of fairness, and of
    /// what was sent and lost, with connections dropped by the time of sending; and the means of
    /// distributions, as `ack_latency_ms mean`.
    pub values: BTreeMap<String, f64>,
    /// Distributions by name: their quantiles in steps of a thousandth, and finer at the end.
    pub distributions: BTreeMap<String, Vec<f64>>,
    /// The single values, and the medians of distributions, of each stream alone: by name, in
    /// ascending order.
    pub streams: BTreeMap<String, Vec<f64>>,
    /// Rates in slices of a second that lie within the time of sending: by name, in the order of
    /// time.
    pub slices: BTreeMap<String, Vec<f64>>,
}

impl Digest {
    /// Of a run's traces, taken by one clock, and its groups by where their streams go; its streams
    /// were to send from this time on, in nanoseconds since 1970, and for so long, in seconds.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn read(
        sender: &Path,
        receiver: &Path,
        groups: &[(String, SocketAddr)],
        began_ns: i64,
        duration_s: f64,
    ) -> Result<Self, OpenError> {
        let period = Period::default();
        let traces = Traces::open(sender, Some(receiver), Vec::new(), period, true)?;
        let groups = groups.iter().cloned();
        let ended_ns = began_ns.saturating_add((duration_s * 1e9) as i64);
        let options = Options {
            groups: groups.map(|(name, to)| Group::to(name, to)).collect(),
            test_ns: Some(began_ns..ended_ns),
            ..Options::default()
        };
        let observed = traces.observe(Meter::new(options)).whole()?;
        let results = match &observed.finding {
            Some(finding) => observed.observer.finish_pair(&finding.clock),
            None => observed.observer.finish(),
        };
        let start_s = (began_ns - results.begin_ns) as f64 / 1e9;
        Ok(Self::of(&results, start_s..start_s + duration_s))
    }

    /// Of what was measured of a run whose streams were to send in this time, in seconds since the
    /// first packet.
    #[must_use]
    pub fn of(results: &Results, sending: Range<f64>) -> Self {
        let groups = results.groups.iter().map(|group| {
            let name = group.name.clone().unwrap_or_default();
            let is_of = |stream: &&Single| group.name.is_none() || stream.groups.contains(&name);
            let streams = results.connections.iter().filter(is_of);
            let digest = GroupDigest::of(group, streams, &sending);
            (name, digest)
        });
        Self {
            groups: groups.collect(),
            doubts: Vec::new(),
        }
    }
}

impl GroupDigest {
    fn of<'a>(
        group: &Together,
        streams: impl Iterator<Item = &'a Single>,
        sending: &Range<f64>,
    ) -> Self {
        let mut values = fields(&group.handshakes);
        values.extend(fields(&group.fairness));
        values.extend(single_values(&group.main, sending));
        values.extend(means(&group.main));
        let kept = distributions().filter_map(|measure| {
            let distribution = (measure.of)(&group.main);
            let quantile = |share| Some(in_unit(distribution.quantile(share)?, measure.unit));
            let quantiles: Option<Vec<f64>> = levels().map(quantile).collect();
            Some((measure.name.to_owned(), quantiles?))
        });
        Self {
            values,
            distributions: kept.collect(),
            streams: of_each(streams, sending),
            slices: slices::of_traces(&group.main, sending),
        }
    }

    /// The value of a measure; `None` if it was not measured, or stands for several values.
    #[must_use]
    pub fn value(&self, measure: &MeasureRef) -> Option<f64> {
        match &measure.kind {
            Kind::Value(name) => self.values.get(name).copied(),
            Kind::Distribution(name, Some(DistributionStatistic::Mean)) => self.mean(name),
            Kind::Distribution(name, Some(DistributionStatistic::Of(statistic))) => {
                self.statistic(name, *statistic)
            }
            Kind::Streams(name, Some(StreamStatistic::Jain)) => {
                jain_index(self.streams.get(name)?.iter().copied())
            }
            Kind::Streams(name, Some(StreamStatistic::Of(asked))) => {
                quantile_statistic(&quantiles_of(self.streams.get(name)?)?, *asked)
            }
            Kind::Slices(name, seconds, Some(asked)) => {
                slices::value(self.slices.get(name)?, *seconds, *asked)
            }
            Kind::RedundantBytes => redundant_bytes(self),
            Kind::MessagesPerSecond => messages_per_second(self),
            Kind::VoiceRating(play_out) => voice_rating(self, *play_out),
            Kind::VoiceOpinion(play_out) => voice_opinion(self, *play_out),
            Kind::TypingStalls(back_ms) => typing_stalls(self, *back_ms),
            Kind::Distribution(_, None) | Kind::Streams(_, None) | Kind::Slices(_, _, None) => None,
        }
    }

    /// The mean of a distribution.
    pub(super) fn mean(&self, name: &str) -> Option<f64> {
        self.values.get(&format!("{name} mean")).copied()
    }

    /// A statistic of a distribution.
    pub(super) fn statistic(&self, name: &str, asked: Statistic) -> Option<f64> {
        quantile_statistic(self.distributions.get(name)?, asked)
    }

    /// The quantile at a share, of a whole distribution, of all streams or of all slices.
    pub(super) fn quantile(&self, measure: &MeasureRef, share: f64) -> Option<f64> {
        let asked = Statistic::Percentile(share);
        match &measure.kind {
            Kind::Slices(name, seconds, None) => slices::value(
                self.slices.get(name)?,
                *seconds,
                SliceStatistic::Percentile(share),
            ),
            _ => quantile_statistic(&self.quantiles(measure)?, asked),
        }
    }

    /// The value of each stream, in ascending order.
    pub(super) fn of_streams(&self, measure: &MeasureRef) -> Option<&[f64]> {
        match &measure.kind {
            Kind::Streams(name, None) => self.streams.get(name).map(Vec::as_slice),
            _ => None,
        }
    }

    /// The stored quantiles of a distribution, or those of the values of all streams.
    #[must_use]
    pub fn quantiles(&self, measure: &MeasureRef) -> Option<Cow<'_, [f64]>> {
        match &measure.kind {
            Kind::Distribution(name, None) => self.distributions.get(name).map(Cow::from),
            _ => quantiles_of(self.of_streams(measure)?).map(Cow::from),
        }
    }
}

/// The quantiles of values in ascending order at the shares that are kept.
fn quantiles_of(values: &[f64]) -> Option<Vec<f64>> {
    levels().map(|level| quantile(values, level)).collect()
}

fn means(main: &Measures) -> impl Iterator<Item = (String, f64)> {
    distributions().filter_map(|measure| {
        let mean = (measure.of)(main).mean()?;
        let unit = in_unit(1, measure.unit);
        Some((format!("{} mean", measure.name), mean * unit))
    })
}

/// The single values of directions together, and rates over the time in which they were to send.
fn single_values(main: &Measures, sending: &Range<f64>) -> BTreeMap<String, f64> {
    let mut values = fields(&main.sent);
    values.extend(fields(&main.loss));
    values.extend(rates(main, sending));
    values
}

/// The numbers among the fields of what was measured.
fn fields(of: &impl Serialize) -> BTreeMap<String, f64> {
    let Ok(Value::Object(fields)) = serde_json::to_value(of) else {
        return BTreeMap::new();
    };
    let numbers = fields.into_iter();
    numbers
        .filter_map(|(name, value)| Some((name, value.as_f64()?)))
        .collect()
}

fn of_each<'a>(
    streams: impl Iterator<Item = &'a Single>,
    sending: &Range<f64>,
) -> BTreeMap<String, Vec<f64>> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for stream in streams {
        let medians = distributions().filter_map(|measure| {
            let median = (measure.of)(&stream.main).quantile(0.5)?;
            let name = format!("{} p50", measure.name);
            Some((name, in_unit(median, measure.unit)))
        });
        let values = single_values(&stream.main, sending).into_iter();
        for (name, value) in values.chain(medians) {
            all.entry(name).or_default().push(value);
        }
    }
    for values in all.values_mut() {
        values.sort_by(f64::total_cmp);
    }
    all
}

/// Rates over the time in which streams were to send: what arrives once no more is written, as a
/// backlog does, is no part of what streams got beside others. Slices that lie within it count.
fn rates(main: &Measures, sending: &Range<f64>) -> Vec<(String, f64)> {
    let width_s = main.slices.width_s();
    let places = slices::within(sending, width_s);
    if places.is_empty() {
        return Vec::new();
    }
    let length_s = places.len() as f64 * width_s;
    let rate = |bytes: fn(&Slice) -> u64| {
        let within = main.slices.iter();
        let within = within.filter(|(place, _)| {
            usize::try_from(*place).is_ok_and(|place| places.contains(&place))
        });
        let sum: u64 = within.map(|(_, slice)| bytes(slice)).sum();
        sum as f64 * 8.0 / length_s
    };
    let sent = [
        ("sent_throughput_bit_per_s", rate(|it| it.sent_wire_bytes)),
        ("acked_goodput_bit_per_s", rate(|it| it.acked_bytes)),
    ];
    let received = main.loss.is_some().then(|| {
        [
            (
                "received_throughput_bit_per_s",
                rate(|it| it.received_wire_bytes),
            ),
            ("received_goodput_bit_per_s", rate(|it| it.readable_bytes)),
        ]
    });
    let all = sent.into_iter().chain(received.into_iter().flatten());
    all.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
impl GroupDigest {
    /// The value of the measure of this name.
    pub(super) fn named(&self, measure: &str) -> Option<f64> {
        self.value(&measure.parse().unwrap())
    }
}

// Statistics of a distribution, of which the quantiles at [`levels`] are kept.

/// A statistic of these quantiles; none of what is not kept.
pub(super) fn quantile_statistic(quantiles: &[f64], asked: Statistic) -> Option<f64> {
    match asked {
        Statistic::Percentile(share) => at(quantiles, share),
        Statistic::Above(bound) => Some(above(quantiles, bound)),
        Statistic::Between(low, high) => Some(above(quantiles, low) - above(quantiles, high)),
        Statistic::InSteps { height, above } => in_steps(quantiles, height, above),
    }
}

/// The quantile at a share; none if it is not among those that are kept.
fn at(quantiles: &[f64], share: f64) -> Option<f64> {
    let place = levels().position(|level| (level - share).abs() < 1e-9)?;
    quantiles.get(place).copied()
}

/// The share of values that are larger.
fn above(quantiles: &[f64], bound: f64) -> f64 {
    let shares: Vec<f64> = levels().collect();
    let over = quantiles.iter().position(|it| *it > bound);
    over.map_or(0.0, |place| 1.0 - shares[place.saturating_sub(1)])
}

/// How much the values above a bound are whole steps apart from each other: the mean resultant length
/// of their places within a step (Mardia and Jupp, Directional Statistics, section 2.3.1), which is 1
/// where a distribution function is a staircase with steps of this height, and about 0 where it is
/// smooth. None where no value is above the bound.
fn in_steps(quantiles: &[f64], height: f64, bound: f64) -> Option<f64> {
    // Those of the far tail stand for too few values each.
    let body = quantiles.iter().take(BODY).filter(|it| **it > bound);
    let places = body.map(|it| (it / height * TAU).sin_cos());
    let (sines, cosines): (Vec<f64>, Vec<f64>) = places.unzip();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let length = f64::hypot(mean(&sines), mean(&cosines));
    length.is_finite().then_some(length)
}

// Measures computed from others; `None` if one of these was not measured.

pub(super) fn redundant_bytes(group: &GroupDigest) -> Option<f64> {
    let kept = |name: &str| group.values.get(name).copied();
    Some(kept("data_bytes")? - kept("new_bytes")?)
}

pub(super) fn messages_per_second(group: &GroupDigest) -> Option<f64> {
    Some(1e3 / group.mean("message_gap_ms")?)
}

pub(super) fn typing_stalls(group: &GroupDigest, back_ms: f64) -> Option<f64> {
    let late = late(group, typing::bound_ms(back_ms))?;
    Some(typing::stalls_per_1000(late))
}

pub(super) fn voice_opinion(group: &GroupDigest, play_out: PlayOut) -> Option<f64> {
    Some(voice::opinion(voice_rating(group, play_out)?))
}

pub(super) fn voice_rating(group: &GroupDigest, play_out: PlayOut) -> Option<f64> {
    let at = |ms: f64| Some(voice::rating(ms, late(group, ms)?));
    match play_out {
        PlayOut::At(ms) => at(ms),
        PlayOut::Best => {
            let longest = group.distributions.get(DELIVERY_LATENCY)?.last()?.ceil();
            // Much later than that nothing is understood, whatever comes in time.
            let longest_ms = longest.clamp(1.0, 1000.0) as u32;
            let ratings = (1..=longest_ms).filter_map(|ms| at(ms.into()));
            ratings.max_by(f64::total_cmp)
        }
    }
}

/// The share of messages that take longer.
fn late(group: &GroupDigest, than_ms: f64) -> Option<f64> {
    group.statistic(DELIVERY_LATENCY, Statistic::Above(than_ms))
}

/// What is compared with what a stream is due, of each stream.
const GOODPUT: &str = "received_goodput_bit_per_s";

impl Digest {
    /// Adds to each group Jain's index over the streams of all groups, of their goodput relative to what
    /// each is due (thesis, section 2.7.2), in bit/s by group. None unless that is known of all.
    pub fn add_fairness(&mut self, due: &BTreeMap<String, f64>) {
        let relative = self.groups.iter().map(|(name, group)| {
            let due = due.get(name).filter(|due| **due > 0.0)?;
            let goodputs = group.streams.get(GOODPUT)?.iter();
            Some(goodputs.map(move |goodput| goodput / due))
        });
        let relative: Option<Vec<_>> = relative.collect();
        let index = relative.and_then(|all| jain_index(all.into_iter().flatten()));
        if let Some(index) = index {
            for group in self.groups.values_mut() {
                group.values.insert(JAIN_OF_ALL.to_owned(), index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latencies of 150 and, for the upper half, of what follows from the place among these.
    fn quantiles(late: fn(f64) -> f64) -> Vec<f64> {
        let of = |level: f64| match level < 0.5 {
            true => 150.0,
            false => late(2.0 * level - 1.0),
        };
        levels().map(of).collect()
    }

    #[test]
    fn a_staircase_is_told_from_a_slope() {
        let steps = |height, above| Statistic::InSteps { height, above };
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        assert!(quantile_statistic(&slope, steps(30.0, 155.0)).unwrap() < 0.01);
        let stairs = quantiles(|share| 170.0 + 30.0 * (10.0 * share).floor());
        let of_stairs = |asked| quantile_statistic(&stairs, asked).unwrap();
        assert!((of_stairs(steps(30.0, 155.0)) - 1.0).abs() < 1e-9);
        assert!(of_stairs(steps(40.0, 155.0)) < 0.3);
        assert_eq!(quantile_statistic(&stairs, steps(30.0, 1000.0)), None);
    }

    #[test]
    fn a_share_may_lie_between_bounds() {
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        let share = quantile_statistic(&slope, Statistic::Between(190.0, 250.0)).unwrap();
        assert!((share - 0.1).abs() < 2e-3, "{share}");
        assert_eq!(
            quantile_statistic(&slope, Statistic::Between(500.0, 600.0)),
            Some(0.0)
        );
    }
}
