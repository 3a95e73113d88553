//! The measures of a run: values, distributions and slices of each group, and measures computed
//! from them.

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
    ConnectionResults, Group, GroupResults, Measures, Meter, MeterOptions, Results, Slice,
    jain_index,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::slices::{self, busiest_quarter};
use crate::analysis::people::{typing, voice};
use crate::analysis::{OpenError, Traces};
use crate::measure_ref::{
    DELIVERY_LATENCY, DROPPED_IN_STEP, DistributionStatistic, JAIN_OF_ALL, Kind, MeasureRef,
    PlayOut, QUANTILE_STEPS, SliceStatistic, Statistic, StreamStatistic, levels,
};
use crate::run_key::{RunKey, Selector};

/// The results of a run's traces and records, from which claims and figures are computed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunMeasures {
    /// The measures of each group of streams, by the group's name.
    pub groups: BTreeMap<String, GroupMeasures>,
    /// The run's warnings. They are not stored here, because the run's summary has them.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// The measures of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupMeasures {
    /// Single values by name: those of `analyse --json` for handshakes, fairness, sending and loss,
    /// where `dropped` refers to the sending time; also means of distributions, as `ack_latency_ms
    /// mean`.
    pub values: BTreeMap<String, f64>,
    /// Distributions by name: quantiles in steps of a thousandth, and in finer steps at the end.
    pub distributions: BTreeMap<String, Vec<f64>>,
    /// The single values, and the medians of distributions, per stream: by name, in ascending
    /// order.
    pub streams: BTreeMap<String, Vec<f64>>,
    /// Rates in slices of one second within the sending time: by name, in order of time.
    pub slices: BTreeMap<String, Vec<f64>>,
}

/// A run and its measures.
#[derive(Debug, Clone)]
pub struct MeasuredRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: RunKey,
    /// The sending time of the run's streams, in seconds.
    pub duration_s: f64,
    /// The measures of the run.
    pub measures: RunMeasures,
}

impl MeasuredRun {
    /// Whether the run's name matches both selectors.
    pub(super) fn belongs_to(&self, runs: &Selector, extra: &Selector) -> bool {
        runs.matches(&self.name) && extra.matches(&self.name)
    }

    /// Returns the group with this name. An empty name selects the only group.
    pub(super) fn group(&self, name: &str) -> Option<&GroupMeasures> {
        let groups = &self.measures.groups;
        match (name, groups.len()) {
            ("", 1) => groups.values().next(),
            (name, _) => groups.get(name),
        }
    }

    /// Returns the value of a measure of a group.
    pub(super) fn value(&self, group: &str, measure: &MeasureRef) -> Option<f64> {
        self.group(group)?.value(measure)
    }
}

impl RunMeasures {
    /// Reads a run's traces, which share one clock. `groups` has each group's name and destination.
    /// Streams send from `started_ns`, in nanoseconds since 1970, for `duration_s` seconds.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn read(
        sender: &Path,
        receiver: &Path,
        groups: &[(String, SocketAddr)],
        started_ns: i64,
        duration_s: f64,
    ) -> Result<Self, OpenError> {
        let period = Period::default();
        let [sender, receiver] = [sender, receiver].map(|file| [file.to_owned()]);
        let traces = Traces::open(&sender, &receiver, Vec::new(), period, true)?;
        let groups = groups.iter().cloned();
        let ended_ns = started_ns.saturating_add((duration_s * 1e9) as i64);
        let options = MeterOptions {
            groups: groups.map(|(name, to)| Group::to(name, to)).collect(),
            test_ns: Some(started_ns..ended_ns),
            // Each stream of a run has its own port.
            streams_by_address: true,
            ..MeterOptions::default()
        };
        let observed = traces.observe(Meter::new(options)).require_undamaged()?;
        let results = match &observed.finding {
            Some(finding) => observed.observer.finish_pair(&finding.clock),
            None => observed.observer.finish(),
        };
        let start_s = (started_ns - results.start_ns) as f64 / 1e9;
        Ok(Self::from_results(&results, start_s..start_s + duration_s))
    }

    /// Converts the results of an analysis. `sending` is the sending time, in seconds since the
    /// first packet.
    #[must_use]
    pub fn from_results(results: &Results, sending: Range<f64>) -> Self {
        let groups = results.groups.iter().map(|group| {
            let name = group.name.clone().unwrap_or_default();
            let belongs_to =
                |stream: &&ConnectionResults| group.name.is_none() || stream.groups.contains(&name);
            let streams = results.connections.iter().filter(belongs_to);
            let measures = GroupMeasures::from_results(group, streams, &sending);
            (name, measures)
        });
        Self {
            groups: groups.collect(),
            warnings: Vec::new(),
        }
    }
}

