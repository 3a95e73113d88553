//! Parses the names of measures, such as `ack_latency_ms p97`, and reports errors before any run.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::LazyLock;

use pillion_stats::measure::Unit;
use pillion_trace::measure::catalogue::distributions;
use pillion_trace::measure::{Fairness, Handshakes, Loss, Volume};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Delivery latency of messages, from write to read.
pub(crate) const DELIVERY_LATENCY: &str = "delivery_latency_ms";
/// Jain's index over the streams of all groups: goodput relative to the optimum.
pub(crate) const JAIN_OF_ALL: &str = "jain_index_of_all_relative_to_optimum";
/// Share of drops in the quarter of the inter-transmission time with most drops.
pub(crate) const DROPPED_IN_STEP: &str = "dropped_in_step_share";
/// Slowest message of each second.
pub(crate) const SLOWEST_DELIVERY: &str = "slowest_delivery_ms";

/// Rates over the time of sending: of a group, of each stream, and per second.
pub(crate) const RATES: [&str; 4] = [
    "sent_throughput_bit_per_s",
    "acked_goodput_bit_per_s",
    "received_throughput_bit_per_s",
    "received_goodput_bit_per_s",
];

/// Distributions of messages that applications wrote and read.
pub(crate) const MESSAGE_DISTRIBUTIONS: [&str; 5] = [
    "message_bytes",
    "message_gap_ms",
    DELIVERY_LATENCY,
    "settled_delivery_ms",
    "sojourn_ms",
];

/// Number of stored quantiles below the tail, in steps of 0.1 %.
pub(crate) const QUANTILE_STEPS: usize = 1000;

/// Returns the shares at which quantiles are stored: in steps of 0.001, more finely in the tail.
pub(crate) fn levels() -> impl Iterator<Item = f64> {
    let body = (0..QUANTILE_STEPS).map(|step| step as f64 / QUANTILE_STEPS as f64);
    body.chain([0.9995, 0.9999, 1.0])
}

const OF_STREAMS: &str = " of streams";
const OF_SLICES: &str = " of slices";

/// Measure of a group of streams in a run.
///
/// | form | value |
/// |---|---|
/// | `lost_data_packets_share` | single value of `analyse --json`, over all streams |
/// | `ack_latency_ms` | distribution of `analyse --json`, or of messages |
/// | `ack_latency_ms p97`, `… mean`, `… above 150`, `… between 285 and 315`, `… in steps of 30 above 155` | statistic of a distribution |
/// | `lost_data_packets_share of streams`, `ack_latency_ms p50 of streams` | single value, or median, of each stream |
/// | `… of streams p90`, `… of streams jain` | percentile over streams, or Jain's index |
/// | `received_goodput_bit_per_s of slices`, `… of slices of 30 s` | rate, or `slowest_delivery_ms`, in each slice of a second or more |
/// | `… of slices p100`, `… of slices off 10000000` | percentile over slices, or mean relative distance from a rate |
/// | `redundant_bytes`, `messages_per_s`, `voice_rating at 150`, `voice_mos best`, `typing_stalls_per_1000 back 75` | computed from others |
#[derive(Debug, Clone, PartialEq)]
pub struct MeasureRef {
    text: String,
    pub(crate) kind: Kind,
}

/// A parsed measure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// Single value with this name.
    Value(String),
    /// Distribution with this name: all of it, or a statistic.
    Distribution(String, Option<DistributionStatistic>),
    /// Value with this name per stream: all of them, or a statistic.
    Streams(String, Option<StreamStatistic>),
    /// Rate with this name in slices of this many seconds: all of them, or a statistic.
    Slices(String, usize, Option<SliceStatistic>),
    RedundantBytes,
    MessagesPerSecond,
    /// Rating factor R of ITU-T G.107.
    VoiceRating(PlayOut),
    /// Mean opinion score of the same rating.
    VoiceOpinion(PlayOut),
    /// Keystrokes of 1,000 whose echo stalls; the way back takes this long, in milliseconds.
    TypingStalls(f64),
}

