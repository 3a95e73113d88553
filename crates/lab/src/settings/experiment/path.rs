//! The path as files describe it: delay, jitter, loss, and what single groups and streams have of their own.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::times::{of_ms, parse_ms, to_ms};
use pillion_cli::settings::{BadInput, text, times};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::{Loss, Share};
use crate::path::{Direction, Disorder};
use crate::traffic::Distribution;

/// The emulator: its own keys are those of the direction to the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Path {
    /// The round-trip time, half of it each way.
    #[serde(
        deserialize_with = "rtt",
        serialize_with = "times::milliseconds::serialize"
    )]
    pub rtt: Duration,
    /// The direction to the receiver.
    #[serde(flatten)]
    pub forward: PathDirection,
    /// The direction back.
    pub back: PathDirection,
}

flattened!(Path);

/// What is done to packets in one direction, beside the delay that follows from the round-trip
/// time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct PathDirection {
    /// The standard deviation of the delay; packets keep their order.
    #[serde(with = "times::milliseconds")]
    pub jitter: Duration,
    /// Which packets are lost.
    #[serde(with = "loss")]
    pub loss: Option<Loss>,
    /// Which packets come out of order.
    #[serde(with = "text::option")]
    pub reorder: Option<Reorder>,
    /// Share of packets that come twice.
    pub duplicate: Share,
}

/// Packets that are held back, so that others overtake them: `PERCENT:MS`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// Share of packets that are held back.
    pub share: Share,
    /// By how much longer than others such a packet is held.
    pub late: Duration,
}

impl Path {
    /// What is done to packets on their way to the receiver.
    pub(super) fn forward(&self) -> Emulation {
        self.forward.delayed(self.rtt / 2)
    }

    /// What is done to packets on their way back.
    pub(super) fn backward(&self) -> Emulation {
        self.back.delayed(self.rtt / 2)
    }
}

impl PathDirection {
    fn delayed(&self, delay: Duration) -> Emulation {
        let disturbance = Disturbance {
            reorder: self.reorder.map_or(0.0, |reorder| reorder.share.get()),
            late: self.reorder.map_or(Duration::ZERO, |reorder| reorder.late),
            duplicate: self.duplicate.get(),
        };
        Emulation {
            delay,
            jitter: Some(self.jitter).filter(|jitter| !jitter.is_zero()),
            loss: self.loss.clone(),
            disturbance: Some(disturbance).filter(|it| *it != Disturbance::default()),
        }
    }
}

/// The longest round-trip time in milliseconds: a path delays a minute each way at most.
const LONGEST_MS: f64 = 120_000.0;

const EXPECTED_RTT: &str = "expected milliseconds, 0 to 120000";

fn rtt<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let ms = f64::deserialize(from).ok();
    ms.and_then(of_rtt)
        .ok_or_else(|| D::Error::custom(EXPECTED_RTT))
}

fn of_rtt(ms: f64) -> Option<Duration> {
    of_ms(ms).filter(|_| ms <= LONGEST_MS)
}

/// A path's round-trip time in milliseconds.
pub(super) fn parse_rtt(text: &str) -> Result<Duration, BadInput> {
    let ms = text.parse().ok();
    ms.and_then(of_rtt).ok_or_else(|| EXPECTED_RTT.into())
}

impl FromStr for Reorder {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let parsed = text.split_once(':').and_then(|(share, late)| {
            let late = parse_ms(late).ok().filter(|late| !late.is_zero())?;
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

/// What the packets of a group meet in one direction, where that differs from the path's: for each
/// of its streams apart from others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct OwnWay {
    /// The standard deviation of the delay; packets of a stream keep their order.
    #[serde(with = "times::milliseconds")]
    pub jitter: Option<Duration>,
    /// Which packets are lost.
    #[serde(with = "own_loss")]
    pub loss: Option<Loss>,
}

impl OwnWay {
    /// Whether all is as the path has it.
    pub(super) fn is_common(&self) -> bool {
        *self == Self::default()
    }

    /// What is done to packets of a stream that has this delay, where others have `common`.
    pub(super) fn emulation(&self, common: &Emulation, delay: Option<Duration>) -> Emulation {
        Emulation {
            delay: delay.unwrap_or(common.delay),
            jitter: self.jitter.map_or(common.jitter, |own| {
                Some(own).filter(|jitter| !jitter.is_zero())
            }),
            loss: self.loss.clone().or_else(|| common.loss.clone()),
            disturbance: common.disturbance,
        }
    }
}

/// As the path has it, but that no list can be of one group's packets, and that 0 says that none of
/// them is lost, whatever the path loses.
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
                "a list counts the packets of the whole path; list them in [path]",
            )),
            loss => Ok(loss.or(Some(Loss::Uniform(0.0)))),
        }
    }
}

/// What the emulator does to the packets of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Emulation {
    /// By how much each packet is delayed.
    pub delay: Duration,
    /// The standard deviation of the delay, which varies with time; packets keep their order.
    pub jitter: Option<Duration>,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// How many packets come out of order or twice.
    pub disturbance: Option<Disturbance>,
}

/// Packets out of order or twice.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Disturbance {
    /// Share of packets that are held back, 0 to 1.
    pub reorder: f64,
    /// By how much longer than the others.
    pub late: Duration,
    /// Share of packets that come twice, 0 to 1.
    pub duplicate: f64,
}

