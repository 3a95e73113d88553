use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use pillion_stats::measure::{Unit, quantile};
use pillion_trace::Period;
use pillion_trace::measure::catalogue::{distributions, in_unit};
use pillion_trace::measure::{
    Group, Measures, Meter, Options, Results, Single, Slice, Together, jain_index,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fairness::JAIN_OF_ALL;
use super::quantiles::levels;
use super::slices::OF_SLICES;
use super::{derived, quantiles, slices};
use crate::analysis::{OpenError, Traces};

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

/// What stands behind a measure that is taken of each stream alone, before what is asked of those.
const OF_STREAMS: &str = " of streams";

/// What stands behind it if Jain's index over the streams is asked for.
const JAIN: &str = " of streams jain";

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

    /// The value of a measure: the name of a single value, or of a distribution with what is asked
    /// of it behind it, as in `ack_latency_ms p97`, `… mean`, `… above 150` or `… between 285 and 315`
    /// (shares), or `… in steps of 30 above 155`, from 0 to 1. Of each stream alone,
    /// `lost_data_packets_share of streams p50`, or of the streams' medians
    /// `ack_latency_ms p50 of streams p100`; and Jain's index over streams,
    /// `received_goodput_bit_per_s of streams jain`. Of slices of time,
    /// `received_throughput_bit_per_s of slices p100`, or `… off 10000000` (a share); of wider ones,
    /// `… of slices of 30 s p100`.
    #[must_use]
    pub fn value(&self, measure: &str) -> Option<f64> {
        if let Some(value) = self.values.get(measure) {
            return Some(*value);
        }
        if let Some(value) = derived::value(self, measure) {
            return Some(value);
        }
        if measure.contains(OF_SLICES) {
            return self.value_of_slices(measure);
        }
        if let Some(name) = measure.strip_suffix(JAIN) {
            return jain_index(self.streams.get(name)?.iter().copied());
        }
        let (name, what) = match measure.rsplit_once(OF_STREAMS) {
            Some((name, what)) => (format!("{name}{OF_STREAMS}"), what.trim_start()),
            None => match measure.split_once(' ') {
                Some((name, what)) => (name.to_owned(), what),
                None => return None,
            },
        };
        quantiles::asked(&self.quantiles(&name)?, what)
    }

    /// What is said of each stream alone, as in `lost_data_packets_share of streams`, in ascending
    /// order.
    pub(super) fn of_streams(&self, measure: &str) -> Option<&[f64]> {
        let name = measure.strip_suffix(OF_STREAMS)?;
        self.streams.get(name).map(Vec::as_slice)
    }

    /// The quantiles of a distribution, or of what is said of each stream alone, at the shares that are kept.
    #[must_use]
    pub fn quantiles(&self, measure: &str) -> Option<Cow<'_, [f64]>> {
        if !measure.ends_with(OF_STREAMS) {
            return self.distributions.get(measure).map(Cow::from);
        }
        let of_streams = self.of_streams(measure)?;
        levels().map(|level| quantile(of_streams, level)).collect()
    }
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

/// Whether a measure is Jain's index.
pub(super) fn is_index(measure: &str) -> bool {
    measure.ends_with(JAIN) || measure == JAIN_OF_ALL
}

/// The unit of a measure, by the end of its name.
#[must_use]
pub fn unit(measure: &str) -> Unit {
    let (name, what) = measure.split_once(' ').unwrap_or((measure, ""));
    match name {
        _ if is_index(measure) => Unit::Number,
        _ if what.contains("of slices off") => Unit::Share,
        _ if what.contains(quantiles::IN_STEPS) => Unit::Number,
        _ if what.contains("above") || what.contains("between") => Unit::Share,
        _ if name.ends_with("_share") => Unit::Share,
        _ if name.ends_with("_ms") => Unit::Milliseconds,
        _ if name.ends_with("_bytes") => Unit::Bytes,
        _ if name.ends_with("_bit_per_s") => Unit::BitPerSecond,
        _ => Unit::Number,
    }
}