/// Statistic of a distribution with stored quantiles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Statistic {
    /// Quantile at this share.
    Percentile(f64),
    /// Share of values above a bound.
    Above(f64),
    /// Share of values above the first bound and at most the second.
    Between(f64, f64),
    /// Regularity of steps of this height among the values above a bound, 0 to 1.
    InSteps { height: f64, above: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum DistributionStatistic {
    Of(Statistic),
    Mean,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StreamStatistic {
    Of(Statistic),
    /// Jain's index of fairness.
    Jain,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SliceStatistic {
    /// Quantile at this share.
    Percentile(f64),
    /// Mean distance from this rate, relative to it.
    Off(f64),
}

/// Play-out time of a voice stream.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PlayOut {
    /// Milliseconds after speaking.
    At(f64),
    /// Time with the best rating.
    Best,
}

impl MeasureRef {
    /// Returns the measure's name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether a group of a run has one value.
    pub(crate) fn is_value(&self) -> bool {
        !(self.is_distribution() || self.is_of_slices())
    }

    /// Returns whether the measure is a whole distribution, or the values of all streams.
    pub(crate) fn is_distribution(&self) -> bool {
        matches!(self.kind, Kind::Distribution(_, None)) || self.is_of_streams()
    }

    /// Returns whether the measure is the values of all streams.
    pub(crate) fn is_of_streams(&self) -> bool {
        matches!(self.kind, Kind::Streams(_, None))
    }

    /// Returns whether the measure is a rate per second, for kind `series`.
    pub(crate) fn is_of_seconds(&self) -> bool {
        matches!(self.kind, Kind::Slices(_, 1, None))
    }

    /// Returns whether the measure is a rate per slice.
    pub(crate) fn is_of_slices(&self) -> bool {
        matches!(self.kind, Kind::Slices(_, _, None))
    }

    /// Returns whether the measure is a fairness index.
    pub(crate) fn is_index(&self) -> bool {
        match &self.kind {
            Kind::Streams(_, Some(StreamStatistic::Jain)) => true,
            Kind::Value(name) => name == JAIN_OF_ALL,
            _ => false,
        }
    }

    /// Returns the unit of the values.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match &self.kind {
            Kind::Distribution(name, Some(DistributionStatistic::Of(statistic)))
            | Kind::Streams(name, Some(StreamStatistic::Of(statistic))) => match statistic {
                Statistic::Above(_) | Statistic::Between(..) => Unit::Share,
                Statistic::InSteps { .. } => Unit::Number,
                Statistic::Percentile(_) => unit_of_name(name),
            },
            Kind::Value(name) | Kind::Distribution(name, _) => unit_of_name(name),
            Kind::Streams(_, Some(StreamStatistic::Jain)) => Unit::Number,
            Kind::Slices(_, _, Some(SliceStatistic::Off(_))) => Unit::Share,
            Kind::Streams(name, None) | Kind::Slices(name, ..) => unit_of_name(name),
            Kind::RedundantBytes => Unit::Bytes,
            Kind::MessagesPerSecond
            | Kind::VoiceRating(_)
            | Kind::VoiceOpinion(_)
            | Kind::TypingStalls(_) => Unit::Number,
        }
    }
}

/// Returns the unit at the end of a name.
fn unit_of_name(name: &str) -> Unit {
    let name = name.split(' ').next().unwrap_or(name);
    match name {
        _ if name.ends_with("_share") => Unit::Share,
        _ if name.ends_with("_ms") => Unit::Milliseconds,
        _ if name.ends_with("_bytes") => Unit::Bytes,
        _ if name.ends_with("_bit_per_s") => Unit::BitPerSecond,
        _ => Unit::Number,
    }
}

