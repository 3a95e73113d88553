//! What sizes and times are drawn from.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_pcg::Pcg64;

use crate::traffic::list::{List, ListError};

/// A distribution of sizes in bytes or of times in milliseconds, never negative.
///
/// Everywhere the parameters are the mean and standard deviation of what is drawn. Only a
/// [`Distribution::Normal`] whose deviation is not small against its mean departs from them,
/// because negative draws are drawn again.
#[derive(Debug, Clone, PartialEq)]
pub enum Distribution {
    /// Always the same.
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
    /// Pareto, from `mean * (shape - 1) / shape` upwards.
    Pareto {
        /// Mean.
        mean: f64,
        /// Above 1; the smaller, the heavier the tail. Up to 2 there is no variance.
        shape: f64,
    },
    /// Log-normal.
    LogNormal {
        /// Mean, of the values and not of their logarithms.
        mean: f64,
        /// Standard deviation, of the values too.
        sd: f64,
    },
    /// What was measured.
    Table(Table),
}

impl Distribution {
    /// Always the same.
    pub fn constant(mean: f64) -> Self {
        Self::Constant { mean }
    }

    /// Finds the first parameter that cannot be: the mean must be above 0 and finite.
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
            // Of a wider one no parameter of its logarithm is a number.
            Self::LogNormal { mean, sd } if !(sd / mean).powi(2).is_finite() => {
                Err(DistributionError::Deviation(sd))
            }
            Self::Pareto { shape, .. } if !(1.0 < shape && shape.is_finite()) => {
                Err(DistributionError::Shape(shape))
            }
            _ => Ok(()),
        }
    }

    /// The mean (of a normal distribution, before its truncation).
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

    /// Draws a value.
    pub fn draw(&self, draws: &mut Pcg64) -> f64 {
        let mut normal = |mean: f64, sd: f64| {
            let standard: f64 = StandardNormal.sample(draws);
            mean + sd * standard
        };
        match self {
            Self::Constant { mean } => *mean,
            Self::Normal { mean, sd } => loop {
                let value = normal(*mean, *sd);
                // Not a number if both are infinite, which no valid distribution is.
                if value >= 0.0 || value.is_nan() {
                    return value;
                }
            },
            Self::Exponential { mean } => {
                let standard: f64 = Exp1.sample(draws);
                mean * standard
            }
            Self::Pareto { mean, shape } => {
                let least = mean * (shape - 1.0) / shape;
                least * (1.0 - draws.random::<f64>()).powf(-1.0 / shape)
            }
            Self::LogNormal { mean, sd } => {
                let variance = (sd / mean).powi(2).ln_1p();
                normal(mean.ln() - variance / 2.0, variance.sqrt()).exp()
            }
            Self::Table(table) => table.draw(draws),
        }
    }
}

/// Why something is no distribution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// No such name, or a parameter missing, too many, or no number.
    #[error(
        "`{0}` is no distribution; give MEAN, MEAN:SD, constant:MEAN, normal:MEAN:SD, \
         exponential:MEAN, pareto:MEAN:SHAPE, lognormal:MEAN:SD, table:FILE, values:V,V,... or \
         quantiles:Q=V,Q=V,..."
    )]
    Text(String),
    /// The mean is not above 0, or not finite.
    #[error("mean {0}: give one above 0")]
    Mean(f64),
    /// The standard deviation is negative, or too large to reckon with.
    #[error("standard deviation {0}: give 0 or more, and no more than numbers can bear")]
    Deviation(f64),
    /// The shape leaves no mean.
    #[error("shape {0}: give one above 1, for up to 1 there is no mean")]
    Shape(f64),
    /// The table.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl Distribution {
    /// Reads `MEAN`, `MEAN:SD` (normal), `NAME:PARAMETERS`, `table:FILE`, which reads the file, or
    /// the table itself: `values:1,2,2,7` or `quantiles:0=1,0.5=2,1=7`.
    ///
    /// # Errors
    /// When the text is none of these, a parameter cannot be, or the file is no table.
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
    /// What [`Distribution::parse`] reads as the same, but for the tables of profiles, which no
    /// text describes.
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
/// Between two points the value climbs as a power of the probability: as a straight line with
/// bend 1, later and steeper with a higher one. A table of mere values, all as probable, has one
/// step for each.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    pieces: Vec<Piece>,
}

/// A piece of the quantile function: probability and value at both ends, and the bend between.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    from: (f64, f64),
    to: (f64, f64),
    bend: f64,
}

