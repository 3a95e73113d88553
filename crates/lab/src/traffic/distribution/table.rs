use std::path::Path;

use rand::RngExt;
use rand_pcg::Pcg64;

use crate::traffic::list::{List, ListError};

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

    /// Itself in words that [`Distribution::parse`](super::Distribution::parse) reads, for a table
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

    pub(super) fn draw(&self, draws: &mut Pcg64) -> f64 {
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