/// Returns the most similar known name (Jaro-Winkler).
pub(crate) fn nearest<T: AsRef<str>>(name: &str, known: impl Iterator<Item = T>) -> Option<T> {
    let alike = known.map(|known| (strsim::jaro_winkler(name, known.as_ref()), known));
    let nearest = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    nearest.map(|(_, known)| known)
}

/// Error for an unknown measure or statistic, with the nearest name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MeasureError(String);

impl MeasureError {
    fn unknown(what: &str, name: &str, known: impl Iterator<Item = impl AsRef<str>>) -> Self {
        Self(match nearest(name, known) {
            Some(nearest) => format!(
                "unknown {what} `{name}`; the nearest is `{}`",
                nearest.as_ref()
            ),
            None => format!("unknown {what} `{name}`"),
        })
    }

    fn statistic(suffix: &str, of: &str, known: &str) -> Self {
        Self(format!(
            "unknown statistic `{suffix}` of `{of}`; known: {known}"
        ))
    }
}

impl FromStr for MeasureRef {
    type Err = MeasureError;

    fn from_str(text: &str) -> Result<Self, MeasureError> {
        let kind = if let Some((name, suffix)) = split(text, OF_SLICES) {
            of_slices(name, suffix)?
        } else if let Some((name, suffix)) = split(text, OF_STREAMS) {
            of_streams(name, suffix)?
        } else {
            let (name, suffix) = text.split_once(' ').unwrap_or((text, ""));
            of_group(name, suffix)?
        };
        Ok(Self {
            text: text.to_owned(),
            kind,
        })
    }
}

/// Splits a name at these words; `None` unless they end the name or a space follows.
fn split<'a>(text: &'a str, words: &str) -> Option<(&'a str, &'a str)> {
    let (before, behind) = text.split_once(words)?;
    match behind {
        "" => Some((before, "")),
        behind => Some((before, behind.strip_prefix(' ')?)),
    }
}

fn of_group(name: &str, suffix: &str) -> Result<Kind, MeasureError> {
    const STATISTICS: &str = "p0 to p100 in steps of 0.1, p99.95, p99.99, mean, above X, between X and Y, \
                              in steps of X above Y";
    let or_unknown = |known: &str, of: Option<Kind>| {
        of.ok_or_else(|| MeasureError::statistic(suffix, name, known))
    };
    let is_distribution =
        distributions().any(|it| it.name == name) || MESSAGE_DISTRIBUTIONS.contains(&name);
    match name {
        "redundant_bytes" => or_unknown("none", suffix.is_empty().then_some(Kind::RedundantBytes)),
        "messages_per_s" => {
            or_unknown("none", suffix.is_empty().then_some(Kind::MessagesPerSecond))
        }
        "voice_rating" => or_unknown("at MS, best", play_out(suffix).map(Kind::VoiceRating)),
        "voice_mos" => or_unknown("at MS, best", play_out(suffix).map(Kind::VoiceOpinion)),
        "typing_stalls_per_1000" => or_unknown(
            "back MS",
            suffix
                .strip_prefix("back ")
                .and_then(number)
                .map(Kind::TypingStalls),
        ),
        _ if is_distribution && suffix.is_empty() => Ok(Kind::Distribution(name.to_owned(), None)),
        _ if is_distribution => {
            let statistic = match suffix {
                "mean" => Some(DistributionStatistic::Mean),
                _ => statistic(suffix).map(DistributionStatistic::Of),
            };
            let of = statistic.map(|it| Kind::Distribution(name.to_owned(), Some(it)));
            or_unknown(STATISTICS, of)
        }
        _ if VALUES.contains(name) => or_unknown(
            "none",
            suffix.is_empty().then(|| Kind::Value(name.to_owned())),
        ),
        _ => {
            let distributions = distributions()
                .map(|it| it.name)
                .chain(MESSAGE_DISTRIBUTIONS);
            let known = distributions
                .chain(DERIVED)
                .chain(VALUES.iter().map(String::as_str));
            Err(MeasureError::unknown("measure", name, known))
        }
    }
}

