//! When to look at a trial, and what a look decides.
//!
//! Who looks again and again, and ends a trial as soon as the arms differ, finds a difference where
//! there is none. So looks are planned, one whenever twice as many segments were observed, and
//! the error rate is spent on them: look k may be wrong with a chance of at most `ERROR_RATE` /
//! (k (k + 1)), half of that for either side, and all looks together, however many there are, with
//! `ERROR_RATE` (by Boole's inequality; the spending of K. K. G. Lan and D. L. DeMets, Biometrika
//! 1983, in the simplest form, which needs no last look).

use serde::{Deserialize, Serialize};

/// How likely a trial at most finds a difference where there is none.
pub const ERROR_RATE: f64 = 0.05;

/// Segments before the first look.
pub(crate) const FIRST: u64 = 4_000;

/// One look at a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// Segments that were observed by then.
    pub segments: u64,
    /// Units that were compared, in both arms together.
    pub units: u64,
    /// How likely the draw alone would have the bundled arm as good as it was, or better.
    pub chance_of_better: f64,
    /// How likely the draw alone would have the bundled arm as bad as it was, or worse.
    pub chance_of_worse: f64,
    /// How likely the draw alone would have as many connections of the bundled arm cut short, or more.
    pub chance_of_more_cut: f64,
    /// What the first may not exceed for a verdict, and each of the others not by half: there are two
    /// ways to harm.
    pub threshold: f64,
}

/// What a trial says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Not clear yet.
    Undecided,
    /// With bundles, data wait less.
    Helps,
    /// With bundles, data wait longer, or connections are cut short.
    Harms,
}

impl Look {
    /// What the look decides.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.cuts() || self.chance_of_worse <= self.threshold / 2.0 {
            Verdict::Harms
        } else if self.chance_of_better <= self.threshold {
            Verdict::Helps
        } else {
            Verdict::Undecided
        }
    }

    /// Whether it is clear that bundles have connections cut short.
    #[must_use]
    pub fn cuts(&self) -> bool {
        self.chance_of_more_cut <= self.threshold / 2.0
    }
}

/// How likely a look errs at most on either side, the first being 1.
pub(crate) fn threshold(look: usize) -> f64 {
    let look = look as f64;
    ERROR_RATE / (look * (look + 1.0)) / 2.0
}

/// Segments that are to be observed before a look, the first being 1, where the last one was at
/// `last`.
pub(crate) fn due_at(last: Option<u64>) -> u64 {
    last.map_or(FIRST, |last| last.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_looks_together_err_no_more_than_the_rate() {
        let all: f64 = (1..1_000_000).map(threshold).sum();
        assert!(2.0 * all <= ERROR_RATE && 2.0 * all > 0.99 * ERROR_RATE);
    }

    #[test]
    fn looks_grow_apart() {
        let first = due_at(None);
        assert_eq!((first, due_at(Some(first))), (4_000, 8_000));
    }
}
