//! Profiles of applications, from the papers' packet statistics.
//!
//! Times: the quantile function passes through the row's minimum, 1 %, median, 99 % and maximum.
//! Between two of these it rises as a power of the probability. The power is the same everywhere,
//! and gives the row's mean. Sizes, which have fewer statistics: one message in a thousand has the
//! minimum size and one the maximum. Between them, the quantile function rises as a power that
//! gives the row's mean. `<1` is 0 for a minimum, otherwise half a millisecond or half the mean,
//! whichever is less. Sizes and times are sampled independently, unlike the applications'.

use serde::{Deserialize, Serialize};

use crate::traffic::distribution::{Distribution, Table, TableError};
use crate::traffic::plan::Kind;

/// A row of the statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The profile's name in options.
    pub name: String,
    /// The application.
    pub application: String,
    /// The captured transport protocol; pillion sends TCP.
    #[serde(default = "tcp")]
    pub transport: String,
    /// The papers and tables with the row.
    pub sources: String,
    /// Contradictions of the row, and the values used instead.
    #[serde(default)]
    pub note: Option<String>,
    /// Payload of a packet in bytes.
    pub size: Sizes,
    /// Milliseconds between two packets.
    pub iat: Times,
}

/// Statistics of payload sizes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Minimum.
    pub min: f64,
    /// Mean.
    pub avg: f64,
    /// Maximum.
    pub max: f64,
}

/// Statistics of times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Minimum.
    pub min: Time,
    /// Mean.
    pub avg: f64,
    /// Median.
    pub med: Time,
    /// Maximum.
    pub max: f64,
    /// 1 % quantile.
    pub p1: Time,
    /// 99 % quantile.
    pub p99: Time,
}

/// A time of a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Time {
    /// In milliseconds.
    Ms(f64),
    /// Printed as `<1`.
    Below(BelowOne),
}

/// A time below one millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BelowOne {
    /// Printed as `<1`.
    #[serde(rename = "<1")]
    BelowOne,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// Share of messages with the minimum size, and with the maximum size.
const EXTREME_SHARE: f64 = 0.001;

/// Returns all rows, in the order of the thesis's table.
pub fn profiles() -> Vec<Profile> {
    #[derive(Deserialize)]
    struct File {
        profile: Vec<Profile>,
    }
    let file: File = toml::from_str(include_str!("profiles.toml")).expect("a test reads it");
    file.profile
}

impl Profile {
    /// Returns the kind of streams that follows the profile.
    ///
    /// # Errors
    /// [`TableError::Points`] for unordered numbers; no row of [`profiles`] has them.
    pub fn kind(&self) -> Result<Kind, TableError> {
        Ok(Kind::Thin {
            itt: Distribution::Table(self.iat.table()?),
            size: Distribution::Table(self.size.table()?),
        })
    }
}

impl Sizes {
    fn table(&self) -> Result<Table, TableError> {
        // A mean that was rounded to the minimum is impossible.
        let avg = if self.avg <= self.min {
            self.min + 0.25
        } else {
            self.avg
        };
        let rest = (avg - EXTREME_SHARE * (self.min + self.max)) / (1.0 - 2.0 * EXTREME_SHARE);
        let bend = (self.max - self.min) / (rest - self.min) - 1.0;
        let body = Table::with_bend(&[(0.0, self.min), (1.0, self.max)], bend.max(1e-6))?;
        Ok(body.with_extremes(EXTREME_SHARE))
    }
}

impl Times {
    fn table(&self) -> Result<Table, TableError> {
        let below = 0.5_f64.min(self.avg / 2.0);
        let ms = |time| match time {
            Time::Ms(ms) => ms,
            Time::Below(_) => below,
        };
        let min = match self.min {
            Time::Ms(ms) => ms,
            Time::Below(_) => 0.0,
        };
        let points = [
            (0.0, min),
            (0.01, ms(self.p1)),
            (0.5, ms(self.med)),
            (0.99, ms(self.p99)),
            (1.0, self.max),
        ];
        // With bend b, each piece's mean is its lower end plus its rise / (b + 1).
        let (low, rise) = points.windows(2).fold((0.0, 0.0), |(low, rise), pair| {
            let share = pair[1].0 - pair[0].0;
            (
                low + share * pair[0].1,
                rise + share * (pair[1].1 - pair[0].1),
            )
        });
        Table::with_bend(&points, (rise / (self.avg - low) - 1.0).max(1e-6))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::*;

    const SAMPLES: usize = 200_000;

    fn sampled(distribution: &Distribution) -> Vec<f64> {
        let mut rng = Pcg64::seed_from_u64(1);
        let mut values: Vec<f64> = (0..SAMPLES)
            .map(|_| distribution.sample(&mut rng))
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// Rows are printed in whole numbers, so half a unit is exact; `share` allows for chance.
    fn near(what: &str, found: f64, printed: f64, share: f64) {
        let tolerance = 0.5 + share * printed;
        assert!(
            (found - printed).abs() <= tolerance,
            "{what}: {found}, printed {printed}"
        );
    }

    #[test]
    fn profiles_contain_rows_of_all_tables() {
        let profiles = profiles();
        let in_source = |source| {
            profiles
                .iter()
                .filter(|p| p.sources.contains(source))
                .count()
        };
        assert_eq!(
            (in_source("001"), in_source("002"), in_source("000")),
            (19, 7, 6)
        );
        assert!(profiles.iter().all(|profile| profile.kind().is_ok()));
    }

    #[test]
    fn profile_times_match_row() {
        for profile in profiles() {
            let Kind::Thin { itt, .. } = profile.kind().unwrap() else {
                panic!("{profile:?}")
            };
            let values = sampled(&itt);
            let (name, row) = (&profile.name, profile.iat);
            let at = |share: f64| values[((share * SAMPLES as f64) as usize).min(SAMPLES - 1)];
            for (share, printed, tolerance) in [
                (0.0, row.min, 0.0),
                // Three deviations of the rank are 1 % +- 0.07 %, 50 +- 0.34 % and 99 +- 0.07 %.
                // Higher bends make the pieces' ends steeper, by up to 24 times at the median.
                (0.01, row.p1, 0.06),
                (0.5, row.med, 0.08),
                (0.99, row.p99, 0.06),
                // The maximum of the 2,000 samples above 99 % is within a few per cent.
                (1.0, Time::Ms(row.max), 0.05),
            ] {
                let what = format!("{name} at {share}");
                match printed {
                    Time::Ms(ms) => near(&what, at(share), ms, tolerance),
                    Time::Below(_) => assert!(at(share) < 1.0, "{what}: {}", at(share)),
                }
            }
            assert!(
                (itt.mean() - row.avg).abs() < 0.01 * row.avg,
                "{name}: {}",
                itt.mean()
            );
            let mean = values.iter().sum::<f64>() / SAMPLES as f64;
            // The rare longest times dominate the mean: SSH's deviation is 5 times its mean.
            assert!(
                (mean - row.avg).abs() < 0.06 * row.avg,
                "{name}: mean {mean}"
            );
        }
    }

    #[test]
    fn profile_sizes_match_row() {
        for profile in profiles() {
            let Kind::Thin { size, .. } = profile.kind().unwrap() else {
                panic!("{profile:?}")
            };
            let values = sampled(&size);
            let (name, row) = (&profile.name, profile.size);
            assert_eq!(
                (values[0], values[SAMPLES - 1]),
                (row.min, row.max),
                "{name}"
            );
            let mean = values.iter().sum::<f64>() / SAMPLES as f64;
            near(name, mean, row.avg, 0.02);
        }
    }
}
