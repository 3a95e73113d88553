//! Whether something holds of some runs.

use super::Estimate;

/// Decimal numbers are not exact in binary: what is equal as people write it may differ by so much.
fn slack(number: f64) -> f64 {
    number.abs() * 1e-9
}

/// Whether a claim holds of some runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// There are too few runs to say.
    Open,
}

impl Answer {
    /// Whether a value is at most this one. A single run's is taken for what it is.
    pub(super) fn at_most(value: &Estimate, most: f64) -> Self {
        Self::of(value.mean - most - slack(most), value.half.unwrap_or(0.0))
    }

    /// Whether it is at least this one.
    pub(super) fn at_least(value: &Estimate, least: f64) -> Self {
        Self::of(least - value.mean - slack(least), value.half.unwrap_or(0.0))
    }

    /// Whether it is this one, to within so much.
    pub(super) fn within(value: &Estimate, this: f64, within: f64) -> Self {
        let off = (value.mean - this).abs() - slack(this);
        let half = value.half.unwrap_or(0.0);
        match off <= within {
            _ if half > within && (off - half <= within && off + half > within) => Self::Open,
            true => Self::Yes,
            false => Self::No,
        }
    }

    /// Whether a value is not above 0, of which half of the interval is known.
    fn of(mean: f64, half: f64) -> Self {
        match mean <= 0.0 {
            true if mean + half <= 0.0 => Self::Yes,
            false if mean - half > 0.0 => Self::No,
            _ => Self::Open,
        }
    }

    fn not(self) -> Self {
        match self {
            Self::Yes => Self::No,
            Self::No => Self::Yes,
            Self::Open => Self::Open,
        }
    }

    pub(super) fn known(self) -> Option<bool> {
        match self {
            Self::Yes => Some(true),
            Self::No => Some(false),
            Self::Open => None,
        }
    }
}

impl Estimate {
    /// Whether another value is larger than this one, for all that their intervals allow.
    pub(super) fn is_below(&self, other: &Self) -> Answer {
        let half = |it: &Self| it.half.unwrap_or(0.0);
        let both = half(self).hypot(half(other));
        Answer::of(other.mean - self.mean, both).not()
    }
}
