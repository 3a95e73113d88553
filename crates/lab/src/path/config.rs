//! Configuration of both directions of a path.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::{LinkTrace, PathError};

/// Maximum delay of a direction.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Maximum queue length of a direction, in packets.
pub(crate) const MAX_QUEUE: usize = 65_536;

/// Maximum deviation of the delay, in standard deviations, as in netem's table.
pub(crate) const MAX_DEVIATIONS: u32 = 4;

/// A path: both directions, and the seed of their random events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// From the first device to the second: the direction of the data.
    pub forward: Direction,
    /// From the second device to the first: the direction of the acknowledgements.
    pub backward: Direction,
    /// Seed of losses, jitter and disorder. Each direction has its own generator for each of them.
    /// Losses and disorder use one random number per IP packet, so the n-th packet has the same
    /// disposition in every run. Jitter depends on the time since the first frame.
    pub seed: u64,
}

/// One direction of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Delay after the queue, 0 to 60 s. Serialised as `delay_ms`, in milliseconds.
    #[serde(rename = "delay_ms", with = "milliseconds")]
    pub delay: Duration,
    /// Standard deviation of the delay, 0 to a quarter of the direction's shortest delay. The delay
    /// varies with time and has a normal distribution, limited to four standard deviations around
    /// its mean. It varies so slowly that packets stay in order. Packets at the same time have
    /// equal delays; packets 18 standard deviations apart have independent ones. Serialised as
    /// `jitter_ms`, in milliseconds.
    #[serde(
        rename = "jitter_ms",
        with = "milliseconds",
        default,
        skip_serializing_if = "Duration::is_zero"
    )]
    pub jitter: Duration,
    /// Values for packets of single ports, instead of `delay`, `jitter` and `loss`. Packets of each
    /// such port stay in order, and so do all other packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<PortOverride>,
    /// Rate of the link in bits of Ethernet frames per second, at least 1. `None` for an unlimited
    /// rate, at which no packet waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Recorded times at which the link delivers packets, since the first frame of the path;
    /// instead of `rate_bps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<LinkTrace>,
    /// Maximum packets that wait for the link, 1 to 65,536, without the packet in transmission.
    pub queue_packets: usize,
    /// Packets lost after the queue.
    ///
    /// Only IP packets can be lost. ARP, IPv6 neighbour and router discovery and every other IPv6
    /// packet to a link-local multicast group pass. The kernel sends them at unpredictable times,
    /// so they would shift the losses of the studied packets.
    pub loss: Loss,
    /// Reordering and duplication; `None` for neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disorder: Option<Disorder>,
}

/// Values for the packets of one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortOverride {
    /// The port that TCP segments or UDP datagrams go to; if that has no values, the port that they
    /// come from.
    pub port: u16,
    /// Delay after the queue, 0 to 60 s. Serialised as `delay_ms`, in milliseconds.
    #[serde(rename = "delay_ms", with = "milliseconds")]
    pub delay: Duration,
    /// Standard deviation of the delay, 0 to a quarter of it, independent of other packets. `None`
    /// for the direction's jitter. Serialised as `jitter_ms`, in milliseconds.
    #[serde(
        rename = "jitter_ms",
        with = "some_milliseconds",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Duration>,
    /// Losses of these packets, independent of others; `None` for the direction's `loss`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

impl PortOverride {
    /// Creates an override with only a delay.
    #[must_use]
    pub fn delayed(port: u16, delay: Duration) -> Self {
        Self {
            port,
            delay,
            jitter: None,
            loss: None,
        }
    }
}

/// The loss model of one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Loss {
    /// Each packet is lost with the same probability, 0 to 1, independent of others.
    Uniform(f64),
    /// Bursts of losses by a good and a bad state (Gilbert and Elliott), starting in the good
    /// state. The current state decides on a packet's loss, and then the state may change, as in
    /// netem's `gemodel`.
    GilbertElliott {
        /// Probability, 0 to 1, of a change from the good state to the bad one after a packet.
        to_bad: f64,
        /// Probability, 0 to 1, of a change from the bad state to the good one after a packet.
        to_good: f64,
        /// Probability, 0 to 1, of a loss in the bad state.
        in_bad: f64,
        /// Probability, 0 to 1, of a loss in the good state.
        in_good: f64,
    },
    /// The packets with these numbers are lost, counted from 1 in order of arrival.
    Listed(Vec<u64>),
    /// As uniform, with a probability that changes with time. The first step starts at 0, and
    /// starts ascend.
    Steps(Vec<LossStep>),
}

/// The probability of a loss from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossStep {
    /// Seconds after the direction's first packet, 0 or more.
    pub start_s: f64,
    /// Probability, 0 to 1.
    pub loss: f64,
}

