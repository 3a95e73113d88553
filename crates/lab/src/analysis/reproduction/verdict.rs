use serde::Serialize;

use super::Estimate;

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The claim holds on the kernel of today.
    Near,
    /// The claim does not hold but where a cause is as it was then.
    Changed,
    /// The claim does not hold, and no cause is shown.
    Miss,
    /// The intervals reach over the claim's bound, or over each other: more seeds would tell.
    Undecided,
    /// Runs that it takes were not made: those of today, or of a cause where today's do not hold.
    NotRun,
    /// The runs of today were made, and have nothing of it: no such measure, no such group, or nothing
    /// happened that it could be of.
    NotMeasured,
}

impl Verdict {
    /// The verdict in a word or two.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Changed => "changed",
            Self::Miss => "miss",
            Self::Undecided => "undecided",
            Self::NotRun => "not run",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A claim, judged.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// The measure today; of an order, of each subject.
    pub today: Vec<Estimate>,
    /// How many runs of today have nothing of it: no such group, or nothing happened that it could be
    /// of.
    pub without: usize,
    /// The measure with each cause as it was then; of an order, of each subject.
    pub causes: Vec<Vec<Estimate>>,
    /// Whether it holds with each cause; `None` where its runs were not made, or more would tell.
    pub holds: Vec<Option<bool>>,
    /// The cause to be shown: the first with which a claim holds that does not today, or is undecided;
    /// without one, the first with which it may hold.
    pub cause: Option<usize>,
    /// What follows.
    pub verdict: Verdict,
}
