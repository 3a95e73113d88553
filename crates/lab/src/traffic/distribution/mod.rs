//! Distributions of sizes and times.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_pcg::Pcg64;

use crate::traffic::list::{CsvList, ListError};

/// A distribution of sizes in bytes or of times in milliseconds, never negative.
///
/// The parameters are the mean and standard deviation of the samples. Only a
/// [`Distribution::Normal`] with a large deviation relative to its mean departs from them, because
/// negative samples are repeated.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// A constant value.
    Constant {
        /// The value.
        mean: f64,
    },
    /// Normal, truncated at 0.
    Normal {
        /// Mean before the truncation.
        mean: f64,
        /// Standard deviation before the truncation.
        sd: f64,
    },
    /// Exponential.
    Exponential {
        /// Mean.
        mean: f64,
    },
    /// Pareto, with the minimum `mean * (shape - 1) / shape`.
    Pareto {
        /// Mean.
        mean: f64,
        /// Above 1; smaller values mean heavier tails. Up to 2, the variance is infinite.
        shape: f64,
    },
    /// Log-normal.
    LogNormal {
        /// Mean of the values, not of their logarithms.
        mean: f64,
        /// Standard deviation of the values.
        sd: f64,
    },
    /// A table of measured values.
    Table(Table),
}

impl Distribution {
    /// Creates a distribution with a constant value.
    pub fn constant(mean: f64) -> Self {
        Self::Constant { mean }
    }

    /// Returns the first invalid parameter; the mean must be above 0 and finite.
    ///
    /// # Errors
    /// [`DistributionError::Mean`], [`DistributionError::Deviation`] or
    /// [`DistributionError::Shape`].
    pub fn validate(&self) -> Result<(), DistributionError> {
        let mean = self.mean();
        if !(mean.is_finite() && mean > 0.0) {
            return Err(DistributionError::Mean(mean));
        }
        match *self {
            Self::Normal { sd, .. } | Self::LogNormal { sd, .. } if !(0.0..1e300).contains(&sd) => {
                Err(DistributionError::Deviation(sd))
            }
            // For a wider distribution, the parameters of its logarithm overflow.
            Self::LogNormal { mean, sd } if !(sd / mean).powi(2).is_finite() => {
                Err(DistributionError::Deviation(sd))
            }
            Self::Pareto { shape, .. } if !(1.0 < shape && shape.is_finite()) => {
                Err(DistributionError::Shape(shape))
            }
            _ => Ok(()),
        }
    }

    /// Returns the mean; for a normal distribution, before its truncation.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Constant { mean }
            | Self::Normal { mean, .. }
            | Self::Exponential { mean }
            | Self::Pareto { mean, .. }
            | Self::LogNormal { mean, .. } => *mean,
            Self::Table(table) => table.mean(),
        }
    }

    /// Samples a value.
    pub fn sample(&self, rng: &mut Pcg64) -> f64 {
        let mut normal = |mean: f64, sd: f64| {
            let standard: f64 = StandardNormal.sample(rng);
            mean + sd * standard
        };
        match self {
            Self::Constant { mean } => *mean,
            Self::Normal { mean, sd } => loop {
                let value = normal(*mean, *sd);
                // NaN if both parameters are infinite, which is invalid.
                if value >= 0.0 || value.is_nan() {
                    return value;
                }
            },
            Self::Exponential { mean } => {
                let standard: f64 = Exp1.sample(rng);
                mean * standard
            }
            Self::Pareto { mean, shape } => {
                let min = mean * (shape - 1.0) / shape;
                min * (1.0 - rng.random::<f64>()).powf(-1.0 / shape)
            }
            Self::LogNormal { mean, sd } => {
                let variance = (sd / mean).powi(2).ln_1p();
                normal(mean.ln() - variance / 2.0, variance.sqrt()).exp()
            }
            Self::Table(table) => table.sample(rng),
        }
    }
}