/// Why a table cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TableError {
    /// The file cannot be read, or one of its lines.
    #[error(transparent)]
    List(#[from] ListError),
    /// The points are wrong.
    #[error("{0}")]
    Points(&'static str),
}

const POINTS: &str = "a table's quantiles must begin with 0, end with 1 and climb, \
                      and its values must be 0 or more, at most 1e9, and never fall";

const HEADINGS: &str = "expected the heading `value` or `quantile,value`";
const FIELDS: &str = "expected as many fields as the heading has";
const NUMBERS: &str = "expected numbers, with a point as in 0.5";

impl Table {
    /// From points (probability, value) joined by straight lines.
    ///
    /// # Errors
    /// [`TableError::Points`] unless the probabilities climb from 0 to 1 and the values, from 0 to
    /// 1e9, never fall.
    pub fn from_quantiles(points: &[(f64, f64)]) -> Result<Self, TableError> {
        Self::bent(points, 1.0)
    }

    /// From points (probability, value), with this bend between any two; above 0.
    pub(crate) fn bent(points: &[(f64, f64)], bend: f64) -> Result<Self, TableError> {
        let climbs = points
            .windows(2)
            .all(|p| p[0].0 < p[1].0 && p[0].1 <= p[1].1);
        let ends =
            points.first().map(|p| p.0) == Some(0.0) && points.last().map(|p| p.0) == Some(1.0);
        let values = points.iter().all(|p| (0.0..=1e9).contains(&p.1));
        if !(climbs && ends && values) {
            return Err(TableError::Points(POINTS));
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

    /// The table between two steps: the least value and the largest with this share each.
    pub(crate) fn between(&self, share: f64) -> Self {
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
        let (least, largest) = match &self.pieces[..] {
            [first, .., last] => (first.from.1, last.to.1),
            [only] => (only.from.1, only.to.1),
            [] => (0.0, 0.0),
        };
        let pieces = std::iter::once(step(0.0, share, least))
            .chain(body)
            .chain(std::iter::once(step(1.0 - share, 1.0, largest)));
        Self {
            pieces: pieces.collect(),
        }
    }

    /// From values that were observed, each as often as it stands there.
    ///
    /// # Errors
    /// [`TableError::Points`] unless there is one, and all are from 0 to 1e9.
    pub fn from_values(mut values: Vec<f64>) -> Result<Self, TableError> {
        if values.is_empty() || !values.iter().all(|value| (0.0..=1e9).contains(value)) {
            return Err(TableError::Points(
                "a table of values needs at least one, and all from 0 to 1e9",
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

    /// Reads a CSV file with the heading `value`, one observed value a line, or with the heading
    /// `quantile,value`, one point a line.
    ///
    /// # Errors
    /// With the line that is wrong, or as the others.
    pub fn read_csv(file: &Path) -> Result<Self, TableError> {
        let list = List::read(file)?;
        let quantiles = match list.heading() {
            Some("quantile,value") => true,
            Some("value") => false,
            _ => return Err(list.wrong(1, HEADINGS).into()),
        };
        let mut points = Vec::new();
        for (number, line) in list.entries() {
            let (quantile, value) = match line.split_once(',') {
                Some((quantile, value)) if quantiles => (quantile, value),
                None if !quantiles => ("0", line),
                _ => return Err(list.wrong(number, FIELDS).into()),
            };
            match (quantile.trim().parse(), value.trim().parse()) {
                (Ok(quantile), Ok(value)) => points.push((quantile, value)),
                _ => return Err(list.wrong(number, NUMBERS).into()),
            }
        }
        match quantiles {
            true => Self::from_quantiles(&points),
            false => Self::from_values(points.into_iter().map(|(_, value)| value).collect()),
        }
    }

    /// Itself in words that [`Distribution::parse`] reads, for a table
    /// that came from a file.
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

    /// The mean.
    pub fn mean(&self) -> f64 {
        let piece = |piece: &Piece| {
            let rise = (piece.to.1 - piece.from.1) / (piece.bend + 1.0);
            (piece.to.0 - piece.from.0) * (piece.from.1 + rise)
        };
        self.pieces.iter().map(piece).sum()
    }

    fn draw(&self, draws: &mut Pcg64) -> f64 {
        let probability: f64 = draws.random();
        let index = self
            .pieces
            .partition_point(|piece| piece.to.0 <= probability);
        let Some(piece) = self.pieces.get(index).or(self.pieces.last()) else {
            return 0.0;
        };
        let along = (probability - piece.from.0) / (piece.to.0 - piece.from.0);
        piece.from.1 + (piece.to.1 - piece.from.1) * along.clamp(0.0, 1.0).powf(piece.bend)
    }
}
