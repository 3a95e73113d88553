//! Path in experiment files: delay, jitter and loss, also of single groups and streams.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::times::{from_ms, parse_duration, to_ms};
use pillion_cli::settings::{BadInput, text, times};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Loss, Share};
use crate::path::{Direction, Disorder};
use crate::settings::time_text::{TimeText, parse_time, parse_time_distribution};
use crate::traffic::Distribution;

/// Emulator: its own keys apply to the direction toward the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Path {
    /// Round-trip time, half of it in each direction.
    #[serde(
        deserialize_with = "rtt",
        serialize_with = "times::milliseconds::serialize"
    )]
    pub rtt: Duration,
    /// Direction toward the receiver.
    #[serde(flatten)]
    pub forward: PathDirection,
    /// Direction toward the senders.
    pub back: PathDirection,
}

flattened!(Path);

/// Effects on the packets of one direction, in addition to the delay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathDirection {
    /// Standard deviation of the delay; packets stay in order.
    #[serde(with = "times::milliseconds")]
    pub jitter: Duration,
    /// Lost packets.
    #[serde(with = "loss")]
    pub loss: Option<Loss>,
    /// Reordered packets.
    #[serde(with = "text::option")]
    pub reorder: Option<Reorder>,
    /// Share of packets that are duplicated.
    pub duplicate: Share,
}

/// Packets with additional delay, which others overtake: `PERCENT:MS`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of packets with additional delay.
    pub share: Share,
    /// Additional delay.
    pub late: Duration,
}

impl Path {
    /// Returns the emulation of the direction toward the receiver.
    pub(super) fn forward(&self) -> Emulation {
        self.forward.delayed(self.rtt / 2)
    }

    /// Returns the emulation of the direction toward the senders.
    pub(super) fn backward(&self) -> Emulation {
        self.back.delayed(self.rtt / 2)
    }
}

impl PathDirection {
    fn delayed(&self, delay: Duration) -> Emulation {
        let impairments = Impairments {
            reorder: self.reorder.map_or(0.0, |reorder| reorder.share.get()),
            late: self.reorder.map_or(Duration::ZERO, |reorder| reorder.late),
            duplicate: self.duplicate.get(),
        };
        Emulation {
            delay,
            jitter: Some(self.jitter).filter(|jitter| !jitter.is_zero()),
            loss: self.loss.clone(),
            impairments: Some(impairments).filter(|it| *it != Impairments::default()),
        }
    }
}

/// Maximum round-trip time in ms: a path delays by at most a minute in each direction.
const MAX_RTT_MS: f64 = 120_000.0;

const EXPECTED_RTT: &str = "expected milliseconds, 0 to 120000";

fn rtt<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let ms = f64::deserialize(from).ok();
    ms.and_then(of_rtt)
        .ok_or_else(|| D::Error::custom(EXPECTED_RTT))
}

fn of_rtt(ms: f64) -> Option<Duration> {
    from_ms(ms).filter(|_| ms <= MAX_RTT_MS)
}

/// Parses a path's round-trip time with a unit, 0ms to 120s.
pub(super) fn parse_rtt(text: &str) -> Result<Duration, BadInput> {
    let rtt = parse_duration(text)?;
    of_rtt(to_ms(rtt)).ok_or_else(|| {
        BadInput(format!(
            "invalid round-trip time `{text}`: expected 0ms to 120s, as in `150ms`"
        ))
    })
}

impl FromStr for Reorder {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let parsed = text.split_once(':').and_then(|(share, late)| {
            let late = late.parse().ok().and_then(from_ms);
            let late = late.filter(|late| !late.is_zero())?;
            let share = share.parse().ok()?;
            Some(Self { share, late })
        });
        parsed.ok_or_else(|| "expected per cent and milliseconds, as in \"1:5\"".into())
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.share, to_ms(self.late))
    }
}

/// Path of a group in one direction, where it differs from the common path; separate for each
/// stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathOverride {
    /// Standard deviation of the delay; packets of a stream stay in order.
    #[serde(with = "times::milliseconds")]
    pub jitter: Option<Duration>,
    /// Lost packets.
    #[serde(with = "own_loss")]
    pub loss: Option<Loss>,
}