impl Loss {
    /// Returns the first invalid parameter: its name, its value, and the valid range.
    pub(crate) fn invalid_parameter(&self) -> Option<(&'static str, String, &'static str)> {
        let probabilities = match self {
            Self::Uniform(probability) => vec![("loss", probability)],
            Self::GilbertElliott {
                to_bad,
                to_good,
                in_bad,
                in_good,
            } => vec![
                ("loss.to_bad", to_bad),
                ("loss.to_good", to_good),
                ("loss.in_bad", in_bad),
                ("loss.in_good", in_good),
            ],
            Self::Listed(numbers) => {
                let zero = numbers.iter().find(|number| **number == 0);
                return zero.map(|zero| ("loss", zero.to_string(), "numbers of packets, from 1"));
            }
            Self::Steps(steps) => {
                let valid = |start: f64| Duration::try_from_secs_f64(start).is_ok();
                let starts = steps.iter().map(|step| step.start_s);
                let ascend = starts.clone().is_sorted_by(|a, b| a < b);
                if !ascend || starts.clone().next() != Some(0.0) || !starts.clone().all(valid) {
                    let starts = format!("{:?}", starts.collect::<Vec<_>>());
                    return Some(("loss.start_s", starts, "ascending seconds, the first 0"));
                }
                steps.iter().map(|step| ("loss.loss", &step.loss)).collect()
            }
        };
        let mut probabilities = probabilities.into_iter();
        let wrong = probabilities.find(|(_, value)| !(0.0..=1.0).contains(*value));
        wrong.map(|(name, value)| (name, value.to_string(), "0 to 1"))
    }
}

/// Reordering and duplication of the packets that are not lost.
///
/// One random number per packet decides whether it is delayed, duplicated or neither. Losses and
/// the other direction do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disorder {
    /// Probability, 0 to 1, that a packet is delayed and later ones overtake it.
    pub reorder: f64,
    /// Probability, 0 to 1, that a packet arrives twice; with `reorder` at most 1.
    pub duplicate: f64,
    /// Additional delay of a reordered packet or of a copy, 0 to 60 s. Serialised as `late_ms`, in
    /// milliseconds.
    #[serde(rename = "late_ms", with = "milliseconds")]
    pub late: Duration,
}

impl PathConfig {
    /// Checks every field against its range. The error names the first invalid field.
    pub fn validate(&self) -> Result<(), PathError> {
        self.forward.validate("forward")?;
        self.backward.validate("backward")
    }
}

impl Direction {
    /// Creates a direction with only a delay.
    #[must_use]
    pub fn delayed(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            own: Vec::new(),
            rate_bps: None,
            trace: None,
            // Without a rate, no packet waits.
            queue_packets: 1,
            loss: Loss::Uniform(0.0),
            disorder: None,
        }
    }

    fn validate(&self, direction: &str) -> Result<(), PathError> {
        let out_of_range = |field: &str, value: String, range| {
            let field = format!("{direction}.{field}");
            Err(PathError::OutOfRange {
                field,
                value,
                range,
            })
        };
        let own = self.own.iter().flat_map(|own| {
            let jitter = own.jitter.unwrap_or_default();
            [("own.delay", own.delay), ("own.jitter", jitter)]
        });
        let mut times = [("delay", self.delay), ("jitter", self.jitter)]
            .into_iter()
            .chain(own);
        if let Some((field, time)) = times.find(|(_, time)| *time > MAX_DELAY) {
            return out_of_range(field, format!("{time:?}"), "0 to 60 s");
        }
        let own = self.own.iter().map(|own| (own.delay, own.jitter));
        let mut varying = own.chain([(self.delay, None)]);
        if let Some((_, own)) = varying
            .find(|(delay, own)| own.unwrap_or(self.jitter).saturating_mul(MAX_DEVIATIONS) > *delay)
        {
            let (field, jitter, range) = match own {
                Some(own) => ("own.jitter", own, "at most a quarter of its port's delay"),
                None => {
                    let range = "at most a quarter of the direction's shortest delay";
                    ("jitter", self.jitter, range)
                }
            };
            return out_of_range(field, format!("{jitter:?}"), range);
        }
        if self.rate_bps == Some(0) {
            return out_of_range("rate_bps", "0".into(), "at least 1, or absent");
        }
        if let (Some(rate), Some(_)) = (self.rate_bps, &self.trace) {
            return out_of_range("rate_bps", rate.to_string(), "absent, because of `trace`");
        }
        if !(1..=MAX_QUEUE).contains(&self.queue_packets) {
            let value = self.queue_packets.to_string();
            return out_of_range("queue_packets", value, "1 to 65536");
        }
        let losses = self.own.iter().filter_map(|own| own.loss.as_ref());
        if let Some((field, value, range)) =
            losses.chain([&self.loss]).find_map(Loss::invalid_parameter)
        {
            return out_of_range(field, value, range);
        }
        let Some(disorder) = self.disorder else {
            return Ok(());
        };
        let Disorder {
            reorder,
            duplicate,
            late,
        } = disorder;
        if !(0.0..=1.0).contains(&reorder) {
            return out_of_range("disorder.reorder", reorder.to_string(), "0 to 1");
        }
        if !(0.0..=1.0 - reorder).contains(&duplicate) {
            let range = "0 to 1, and with reorder at most 1";
            return out_of_range("disorder.duplicate", duplicate.to_string(), range);
        }
        if late > MAX_DELAY {
            return out_of_range("disorder.late", format!("{late:?}"), "0 to 60 s");
        }
        Ok(())
    }
}

/// Durations as numbers of milliseconds, the usual unit of delays.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(delay: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(delay.as_secs_f64() * 1e3)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(ms / 1e3)
            .map_err(|_| D::Error::custom(format!("invalid delay {ms} ms: expected 0 to 60000")))
    }
}

/// Optional durations as numbers of milliseconds.
mod some_milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::milliseconds;

    pub fn serialize<S: Serializer>(
        delay: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match delay {
            Some(delay) => milliseconds::serialize(delay, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        #[derive(Deserialize)]
        struct Milliseconds(#[serde(with = "milliseconds")] Duration);
        Ok(Option::deserialize(deserializer)?.map(|Milliseconds(delay)| delay))
    }
}
