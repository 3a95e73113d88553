//! What sizes and times are drawn from.

mod parse;
mod table;

use rand::RngExt;
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use rand_pcg::Pcg64;

pub use parse::DistributionError;
pub use table::{Table, TableError};

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

#[cfg(test)]
mod tests;