impl From<&Emulation> for Direction {
    /// What pillion's own path is to do for it.
    fn from(emulation: &Emulation) -> Self {
        Self {
            jitter: emulation.jitter.unwrap_or_default(),
            loss: emulation.loss.clone().unwrap_or(Loss::Uniform(0.0)),
            disorder: emulation.disturbance.map(|disturbance| Disorder {
                reorder: disturbance.reorder,
                duplicate: disturbance.duplicate,
                late: disturbance.late,
            }),
            ..Self::delayed(emulation.delay)
        }
    }
}

/// Round-trip times of the streams of a group, where they are not the path's: `100`, `100+5`, or a
/// distribution.
///
/// Half of it passes on the way to the receiver, and half on the way back, both behind the
/// bottleneck: that stays shared with others.
#[derive(Debug, Clone, PartialEq)]
pub enum RoundTrips {
    /// The first stream's, and how much more each next one has (thesis, section 3.2.3).
    Steps {
        /// The round-trip time of the first stream.
        first: Duration,
        /// What each next one has more.
        step: Duration,
    },
    /// Drawn for each stream, in milliseconds, from the run's seed.
    Drawn(Distribution),
}

const LONGEST: Duration = Duration::from_secs(60);

impl RoundTrips {
    /// The round-trip times of one stream after the other.
    pub(super) fn times(&self, seed: u64) -> Box<dyn Iterator<Item = Duration> + '_> {
        match self {
            Self::Steps { first, step } => {
                Box::new((0..).map(move |number: u32| *first + *step * number))
            }
            Self::Drawn(distribution) => {
                let mut draws = Pcg64::seed_from_u64(seed);
                Box::new(std::iter::repeat_with(move || {
                    let ms = distribution.draw(&mut draws);
                    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
                }))
            }
        }
    }
}

impl FromStr for RoundTrips {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let steps = |first: &str, step: &str| {
            let (first, step) = (parse_ms(first).ok()?, parse_ms(step).ok()?);
            Some(Self::Steps { first, step })
        };
        let found = match text.split_once('+') {
            Some((first, step)) => steps(first, step),
            None => steps(text, "0").or_else(|| {
                let drawn = text.strip_prefix("normal:").unwrap_or(text);
                drawn.parse().ok().map(Self::Drawn)
            }),
        };
        let longest = |round_trips: &Self| match round_trips {
            Self::Steps { first, step } => (*first).max(*step),
            Self::Drawn(_) => Duration::ZERO,
        };
        let expected = "expected milliseconds, as in 100, or \"100+5\" (5 more for each next stream), \
                        or a distribution, as in \"normal:200:50\"";
        let found = found.filter(|found| longest(found) <= LONGEST);
        found.ok_or_else(|| expected.into())
    }
}

impl fmt::Display for RoundTrips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps { first, step } if step.is_zero() => to_ms(*first).fmt(f),
            Self::Steps { first, step } => write!(f, "{}+{}", to_ms(*first), to_ms(*step)),
            Self::Drawn(distribution) => distribution.fmt(f),
        }
    }
}

/// Which packets are lost, as files have it: per cent, `gilbert-elliott:TO_BAD:TO_GOOD:IN_BAD:IN_GOOD`
/// in per cent, or a list of packets.
pub(super) mod loss {
    use std::fmt;

    use serde::de::{Error, SeqAccess, Visitor};
    use serde::{Deserializer, Serialize, Serializer};

    use super::super::{Loss, Share};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Loss>, D::Error> {
        from.deserialize_any(AsWritten)
    }

    pub(super) fn serialize<S: Serializer>(loss: &Option<Loss>, to: S) -> Result<S::Ok, S::Error> {
        match loss {
            None => to.serialize_none(),
            Some(Loss::Uniform(share)) => Share::of(*share).serialize(to),
            Some(Loss::Listed(packets)) => packets.serialize(to),
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

    const EXPECTED: &str = "per cent, as in 2, or \"gilbert-elliott:TO_BAD:TO_GOOD[:IN_BAD[:IN_GOOD]]\" in \
                        per cent, or a list of packets, as in [10, 11]";

    #[derive(Clone, Copy)]
    struct AsWritten;

    impl AsWritten {
        fn wrong<E: Error>(self) -> E {
            E::custom(format!("expected {EXPECTED}"))
        }
    }

    impl<'de> Visitor<'de> for AsWritten {
        type Value = Option<Loss>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str(EXPECTED)
        }

        fn visit_f64<E: Error>(self, percent: f64) -> Result<Option<Loss>, E> {
            let share = Share::try_from(percent).map_err(|_| self.wrong())?.get();
            Ok((share > 0.0).then_some(Loss::Uniform(share)))
        }

        fn visit_i64<E: Error>(self, percent: i64) -> Result<Option<Loss>, E> {
            self.visit_f64(percent as f64)
        }

        fn visit_u64<E: Error>(self, percent: u64) -> Result<Option<Loss>, E> {
            self.visit_f64(percent as f64)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Option<Loss>, E> {
            let shares = text.strip_prefix(NAME).into_iter();
            let shares = shares.flat_map(|text| text.split(':'));
            let shares = shares.map(|text| text.parse().map(Share::get));
            let shares: Vec<f64> = shares.collect::<Result<_, _>>().unwrap_or_default();
            let &[to_bad, to_good, ref rest @ ..] = &shares[..] else {
                return Err(self.wrong());
            };
            let (in_bad, in_good) = match rest {
                [] => (1.0, 0.0),
                [in_bad] => (*in_bad, 0.0),
                [in_bad, in_good] => (*in_bad, *in_good),
                _ => return Err(self.wrong()),
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