impl PathOverride {
    /// Returns whether the group uses the common path.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the emulation of a stream: `common`, with the group's own delay, jitter and loss.
    pub(super) fn emulation(&self, common: &Emulation, delay: Option<Duration>) -> Emulation {
        Emulation {
            delay: delay.unwrap_or(common.delay),
            jitter: self.jitter.map_or(common.jitter, |own| {
                Some(own).filter(|jitter| !jitter.is_zero())
            }),
            loss: self.loss.clone().or_else(|| common.loss.clone()),
            impairments: common.impairments,
        }
    }
}

/// Loss of a group: no list of packets, and 0 exempts the group from the path's loss.
mod own_loss {
    use serde::Deserializer;
    use serde::de::Error;

    use super::super::Loss;
    use super::loss;

    pub(super) use loss::serialize;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Loss>, D::Error> {
        match loss::deserialize(from)? {
            Some(Loss::Listed(_)) => Err(D::Error::custom(
                "lists count the packets of the whole path; list them in [path]",
            )),
            loss => Ok(loss.or(Some(Loss::Uniform(0.0)))),
        }
    }
}

/// Effects of the emulator on the packets of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Emulation {
    /// Delay of each packet.
    pub delay: Duration,
    /// Standard deviation of the delay, which varies with time; packets stay in order.
    pub jitter: Option<Duration>,
    /// Lost packets.
    pub loss: Option<Loss>,
    /// Reordered and duplicated packets.
    pub impairments: Option<Impairments>,
}

/// Reordering and duplication.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Impairments {
    /// Share of packets with additional delay, 0 to 1.
    pub reorder: f64,
    /// Additional delay.
    pub late: Duration,
    /// Share of duplicated packets, 0 to 1.
    pub duplicate: f64,
}

impl From<&Emulation> for Direction {
    /// Converts the emulation for pillion's own path.
    fn from(emulation: &Emulation) -> Self {
        Self {
            jitter: emulation.jitter.unwrap_or_default(),
            loss: emulation.loss.clone().unwrap_or(Loss::Uniform(0.0)),
            disorder: emulation.impairments.map(|impairments| Disorder {
                reorder: impairments.reorder,
                duplicate: impairments.duplicate,
                late: impairments.late,
            }),
            ..Self::delayed(emulation.delay)
        }
    }
}

/// Round-trip times of a group's streams that differ from the path's: `100ms`, `100ms+5ms`, or a
/// distribution.
///
/// Half of the time passes in each direction, after the bottleneck, which remains shared.
#[derive(Debug, Clone, PartialEq)]
pub enum RoundTrips {
    /// Fixed difference between consecutive streams (thesis, section 3.2.3).
    Steps {
        /// Round-trip time of the first stream.
        first: Duration,
        /// Difference to the next stream.
        step: Duration,
    },
    /// Sampled for each stream from the run's seed, in milliseconds.
    Sampled(Distribution),
}

const MAX_STREAM_RTT: Duration = Duration::from_secs(60);

impl RoundTrips {
    /// Returns the round-trip times of consecutive streams.
    pub(super) fn times(&self, seed: u64) -> Box<dyn Iterator<Item = Duration> + '_> {
        match self {
            Self::Steps { first, step } => {
                Box::new((0..).map(move |number: u32| *first + *step * number))
            }
            Self::Sampled(distribution) => {
                let mut draws = Pcg64::seed_from_u64(seed);
                Box::new(std::iter::repeat_with(move || {
                    let ms = distribution.sample(&mut draws);
                    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
                }))
            }
        }
    }
}

impl TimeText for RoundTrips {
    fn parse_text(text: &str) -> Result<Self, BadInput> {
        let (first, step) = text.split_once('+').unwrap_or((text, "0ms"));
        if text.contains(':') {
            return parse_time_distribution(text).map(Self::Sampled);
        }
        let (first, step) = (parse_time(first)?, parse_time(step)?);
        match first.max(step) <= MAX_STREAM_RTT {
            true => Ok(Self::Steps { first, step }),
            false => Err(BadInput(format!(
                "invalid round-trip time `{text}`: expected 0ms to 60s, as in \"100ms\" or \
                 \"100ms+5ms\" (5 ms more for each stream)"
            ))),
        }
    }

    fn to_text(&self) -> String {
        match self {
            Self::Steps { first, step } if step.is_zero() => format!("{}ms", to_ms(*first)),
            Self::Steps { first, step } => format!("{}ms+{}ms", to_ms(*first), to_ms(*step)),
            Self::Sampled(distribution) => distribution.to_text(),
        }
    }
}

