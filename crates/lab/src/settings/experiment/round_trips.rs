use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::traffic::Distribution;
use rand::SeedableRng;
use rand_pcg::Pcg64;

use pillion_cli::settings::BadInput;
use pillion_cli::settings::times::{parse_ms, to_ms};

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