/// Measures computed from others.
const DERIVED: [&str; 5] = [
    "redundant_bytes",
    "messages_per_s",
    "voice_rating",
    "voice_mos",
    "typing_stalls_per_1000",
];

fn of_streams(name: &str, suffix: &str) -> Result<Kind, MeasureError> {
    let medians = || distributions().map(|it| format!("{} p50", it.name));
    if !STREAM_VALUES.contains(name) && !medians().any(|it| it == name) {
        let known = STREAM_VALUES.iter().cloned().chain(medians());
        return Err(MeasureError::unknown("measure of streams", name, known));
    }
    let suffix = match suffix {
        "" => None,
        "jain" => Some(StreamStatistic::Jain),
        _ => {
            let refused = || {
                let of = format!("{name}{OF_STREAMS}");
                let known = "p0 to p100 in steps of 0.1, above X, between X and Y, jain";
                MeasureError::statistic(suffix, &of, known)
            };
            Some(StreamStatistic::Of(statistic(suffix).ok_or_else(refused)?))
        }
    };
    Ok(Kind::Streams(name.to_owned(), suffix))
}

fn of_slices(name: &str, suffix: &str) -> Result<Kind, MeasureError> {
    let known = || RATES.into_iter().chain([SLOWEST_DELIVERY]);
    if !known().any(|it| it == name) {
        return Err(MeasureError::unknown("measure of slices", name, known()));
    }
    let refused = || {
        let of = format!("{name}{OF_SLICES}");
        MeasureError::statistic(
            suffix,
            &of,
            "p0 to p100, off RATE; behind `of 30 s ` for wider slices",
        )
    };
    let (seconds, what) = match suffix.strip_prefix("of ") {
        None => (1, suffix),
        Some(wider) => {
            let (seconds, what) = split(wider, " s").ok_or_else(refused)?;
            let seconds = seconds.parse().ok().filter(|it| *it > 0);
            (seconds.ok_or_else(refused)?, what)
        }
    };
    let suffix = match what.strip_prefix("off ") {
        _ if what.is_empty() => None,
        Some(rate) => {
            let rate = number(rate).filter(|it| *it > 0.0);
            Some(SliceStatistic::Off(rate.ok_or_else(refused)?))
        }
        None => Some(SliceStatistic::Percentile(
            percentile(what).ok_or_else(refused)?,
        )),
    };
    Ok(Kind::Slices(name.to_owned(), seconds, suffix))
}

fn statistic(suffix: &str) -> Option<Statistic> {
    if let Some(share) = percentile(suffix) {
        let is_stored = levels().any(|level| (level - share).abs() < 1e-9);
        return is_stored.then_some(Statistic::Percentile(share));
    }
    if let Some(bound) = suffix.strip_prefix("above ") {
        return number(bound).map(Statistic::Above);
    }
    if let Some(bounds) = suffix.strip_prefix("between ") {
        let (low, high) = bounds.split_once(" and ")?;
        let (low, high) = (number(low)?, number(high)?);
        return (low <= high).then_some(Statistic::Between(low, high));
    }
    let (height, bound) = suffix.strip_prefix("in steps of ")?.split_once(" above ")?;
    let height = number(height).filter(|it| *it > 0.0)?;
    let above = number(bound)?;
    Some(Statistic::InSteps { height, above })
}

fn play_out(suffix: &str) -> Option<PlayOut> {
    match suffix.strip_prefix("at ") {
        Some(at) => number(at).map(PlayOut::At),
        None => (suffix == "best").then_some(PlayOut::Best),
    }
}

/// Parses a finite number of at least 0.
fn number(text: &str) -> Option<f64> {
    within(text, 0.0..=f64::MAX)
}

/// Parses a percentile, as in `p97`, and returns its share.
fn percentile(text: &str) -> Option<f64> {
    let percent = within(text.strip_prefix('p')?, 0.0..=100.0)?;
    Some(percent / 100.0)
}