impl GroupMeasures {
    fn from_results<'a>(
        group: &GroupResults,
        streams: impl Iterator<Item = &'a ConnectionResults>,
        sending: &Range<f64>,
    ) -> Self {
        let mut values = fields(&group.handshakes);
        values.extend(fields(&group.fairness));
        values.extend(direction_values(&group.main, sending));
        values.extend(means(&group.main));
        let stored = distributions().filter_map(|measure| {
            let distribution = (measure.of)(&group.main);
            let quantile = |share| Some(in_unit(distribution.quantile(share)?, measure.unit));
            let quantiles: Option<Vec<f64>> = levels().map(quantile).collect();
            Some((measure.name.to_owned(), quantiles?))
        });
        Self {
            values,
            distributions: stored.collect(),
            streams: collect_per_stream(streams, sending),
            slices: slices::from_traces(&group.main, sending),
        }
    }

    /// Returns the value of a measure; `None` if it was not measured, or has several values.
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
            Kind::Streams(name, Some(StreamStatistic::Of(statistic))) => {
                quantile_statistic(&quantiles_of(self.streams.get(name)?)?, *statistic)
            }
            Kind::Slices(name, seconds, Some(statistic)) => {
                slices::value(self.slices.get(name)?, *seconds, *statistic)
            }
            Kind::RedundantBytes => redundant_bytes(self),
            Kind::MessagesPerSecond => messages_per_second(self),
            Kind::VoiceRating(play_out) => voice_rating(self, *play_out),
            Kind::VoiceOpinion(play_out) => voice_opinion(self, *play_out),
            Kind::TypingStalls(back_ms) => typing_stalls(self, *back_ms),
            Kind::Distribution(_, None) | Kind::Streams(_, None) | Kind::Slices(_, _, None) => None,
        }
    }

    /// Returns the mean of a distribution.
    pub(super) fn mean(&self, name: &str) -> Option<f64> {
        self.values.get(&format!("{name} mean")).copied()
    }

    /// Returns a statistic of a distribution.
    pub(super) fn statistic(&self, name: &str, statistic: Statistic) -> Option<f64> {
        quantile_statistic(self.distributions.get(name)?, statistic)
    }

    /// Returns the quantile at `share` of a distribution, of all streams or of all slices.
    pub(super) fn quantile(&self, measure: &MeasureRef, share: f64) -> Option<f64> {
        let statistic = Statistic::Percentile(share);
        match &measure.kind {
            Kind::Slices(name, seconds, None) => slices::value(
                self.slices.get(name)?,
                *seconds,
                SliceStatistic::Percentile(share),
            ),
            _ => quantile_statistic(&self.quantiles(measure)?, statistic),
        }
    }

    /// Returns one value per stream, in ascending order.
    pub(super) fn per_stream(&self, measure: &MeasureRef) -> Option<&[f64]> {
        match &measure.kind {
            Kind::Streams(name, None) => self.streams.get(name).map(Vec::as_slice),
            _ => None,
        }
    }

    /// Returns the stored quantiles of a distribution, or the quantiles of all streams' values.
    #[must_use]
    pub fn quantiles(&self, measure: &MeasureRef) -> Option<Cow<'_, [f64]>> {
        match &measure.kind {
            Kind::Distribution(name, None) => self.distributions.get(name).map(Cow::from),
            _ => quantiles_of(self.per_stream(measure)?).map(Cow::from),
        }
    }
}

/// Returns the quantiles at [`levels`] of sorted values.
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

