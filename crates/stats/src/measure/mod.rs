//! What a measure is, and how many values of one are told in few.
//!
//! * [`Measure`]: a name, a label, a unit and a meaning, with where to find it.
//! * [`Percentile`]: the shares that are told of a distribution, and what they are called.
//! * [`nearest_rank`]: what a quantile is; [`quantile`] of values in order.
//! * [`share`]: of a part in the whole.
//! * [`students_t`], [`normal_tail`]: how far an interval of confidence reaches.
//! * [`Distribution`]: times and sizes, of which as much is kept as quantiles need.
//! * [`thinned`]: a cumulative distribution in few points.

mod curve;
mod distribution;
mod percentile;
mod rank;
mod share;
mod student;

use serde::{Serialize, Serializer};

pub use curve::{Step, thinned};
pub use distribution::{Distribution, Moments};
pub use percentile::Percentile;
pub use rank::{nearest_rank, quantile};
pub use share::share;
pub use student::{normal_tail, students_t};

/// A measure: all that is said of it anywhere follows from here.
#[derive(Debug, Clone, Copy)]
pub struct Measure<F> {
    /// The measure's name in JSON and in tables for other tools, with its unit at the end.
    pub name: &'static str,
    /// What people call the measure.
    pub label: &'static str,
    /// The unit of the measure's values.
    pub unit: Unit,
    /// What the measure is, in a sentence without a full stop.
    pub meaning: &'static str,
    /// Where the measure's value is found.
    pub of: F,
}

/// The unit of a measure's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A time in milliseconds.
    Milliseconds,
    /// A size in bytes.
    Bytes,
    /// A number of things; the label says which.
    Number,
    /// A rate in bits per second.
    BitPerSecond,
    /// A share, from 0 to 1.
    Share,
}

impl Unit {
    /// The unit as it stands behind a number; empty where it needs none.
    #[must_use]
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Bytes => "B",
            Self::BitPerSecond => "bit/s",
            Self::Number | Self::Share => "",
        }
    }
}

impl<F> Measure<F> {
    /// The measure's label with its unit.
    #[must_use]
    pub fn heading(&self) -> String {
        match self.unit.symbol() {
            "" => self.label.to_owned(),
            unit => format!("{}, {unit}", self.label),
        }
    }
}

/// Serialises a measure as its name.
impl<F> Serialize for Measure<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}
