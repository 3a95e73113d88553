use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;

use pillion_measure::Unit;
use pillion_trace::Period;
use pillion_trace::measure::catalogue::{distributions, in_unit};
use pillion_trace::measure::{Group, Measures, Meter, Options, Results, Single, Slice, Together};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{OpenError, Traces};

/// What is kept of a run's traces: all that numbers and figures are made from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    /// Each group of streams.
    pub groups: BTreeMap<String, GroupDigest>,
}

/// What is kept of a group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupDigest {
    /// Single values by name: those that `analyse --json` has of handshakes, of fairness, and of
    /// what was sent and lost.
    pub values: BTreeMap<String, f64>,
    /// Distributions by name: their quantiles in steps of a thousandth, and finer at the end.
    pub distributions: BTreeMap<String, Vec<f64>>,
}

/// The distribution over streams of the share of packets with payload that each lost.
const LOSS_OF_STREAMS: &str = "stream_lost_data_packets_share";

/// The shares of a distribution at which its quantiles are kept: the body in steps of a thousandth, the
/// tail more finely.
pub fn levels() -> impl Iterator<Item = f64> {
    let body = (0..1000).map(|step| f64::from(step) / 1e3);
    body.chain([0.9995, 0.9999, 1.0])
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
        let options = Options {
            groups: groups.map(|(name, to)| Group::to(name, to)).collect(),
            ..Options::default()
        };
        let observed = traces.observe(Meter::new(options));
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
            (name, GroupDigest::of(group, &results.connections, &sending))
        });
        Self {
            groups: groups.collect(),
        }
    }
}

impl GroupDigest {
    fn of(group: &Together, connections: &[Single], sending: &Range<f64>) -> Self {
        let mut values = BTreeMap::new();
        let measured = [
            serde_json::to_value(group.handshakes),
            serde_json::to_value(group.fairness),
            serde_json::to_value(&group.main.sent),
            serde_json::to_value(&group.main.loss),
        ];
        for fields in measured.into_iter().flatten() {
            let Value::Object(fields) = fields else {
                continue;
            };
            let fields = fields.into_iter();
            values.extend(fields.filter_map(|(name, value)| Some((name, value.as_f64()?))));
        }
        let both = group.main.loss.is_some();
        values.extend(rates(&group.main, sending.clone(), both));
        let kept = distributions().filter_map(|measure| {
            let distribution = (measure.of)(&group.main);
            let quantile = |share| Some(in_unit(distribution.quantile(share)?, measure.unit));
            let quantiles: Option<Vec<f64>> = levels().map(quantile).collect();
            Some((measure.name.to_owned(), quantiles?))
        });
        let mut distributions: BTreeMap<_, _> = kept.collect();
        let losses = losses_of_streams(connections, group.name.as_ref());
        if !losses.is_empty() {
            let quantile = |share: f64| {
                let rank = (share * losses.len() as f64).ceil().max(1.0);
                losses[rank as usize - 1]
            };
            distributions.insert(LOSS_OF_STREAMS.to_owned(), levels().map(quantile).collect());
        }
        Self {
            values,
            distributions,
        }
    }

    /// The value of a measure: the name of a single value, or of a distribution with what is asked
    /// of it behind it, as in `ack_latency_ms p97`, `… mean` or `… above 150` (a share).
    #[must_use]
    pub fn value(&self, measure: &str) -> Option<f64> {
        let Some((name, what)) = measure.split_once(' ') else {
            return self.values.get(measure).copied();
        };
        let quantiles = self.distributions.get(name)?;
        if let Some(percentile) = what.strip_prefix('p') {
            let share = percentile.parse::<f64>().ok()? / 100.0;
            return at(quantiles, share);
        }
        let bound: f64 = what.strip_prefix("above ")?.parse().ok()?;
        let shares: Vec<f64> = levels().collect();
        let over = quantiles.iter().position(|it| *it > bound);
        Some(over.map_or(0.0, |place| 1.0 - shares[place.saturating_sub(1)]))
    }
}

/// The quantile at a share, of those that are kept.
fn at(quantiles: &[f64], share: f64) -> Option<f64> {
    let place = levels().position(|level| level >= share - 1e-9)?;
    quantiles.get(place).copied()
}

/// Rates over the time in which streams were to send: what arrives once no more is written, as a
/// backlog does, is no part of what streams got beside others. Slices that lie within it count.
fn rates(main: &Measures, sending: Range<f64>, both: bool) -> Vec<(String, f64)> {
    let width_s = main.slices.width_s();
    let first = (sending.start / width_s).ceil().max(0.0) as i64;
    let end = (sending.end / width_s).floor() as i64;
    let length_s = (end - first) as f64 * width_s;
    if length_s <= 0.0 {
        return Vec::new();
    }
    let rate = |bytes: fn(&Slice) -> u64| {
        let within = main.slices.iter();
        let within = within.filter(|(index, _)| (first..end).contains(index));
        let sum: u64 = within.map(|(_, slice)| bytes(slice)).sum();
        sum as f64 * 8.0 / length_s
    };
    let sent = [
        ("sent_throughput_bit_per_s", rate(|it| it.sent_wire_bytes)),
        ("acked_goodput_bit_per_s", rate(|it| it.acked_bytes)),
    ];
    let received = both.then(|| {
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

/// The share of packets with payload that each stream of a group lost, in order.
fn losses_of_streams(connections: &[Single], group: Option<&String>) -> Vec<f64> {
    let of_group = connections
        .iter()
        .filter(|it| group.is_none_or(|group| it.groups.contains(group)));
    let losses = of_group.filter_map(|it| it.main.loss.as_deref()?.lost_data_packets_share);
    let mut losses: Vec<f64> = losses.collect();
    losses.sort_by(f64::total_cmp);
    losses
}

/// The unit of a measure, by the end of its name.
#[must_use]
pub fn unit(measure: &str) -> Unit {
    let (name, what) = measure.split_once(' ').unwrap_or((measure, ""));
    match name {
        _ if what.starts_with("above") || name.ends_with("_share") => Unit::Share,
        _ if name.ends_with("_ms") => Unit::Milliseconds,
        _ if name.ends_with("_bytes") => Unit::Bytes,
        _ if name.ends_with("_bit_per_s") => Unit::BitPerSecond,
        _ => Unit::Number,
    }
}