/// Losses in files: per cent, `gilbert-elliott:TO_BAD:TO_GOOD:IN_BAD:IN_GOOD` in per cent,
/// `steps:SECONDS=PERCENT,...`, or a list of packets.
pub(super) mod loss {
    use std::fmt;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serialize, Serializer};

    use super::super::{Loss, Share};
    use crate::path::LossStep;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Loss>, D::Error> {
        from.deserialize_any(LossVisitor)
    }

    pub(super) fn serialize<S: Serializer>(loss: &Option<Loss>, to: S) -> Result<S::Ok, S::Error> {
        match loss {
            None => to.serialize_none(),
            Some(Loss::Uniform(share)) => Share::of(*share).serialize(to),
            Some(Loss::Listed(packets)) => packets.serialize(to),
            Some(Loss::Steps(steps)) => {
                let steps = steps.iter().map(|step| {
                    let loss = Share::of(step.loss);
                    format!("{}={loss}", step.start_s)
                });
                to.serialize_str(&format!("{STEPS}{}", steps.collect::<Vec<_>>().join(",")))
            }
            Some(Loss::GilbertElliott {
                to_bad,
                to_good,
                in_bad,
                in_good,
            }) => {
                let shares = [to_bad, to_good, in_bad, in_good];
                let shares = shares.map(|share| Share::of(*share).to_string());
                to.serialize_str(&format!("{NAME}{}", shares.join(":")))
            }
        }
    }

    const NAME: &str = "gilbert-elliott:";

    const STEPS: &str = "steps:";

    const EXPECTED: &str = "per cent, as in 2, or \"gilbert-elliott:TO_BAD:TO_GOOD[:IN_BAD[:IN_GOOD]]\" in \
                        per cent, or \"steps:0=PERCENT,SECONDS=PERCENT,...\", or a list of packets, as in \
                        [10, 11]";

    fn parse_steps(text: &str) -> Option<Vec<LossStep>> {
        let step = |text: &str| {
            let (start, loss) = text.split_once('=')?;
            let loss: Share = loss.parse().ok()?;
            Some(LossStep {
                start_s: start.parse().ok()?,
                loss: loss.get(),
            })
        };
        text.split(',').map(step).collect()
    }

    #[derive(Clone, Copy)]
    struct LossVisitor;

    impl LossVisitor {
        fn invalid<E: Error>(self) -> E {
            E::custom(format!("expected {EXPECTED}"))
        }
    }

    impl<'de> Visitor<'de> for LossVisitor {
        type Value = Option<Loss>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(EXPECTED)
        }

        fn visit_f64<E: Error>(self, percent: f64) -> Result<Option<Loss>, E> {
            let share = Share::try_from(percent).map_err(|_| self.invalid())?.get();
            Ok((share > 0.0).then_some(Loss::Uniform(share)))
        }

        fn visit_i64<E: Error>(self, percent: i64) -> Result<Option<Loss>, E> {
            self.visit_f64(percent as f64)
        }

        fn visit_u64<E: Error>(self, percent: u64) -> Result<Option<Loss>, E> {
            self.visit_f64(percent as f64)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Option<Loss>, E> {
            if let Some(steps) = text.strip_prefix(STEPS) {
                let steps = parse_steps(steps).map(Loss::Steps);
                let valid = steps.filter(|steps| steps.invalid_parameter().is_none());
                return valid.map(Some).ok_or_else(|| self.invalid());
            }
            let shares = text.strip_prefix(NAME).into_iter();
            let shares = shares.flat_map(|text| text.split(':'));
            let shares = shares.map(|text| text.parse().map(Share::get));
            let shares: Vec<f64> = shares.collect::<Result<_, _>>().unwrap_or_default();
            let &[to_bad, to_good, ref rest @ ..] = &shares[..] else {
                return Err(self.invalid());
            };
            let (in_bad, in_good) = match rest {
                [] => (1.0, 0.0),
                [in_bad] => (*in_bad, 0.0),
                [in_bad, in_good] => (*in_bad, *in_good),
                _ => return Err(self.invalid()),
            };
            Ok(Some(Loss::GilbertElliott {
                to_bad,
                to_good,
                in_bad,
                in_good,
            }))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<Loss>, A::Error> {
            let mut packets = Vec::new();
            while let Some(packet) = list.next_element::<u32>()? {
                if packet == 0 {
                    return Err(A::Error::custom("expected a packet's number, from 1"));
                }
                packets.push(u64::from(packet));
            }
            packets.sort_unstable();
            packets.dedup();
            Ok((!packets.is_empty()).then_some(Loss::Listed(packets)))
        }
    }
}
