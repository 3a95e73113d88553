//! Applications as the papers' packet statistics describe them.
//!
//! Times: the quantile function goes through the row's minimum, 1 %, median, 99 % and maximum, and
//! between two of these climbs as a power of the probability, the same power everywhere, chosen so
//! that the mean is the row's average. Sizes, of which the rows give less: one message in a
//! thousand has the least size and one the largest, and between them the quantile function climbs
//! from one to the other as a power that makes the mean the row's. `<1` is 0 where it is the
//! minimum, and else half a millisecond or half the average, whichever is less. Sizes and times
//! are drawn independently of each other, which the applications' were not.

use serde::{Deserialize, Serialize};

use crate::traffic::distribution::{Distribution, Table, TableError};
use crate::traffic::plan::Kind;

/// One row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What to call it by.
    pub name: String,
    /// The application.
    pub application: String,
    /// The transport that it was captured over; pillion sends TCP.
    #[serde(default = "tcp")]
    pub transport: String,
    /// The papers and tables that have the row.
    pub sources: String,
    /// Where the row contradicts itself, and what is taken instead.
    #[serde(default)]
    pub note: Option<String>,
    /// Payload of a packet in bytes.
    pub size: Sizes,
    /// Milliseconds between two packets.
    pub iat: Times,
}

/// What a row says of payload sizes, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// Least.
    pub min: f64,
    /// Average.
    pub avg: f64,
    /// Largest.
    pub max: f64,
}

/// What a row says of times, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// Least.
    pub min: Time,
    /// Average.
    pub avg: f64,
    /// Median.
    pub med: Time,
    /// Largest.
    pub max: f64,
    /// 1 % are below.
    pub p1: Time,
    /// 99 % are below.
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

/// Less than a millisecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BelowOne {
    /// The mean that is printed, below one.
    #[serde(rename = "<1")]
    BelowOne,
}

fn tcp() -> String {
    "TCP".to_owned()
}

/// The share of messages of the least size, and of the largest.
const EXTREME: f64 = 0.001;

/// All rows, in the order of the thesis's table.
pub fn profiles() -> Vec<Profile> {
    #[derive(Deserialize)]
    struct File {
        profile: Vec<Profile>,
    }
    let file: File = toml::from_str(include_str!("profiles.toml")).expect("a test reads it");
    file.profile
}

impl Profile {
    /// Streams that behave so.
    ///
    /// # Errors
    /// [`TableError::Points`] for numbers out of order, which no row of [`profiles`] has.
    pub fn kind(&self) -> Result<Kind, TableError> {
        Ok(Kind::Thin {
            itt: Distribution::Table(self.iat.table()?),
            size: Distribution::Table(self.size.table()?),
        })
    }
}

impl Sizes {
    fn table(&self) -> Result<Table, TableError> {
        // An average that rounding has made the least size cannot be.
        let avg = if self.avg <= self.min {
            self.min + 0.25
        } else {
            self.avg
        };
        let rest = (avg - EXTREME * (self.min + self.max)) / (1.0 - 2.0 * EXTREME);
        let bend = (self.max - self.min) / (rest - self.min) - 1.0;
        let body = Table::bent(&[(0.0, self.min), (1.0, self.max)], bend.max(1e-6))?;
        Ok(body.between(EXTREME))
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
        // With bend b each piece's mean is its lower end plus its rise / (b + 1).
        let (low, rise) = points.windows(2).fold((0.0, 0.0), |(low, rise), pair| {
            let share = pair[1].0 - pair[0].0;
            (
                low + share * pair[0].1,
                rise + share * (pair[1].1 - pair[0].1),
            )
        });
        Table::bent(&points, (rise / (self.avg - low) - 1.0).max(1e-6))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    use super::*;

    const DRAWS: usize = 200_000;

    fn drawn(distribution: &Distribution) -> Vec<f64> {
        let mut draws = Pcg64::seed_from_u64(1);
        let mut values: Vec<f64> = (0..DRAWS).map(|_| distribution.draw(&mut draws)).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    /// Rows are printed in whole numbers, so that half of one is right; `share` covers what is left
    /// to chance.
    fn near(what: &str, found: f64, printed: f64, share: f64) {
        let tolerance = 0.5 + share * printed;
        assert!(
            (found - printed).abs() <= tolerance,
            "{what}: {found}, printed {printed}"
        );
    }

    #[test]
    fn the_rows_of_all_tables_are_there() {
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
    fn times_reproduce_their_row() {
        for profile in profiles() {
            let Kind::Thin { itt, .. } = profile.kind().unwrap() else {
                panic!("{profile:?}")
            };
            let values = drawn(&itt);
            let (name, row) = (&profile.name, profile.iat);
            let at = |share: f64| values[((share * DRAWS as f64) as usize).min(DRAWS - 1)];
            for (share, printed, tolerance) in [
                (0.0, row.min, 0.0),
                // Three deviations of the rank are 1 % +- 0.07 %, 50 +- 0.34 % and 99 +- 0.07 %, and the
                // more the pieces are bent, the steeper they end: by up to 24 times at the median.
                (0.01, row.p1, 0.06),
                (0.5, row.med, 0.08),
                (0.99, row.p99, 0.06),
                // Of the 2,000 draws above 99 % the largest comes within a few per cent.
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
            let mean = values.iter().sum::<f64>() / DRAWS as f64;
            // The rare longest times decide over the mean: SSH's deviation is 5 times its mean.
            assert!(
                (mean - row.avg).abs() < 0.06 * row.avg,
                "{name}: mean {mean}"
            );
        }
    }

    #[test]
    fn sizes_reproduce_their_row() {
        for profile in profiles() {
            let Kind::Thin { size, .. } = profile.kind().unwrap() else {
                panic!("{profile:?}")
            };
            let values = drawn(&size);
            let (name, row) = (&profile.name, profile.size);
            assert_eq!((values[0], values[DRAWS - 1]), (row.min, row.max), "{name}");
            let mean = values.iter().sum::<f64>() / DRAWS as f64;
            near(name, mean, row.avg, 0.02);
        }
    }
}