/// Returns the single values of combined directions, and their rates over the sending time.
fn direction_values(main: &Measures, sending: &Range<f64>) -> BTreeMap<String, f64> {
    let mut values = fields(&main.sent);
    values.extend(fields(&main.loss));
    values.extend(rates(main, sending));
    values
}

/// Returns the numeric fields of a serialisable value.
fn fields(of: &impl Serialize) -> BTreeMap<String, f64> {
    let Ok(Value::Object(fields)) = serde_json::to_value(of) else {
        return BTreeMap::new();
    };
    let numbers = fields.into_iter();
    numbers
        .filter_map(|(name, value)| Some((name, value.as_f64()?)))
        .collect()
}

fn collect_per_stream<'a>(
    streams: impl Iterator<Item = &'a ConnectionResults>,
    sending: &Range<f64>,
) -> BTreeMap<String, Vec<f64>> {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for stream in streams {
        let medians = distributions().filter_map(|measure| {
            let median = (measure.of)(&stream.main).quantile(0.5)?;
            let name = format!("{} p50", measure.name);
            Some((name, in_unit(median, measure.unit)))
        });
        let values = direction_values(&stream.main, sending).into_iter();
        for (name, value) in values.chain(medians) {
            all.entry(name).or_default().push(value);
        }
    }
    for values in all.values_mut() {
        values.sort_by(f64::total_cmp);
    }
    all
}

