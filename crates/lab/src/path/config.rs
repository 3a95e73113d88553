//! What a path does to the frames of each direction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::delay::FARTHEST;
use crate::path::{Loss, PathError};

/// The longest delay a direction may have.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// The longest queue a direction may have, in packets.
const MAX_QUEUE: usize = 65_536;

/// A path: both directions and the seed of what is left to chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// From the first device to the second: the direction of the data.
    pub forward: Direction,
    /// From the second device to the first: the direction of the acknowledgements.
    pub backward: Direction,
    /// Seed of losses, jitter and disorder. Each direction draws each of these from a generator of
    /// its own: losses and disorder for every frame that chance applies to, so the n-th such frame
    /// meets the same fate in every run; jitter for times, counted from the first frame on.
    pub seed: u64,
}

/// One direction of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Direction {
    /// Delay after the queue, 0 to 60 s. Serialised as `delay_ms`, in milliseconds.
    #[serde(rename = "delay_ms", with = "milliseconds")]
    pub delay: Duration,
    /// Standard deviation of the delay, 0 to a quarter of the shortest delay of the direction. The
    /// delay varies with time, as a normal distribution does, by no more than four standard
    /// deviations around its mean, and so slowly that packets keep their order: packets at the same
    /// time have the same, those 18 standard deviations apart have nothing in common. Serialised as
    /// `jitter_ms`, in milliseconds.
    #[serde(
        rename = "jitter_ms",
        with = "milliseconds",
        default,
        skip_serializing_if = "Duration::is_zero"
    )]
    pub jitter: Duration,
    /// What packets of single ports meet in place of `delay`, `jitter` and `loss`. Order is kept
    /// among the packets of each of these ports, and among the others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<Own>,
    /// Rate of the link in bits of Ethernet frames per second, at least 1; without one the link
    /// takes no time and nothing ever waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Packets that may wait for the link, 1 to 65,536. The packet being sent does not count.
    pub queue_packets: usize,
    /// Which packets are lost behind the queue.
    ///
    /// Loss applies to IP packets alone. ARP, IPv6 neighbour and router discovery and every other
    /// IPv6 packet to a link-local multicast group pass: the kernel sends them at moments of its
    /// own, so they would shift the losses of the packets under study.
    pub loss: Loss,
    /// What disturbs the order; without it, order is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disorder: Option<Disorder>,
}

/// What the packets of one port meet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Own {
    /// Where TCP segments or UDP datagrams go to; or else where they come from.
    pub port: u16,
    /// Delay after the queue, 0 to 60 s. Serialised as `delay_ms`, in milliseconds.
    #[serde(rename = "delay_ms", with = "milliseconds")]
    pub delay: Duration,
    /// Standard deviation of the delay, 0 to a quarter of it, which varies apart from that of other
    /// packets; `None` for the direction's, with which it varies together. Serialised as
    /// `jitter_ms`, in milliseconds.
    #[serde(
        rename = "jitter_ms",
        with = "some_milliseconds",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub jitter: Option<Duration>,
    /// Which of the packets are lost, apart from others; `None` where the direction's `loss` takes
    /// them as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
}

impl Own {
    /// A delay of the port's own, and nothing else.
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

/// Packets that arrive late or twice, of those that loss applies to and spares.
///
/// A number drawn for each decides whether it is held back, doubled or neither; losses and the
/// other direction are not affected by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disorder {
    /// Probability, 0 to 1, that a packet is held back, so that those behind it overtake it.
    pub reorder: f64,
    /// Probability, 0 to 1, that a packet arrives twice; with `reorder` at most 1.
    pub duplicate: f64,
    /// By how much longer than the delay a packet or the copy of one is held back, 0 to 60 s.
    /// Serialised as `late_ms`, in milliseconds.
    #[serde(rename = "late_ms", with = "milliseconds")]
    pub late: Duration,
}

impl PathConfig {
    /// Checks every field against its range; the error names the first field outside it.
    pub fn validate(&self) -> Result<(), PathError> {
        self.forward.validate("forward")?;
        self.backward.validate("backward")
    }
}

impl Direction {
    /// A direction that delays, and does nothing else.
    #[must_use]
    pub fn delayed(delay: Duration) -> Self {
        Self {
            delay,
            jitter: Duration::ZERO,
            own: Vec::new(),
            rate_bps: None,
            // Without a rate none waits.
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
            .find(|(delay, own)| own.unwrap_or(self.jitter).saturating_mul(FARTHEST) > *delay)
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
        if !(1..=MAX_QUEUE).contains(&self.queue_packets) {
            let value = self.queue_packets.to_string();
            return out_of_range("queue_packets", value, "1 to 65536");
        }
        let losses = self.own.iter().filter_map(|own| own.loss.as_ref());
        if let Some((field, value, range)) = losses.chain([&self.loss]).find_map(Loss::mistake) {
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

/// Durations as numbers of milliseconds, the unit people use for delays.
mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(delay: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(delay.as_secs_f64() * 1e3)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(ms / 1e3)
            .map_err(|_| D::Error::custom(format!("a delay is {ms} ms; it must be 0 to 60000")))
    }
}

/// Durations that there may be none of, as numbers of milliseconds.
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