/// Why a distribution is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// The name is unknown, or a parameter is missing, superfluous or not a number.
    #[error(
        "invalid distribution `{0}`: expected MEAN, MEAN:SD, constant:MEAN, normal:MEAN:SD, \
        exponential:MEAN, pareto:MEAN:SHAPE, lognormal:MEAN:SD, table:FILE, values:V,V,... or \
        quantiles:Q=V,Q=V,..."
    )]
    Text(String),
    /// The mean is not above 0, or not finite.
    #[error("invalid mean {0}: expected a number above 0")]
    Mean(f64),
    /// The standard deviation is negative or too large.
    #[error("invalid standard deviation {0}: expected 0 or more, and a finite variance")]
    Deviation(f64),
    /// The shape is at most 1, so the mean is infinite.
    #[error("invalid shape {0}: expected a number above 1, because the mean is infinite up to 1")]
    Shape(f64),
    /// The table is invalid.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Distribution {
    /// Parses `MEAN`, `MEAN:SD` (normal), `NAME:PARAMETERS`, `table:FILE` (reads the file), or a
    /// table itself: `values:1,2,2,7` or `quantiles:0=1,0.5=2,1=7`.
    ///
    /// # Errors
    /// If the text has none of these forms, a parameter is invalid, or the file is not a table.
    pub fn parse(text: &str) -> Result<Self, DistributionError> {
        let wrong = || DistributionError::Text(text.to_owned());
        if let Some(file) = text.strip_prefix("table:") {
            return Ok(Self::Table(Table::read_csv(Path::new(file))?));
        }
        if let Some(values) = text.strip_prefix("values:") {
            let values: Option<_> = values.split(',').map(|value| value.parse().ok()).collect();
            return Ok(Self::Table(Table::from_values(values.ok_or_else(wrong)?)?));
        }
        if let Some(points) = text.strip_prefix("quantiles:") {
            let point = |text: &str| {
                let (quantile, value) = text.split_once('=')?;
                Some((quantile.parse().ok()?, value.parse().ok()?))
            };
            let points: Option<Vec<_>> = points.split(',').map(point).collect();
            return Ok(Self::Table(Table::from_quantiles(
                &points.ok_or_else(wrong)?,
            )?));
        }
        let mut parts = text.split(':').peekable();
        let name = parts
            .next_if(|part| !part.is_empty() && part.parse::<f64>().is_err())
            .unwrap_or("");
        let numbers: Result<Vec<f64>, _> = parts.map(str::parse).collect();
        let distribution = match (name, &numbers.map_err(|_| wrong())?[..]) {
            ("" | "constant", &[mean]) => Self::Constant { mean },
            ("" | "normal", &[mean, sd]) => match sd == 0.0 {
                true => Self::Constant { mean },
                false => Self::Normal { mean, sd },
            },
            ("exponential", &[mean]) => Self::Exponential { mean },
            ("pareto", &[mean, shape]) => Self::Pareto { mean, shape },
            ("lognormal", &[mean, sd]) => Self::LogNormal { mean, sd },
            _ => return Err(wrong()),
        };
        distribution.validate()?;
        Ok(distribution)
    }
}

impl FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Self, DistributionError> {
        Self::parse(text)
    }
}

impl fmt::Display for Distribution {
    /// Formats the distribution in the syntax of [`Distribution::parse`]. Tables of profiles have
    /// no such syntax.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant { mean } => write!(f, "{mean}"),
            Self::Normal { mean, sd } => write!(f, "{mean}:{sd}"),
            Self::Exponential { mean } => write!(f, "exponential:{mean}"),
            Self::Pareto { mean, shape } => write!(f, "pareto:{mean}:{shape}"),
            Self::LogNormal { mean, sd } => write!(f, "lognormal:{mean}:{sd}"),
            Self::Table(table) => f.write_str(&table.to_text()),
        }
    }
}

/// A distribution given by points of its quantile function.
///
/// Between two points, the value rises as a power of the probability: linearly with bend 1, later
/// and steeper with a higher bend. A table of equally probable values has one step for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pieces: Vec<Piece>,
}

/// A piece of the quantile function: probability and value at both ends, and the bend.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    from: (f64, f64),
    to: (f64, f64),
    bend: f64,
}

