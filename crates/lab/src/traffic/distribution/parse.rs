use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::{Distribution, Table, TableError};

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