/// Returns rates over the slices within the sending time. Data that arrives later, such as a
/// backlog, does not count as throughput in competition with other streams.
fn rates(main: &Measures, sending: &Range<f64>) -> Vec<(String, f64)> {
    let width_s = main.slices.width_s();
    let indices = slices::complete_slices(sending, width_s);
    if indices.is_empty() {
        return Vec::new();
    }
    let length_s = indices.len() as f64 * width_s;
    let rate = |bytes: fn(&Slice) -> u64| {
        let within = main.slices.iter();
        let within = within.filter(|(index, _)| {
            usize::try_from(*index).is_ok_and(|index| indices.contains(&index))
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
impl GroupMeasures {
    /// Returns the value of the measure with this name.
    pub(super) fn named(&self, measure: &str) -> Option<f64> {
        self.value(&measure.parse().unwrap())
    }
}

// Statistics of a distribution whose quantiles at [`levels`] are stored.

/// Computes a statistic from quantiles; `None` for a percentile that is not stored.
pub(super) fn quantile_statistic(quantiles: &[f64], statistic: Statistic) -> Option<f64> {
    match statistic {
        Statistic::Percentile(share) => at(quantiles, share),
        Statistic::Above(bound) => Some(above(quantiles, bound)),
        Statistic::Between(low, high) => Some(above(quantiles, low) - above(quantiles, high)),
        Statistic::InSteps { height, above } => in_steps(quantiles, height, above),
    }
}

/// Returns the quantile at a share; `None` if it is not stored.
fn at(quantiles: &[f64], share: f64) -> Option<f64> {
    let index = levels().position(|level| (level - share).abs() < 1e-9)?;
    quantiles.get(index).copied()
}

/// Returns the share of values above a bound.
fn above(quantiles: &[f64], bound: f64) -> f64 {
    let shares: Vec<f64> = levels().collect();
    let over = quantiles.iter().position(|it| *it > bound);
    over.map_or(0.0, |index| 1.0 - shares[index.saturating_sub(1)])
}

/// Returns how closely the values above a bound lie whole steps apart: the mean resultant length of
/// their positions within a step (Mardia and Jupp, Directional Statistics, section 2.3.1). It is 1
/// for a staircase with steps of this height, and about 0 for a smooth distribution. `None` without
/// a value above the bound.
fn in_steps(quantiles: &[f64], height: f64, bound: f64) -> Option<f64> {
    // Quantiles of the far tail represent too few values each.
    let body = quantiles
        .iter()
        .take(QUANTILE_STEPS)
        .filter(|it| **it > bound);
    let indices = body.map(|it| (it / height * TAU).sin_cos());
    let (sines, cosines): (Vec<f64>, Vec<f64>) = indices.unzip();
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let length = f64::hypot(mean(&sines), mean(&cosines));
    length.is_finite().then_some(length)
}

// Measures computed from others; `None` if one of these was not measured.

pub(super) fn redundant_bytes(group: &GroupMeasures) -> Option<f64> {
    let stored = |name: &str| group.values.get(name).copied();
    Some(stored("data_bytes")? - stored("new_bytes")?)
}

pub(super) fn messages_per_second(group: &GroupMeasures) -> Option<f64> {
    Some(1e3 / group.mean("message_gap_ms")?)
}

pub(super) fn typing_stalls(group: &GroupMeasures, back_ms: f64) -> Option<f64> {
    let late_share = late_share(group, typing::bound_ms(back_ms))?;
    Some(typing::stalls_per_1000(late_share))
}

pub(super) fn voice_opinion(group: &GroupMeasures, play_out: PlayOut) -> Option<f64> {
    Some(voice::opinion(voice_rating(group, play_out)?))
}

pub(super) fn voice_rating(group: &GroupMeasures, play_out: PlayOut) -> Option<f64> {
    let at = |ms: f64| Some(voice::rating(ms, late_share(group, ms)?));
    match play_out {
        PlayOut::At(ms) => at(ms),
        PlayOut::Best => {
            let longest = group.distributions.get(DELIVERY_LATENCY)?.last()?.ceil();
            // With a longer delay, speech is incomprehensible in any case.
            let longest_ms = longest.clamp(1.0, 1000.0) as u32;
            let ratings = (1..=longest_ms).filter_map(|ms| at(ms.into()));
            ratings.max_by(f64::total_cmp)
        }
    }
}

/// Returns the share of messages whose latency exceeds `than_ms`.
fn late_share(group: &GroupMeasures, than_ms: f64) -> Option<f64> {
    group.statistic(DELIVERY_LATENCY, Statistic::Above(than_ms))
}

/// The measure that is divided by each stream's optimum.
const GOODPUT: &str = "received_goodput_bit_per_s";

impl RunMeasures {
    /// Adds to each group Jain's index over the streams of all groups, of goodput relative to the
    /// optimum (thesis, section 2.7.2). `due` has the optimum of each group in bit/s. Adds nothing
    /// if a group's optimum is unknown.
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

impl GroupMeasures {
    /// Returns a rate for each second, in order of time.
    pub(super) fn per_slice(&self, measure: &MeasureRef) -> Option<&[f64]> {
        match &measure.kind {
            Kind::Slices(name, 1, None) => self.slices.get(name).map(Vec::as_slice),
            _ => None,
        }
    }
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

    /// Quantiles with 150 in the lower half; `late_share` maps the position in the upper half, 0 to
    /// 1, to a value.
    fn quantiles(late_share: fn(f64) -> f64) -> Vec<f64> {
        let of = |level: f64| match level < 0.5 {
            true => 150.0,
            false => late_share(2.0 * level - 1.0),
        };
        levels().map(of).collect()
    }

    #[test]
    fn in_steps_distinguishes_staircase_from_slope() {
        let steps = |height, above| Statistic::InSteps { height, above };
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        assert!(quantile_statistic(&slope, steps(30.0, 155.0)).unwrap() < 0.01);
        let stairs = quantiles(|share| 170.0 + 30.0 * (10.0 * share).floor());
        let of_stairs = |statistic| quantile_statistic(&stairs, statistic).unwrap();
        assert!((of_stairs(steps(30.0, 155.0)) - 1.0).abs() < 1e-9);
        assert!(of_stairs(steps(40.0, 155.0)) < 0.3);
        assert_eq!(quantile_statistic(&stairs, steps(30.0, 1000.0)), None);
    }

    #[test]
    fn share_between_bounds_is_difference_of_shares() {
        let slope = quantiles(|share| 160.0 + 300.0 * share);
        let share = quantile_statistic(&slope, Statistic::Between(190.0, 250.0)).unwrap();
        assert!((share - 0.1).abs() < 2e-3, "{share}");
        assert_eq!(
            quantile_statistic(&slope, Statistic::Between(500.0, 600.0)),
            Some(0.0)
        );
    }
}