/// Why a table is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TableError {
    /// The file or one of its lines cannot be read.
    #[error(transparent)]
    CsvList(#[from] ListError),
    /// The points are invalid.
    #[error("{0}")]
    Points(&'static str),
}

const INVALID_POINTS: &str = "a table's quantiles must start with 0, end with 1 and rise, \
                      and its values must be 0 or more, at most 1e9, and never fall";

const EXPECTED_HEADER: &str = "expected the header `value` or `quantile,value`";
const EXPECTED_FIELDS: &str = "expected as many fields as the header has";
const EXPECTED_NUMBERS: &str = "expected numbers with a decimal point, as in 0.5";

impl Table {
    /// Creates a table from points (probability, value) joined by straight lines.
    ///
    /// # Errors
    /// [`TableError::Points`] unless the probabilities rise from 0 to 1 and the values, from 0 to
    /// 1e9, never fall.
    pub fn from_quantiles(points: &[(f64, f64)]) -> Result<Self, TableError> {
        Self::with_bend(points, 1.0)
    }

    /// Creates a table from points (probability, value), with the same bend, above 0, between all.
    pub(crate) fn with_bend(points: &[(f64, f64)], bend: f64) -> Result<Self, TableError> {
        let climbs = points
            .windows(2)
            .all(|p| p[0].0 < p[1].0 && p[0].1 <= p[1].1);
        let ends =
            points.first().map(|p| p.0) == Some(0.0) && points.last().map(|p| p.0) == Some(1.0);
        let values = points.iter().all(|p| (0.0..=1e9).contains(&p.1));
        if !(climbs && ends && values) {
            return Err(TableError::Points(INVALID_POINTS));
        }
        let pieces = points.windows(2).map(|pair| Piece {
            from: pair[0],
            to: pair[1],
            bend,
        });
        Ok(Self {
            pieces: pieces.collect(),
        })
    }

    /// Adds a step at both ends: the minimum and the maximum get this probability each.
    pub(crate) fn with_extremes(&self, share: f64) -> Self {
        let shrink = |probability: f64| share + probability * (1.0 - 2.0 * share);
        let step = |from, to, value| Piece {
            from: (from, value),
            to: (to, value),
            bend: 1.0,
        };
        let body = self.pieces.iter().map(|piece| Piece {
            from: (shrink(piece.from.0), piece.from.1),
            to: (shrink(piece.to.0), piece.to.1),
            bend: piece.bend,
        });
        let (min, max) = match &self.pieces[..] {
            [first, .., last] => (first.from.1, last.to.1),
            [only] => (only.from.1, only.to.1),
            [] => (0.0, 0.0),
        };
        let pieces = std::iter::once(step(0.0, share, min))
            .chain(body)
            .chain(std::iter::once(step(1.0 - share, 1.0, max)));
        Self {
            pieces: pieces.collect(),
        }
    }

    /// Creates a table from observed values; a repeated value counts each time.
    ///
    /// # Errors
    /// [`TableError::Points`] without a value, or if one is outside 0 to 1e9.
    pub fn from_values(mut values: Vec<f64>) -> Result<Self, TableError> {
        if values.is_empty() || !values.iter().all(|value| (0.0..=1e9).contains(value)) {
            return Err(TableError::Points(
                "a table needs at least one value, and all values must be from 0 to 1e9",
            ));
        }
        values.sort_unstable_by(f64::total_cmp);
        let share = 1.0 / values.len() as f64;
        let pieces = values.into_iter().zip(0u32..).map(|(value, index)| Piece {
            from: (f64::from(index) * share, value),
            to: (f64::from(index + 1) * share, value),
            bend: 1.0,
        });
        Ok(Self {
            pieces: pieces.collect(),
        })
    }

    /// Reads a CSV file with the header `value` and one observed value per line, or with the header
    /// `quantile,value` and one point per line.
    ///
    /// # Errors
    /// The invalid line, or the errors of the other constructors.
    pub fn read_csv(file: &Path) -> Result<Self, TableError> {
        let list = CsvList::read(file)?;
        let quantiles = match list.header() {
            Some("quantile,value") => true,
            Some("value") => false,
            _ => return Err(list.wrong(1, EXPECTED_HEADER).into()),
        };
        let mut points = Vec::new();
        for (number, line) in list.entries() {
            let (quantile, value) = match line.split_once(',') {
                Some((quantile, value)) if quantiles => (quantile, value),
                None if !quantiles => ("0", line),
                _ => return Err(list.wrong(number, EXPECTED_FIELDS).into()),
            };
            match (quantile.trim().parse(), value.trim().parse()) {
                (Ok(quantile), Ok(value)) => points.push((quantile, value)),
                _ => return Err(list.wrong(number, EXPECTED_NUMBERS).into()),
            }
        }
        match quantiles {
            true => Self::from_quantiles(&points),
            false => Self::from_values(points.into_iter().map(|(_, value)| value).collect()),
        }
    }

    /// Formats a table from a file in the syntax of [`Distribution::parse`].
    pub fn to_text(&self) -> String {
        let is_value = |piece: &Piece| piece.from.1 == piece.to.1;
        let values = self.pieces.iter().all(is_value);
        let joined = |text: &mut dyn Iterator<Item = String>| text.collect::<Vec<_>>().join(",");
        if values {
            let mut values = self.pieces.iter().map(|piece| piece.to.1.to_string());
            return format!("values:{}", joined(&mut values));
        }
        let first = self.pieces.first().map(|piece| piece.from);
        let points = first
            .into_iter()
            .chain(self.pieces.iter().map(|piece| piece.to));
        let mut points = points.map(|(quantile, value)| format!("{quantile}={value}"));
        format!("quantiles:{}", joined(&mut points))
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        let piece = |piece: &Piece| {
            let rise = (piece.to.1 - piece.from.1) / (piece.bend + 1.0);
            (piece.to.0 - piece.from.0) * (piece.from.1 + rise)
        };
        self.pieces.iter().map(piece).sum()
    }

    fn sample(&self, rng: &mut Pcg64) -> f64 {
        let probability: f64 = rng.random();
        let index = self
            .pieces
            .partition_point(|piece| piece.to.0 <= probability);
        let Some(piece) = self.pieces.get(index).or(self.pieces.last()) else {
            return 0.0;
        };
        let fraction = (probability - piece.from.0) / (piece.to.0 - piece.from.0);
        piece.from.1 + (piece.to.1 - piece.from.1) * fraction.clamp(0.0, 1.0).powf(piece.bend)
    }
}