fn within(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    text.parse().ok().filter(|number| range.contains(number))
}

/// Names of the single values per stream.
static STREAM_VALUES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let counts = names(&Volume::default()).chain(names(&Loss::default()));
    counts.chain(RATES.map(str::to_owned)).collect()
});

/// Names of the single values per group.
static VALUES: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let of_group = names(&Handshakes::default()).chain(names(&Fairness::default()));
    let added = [JAIN_OF_ALL, DROPPED_IN_STEP].map(str::to_owned);
    STREAM_VALUES
        .iter()
        .cloned()
        .chain(of_group)
        .chain(added)
        .collect()
});

/// Returns the names of numeric fields.
fn names<T: Serialize>(of: &T) -> impl Iterator<Item = String> + use<T> {
    let fields = match serde_json::to_value(of) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let single = fields.into_iter();
    let single = single.filter(|(_, value)| value.is_number() || value.is_null());
    single.map(|(name, _)| name)
}

impl fmt::Display for MeasureRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for MeasureRef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        text.parse::<MeasureRef>().unwrap_err().to_string()
    }

    #[test]
    fn unknown_measure_is_rejected_with_nearest() {
        assert_eq!(
            refused("ack_latncy_ms p97"),
            "unknown measure `ack_latncy_ms`; the nearest is `ack_latency_ms`"
        );
        assert_eq!(
            refused("lost_packets_shar of streams"),
            "unknown measure of streams `lost_packets_shar`; the nearest is `lost_packets`"
        );
        assert_eq!(
            refused("received_goodput_bit_s of slices"),
            "unknown measure of slices `received_goodput_bit_s`; the nearest is \
             `received_goodput_bit_per_s`"
        );
    }

    #[test]
    fn unknown_statistic_is_rejected() {
        for text in [
            "ack_latency_ms p-1",
            "ack_latency_ms p101",
            "ack_latency_ms p99.97",
            "ack_latency_ms above nan",
            "ack_latency_ms between 3 and 2",
            "ack_latency_ms between 3",
            "ack_latency_ms in steps of 0 above 1",
            "lost_data_packets_share p50",
            "rtt_ms p90 of streams",
            "data_packets of streams mean",
            "received_goodput_bit_per_s of slices off 0",
            "received_goodput_bit_per_s of slices of 0 s p50",
            "received_goodput_bit_per_s of slices of 2 p50",
            "voice_rating",
            "voice_mos at x",
            "redundant_bytes p50",
            "data_packets of streamsjain",
            "received_goodput_bit_per_s of slicesp90",
            "received_goodput_bit_per_s of slices of 30 sp95",
            "nth_retransmissions",
            "",
        ] {
            assert!(text.parse::<MeasureRef>().is_err(), "{text}");
        }
    }

    #[test]
    fn unit_follows_from_name_and_statistic() {
        for (text, unit) in [
            ("ack_latency_ms", Unit::Milliseconds),
            ("ack_latency_ms p97", Unit::Milliseconds),
            ("ack_latency_ms above 150", Unit::Share),
            ("ack_latency_ms in steps of 30 above 155", Unit::Number),
            ("rtt_ms p50 of streams p100", Unit::Milliseconds),
            ("lost_data_packets_share of streams", Unit::Share),
            ("received_goodput_bit_per_s of streams jain", Unit::Number),
            ("received_goodput_bit_per_s of slices", Unit::BitPerSecond),
            ("received_goodput_bit_per_s of slices off 5", Unit::Share),
            ("redundant_bytes", Unit::Bytes),
            ("voice_mos best", Unit::Number),
            (JAIN_OF_ALL, Unit::Number),
        ] {
            let measure: MeasureRef = text.parse().unwrap();
            assert_eq!(measure.unit(), unit, "{text}");
            assert_eq!(measure.to_string(), text);
        }
    }
}
