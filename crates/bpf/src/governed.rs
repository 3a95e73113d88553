use serde::Serialize;

use crate::contract::types;

/// The governor's decision about the connections to one peer network.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Governed {
    /// The share of the eligible segments that may carry redundancy, 0 to 1.
    pub share: f64,
    /// The last verdict; `None` before the first.
    pub verdict: Option<Verdict>,
    /// Subject of the last alarm; `None` before the first.
    pub alarm: Option<Alarm>,
}

/// Whose queue, or whose losses, an alarm was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They went away without redundancy.
    Ours,
    /// They stayed, or came again, without redundancy.
    NotOurs,
    /// pillion did not decide in time.
    Stale,
}

/// Measurement that exceeded its baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alarm {
    /// The queue was longer than it had been without redundancy.
    Queue,
    /// More was lost than without redundancy.
    Loss,
}

impl Governed {
    /// The decision that a connection met last; `None` if it has met none.
    pub(crate) fn of_flow(raw: &types::allowance) -> Option<Self> {
        let verdict = match raw.verdict {
            types::verdict::VERDICT_OURS => Some(Verdict::Ours),
            types::verdict::VERDICT_NOT_OURS => Some(Verdict::NotOurs),
            types::verdict::VERDICT_STALE => Some(Verdict::Stale),
            _ => None,
        };
        let alarm = match raw.alarm {
            types::alarm::ALARM_QUEUE => Some(Alarm::Queue),
            types::alarm::ALARM_LOSS => Some(Alarm::Loss),
            _ => None,
        };
        let is_met = raw.verdict != types::verdict::VERDICT_UNKNOWN;
        is_met.then(|| Self {
            share: f64::from(raw.share.0) / f64::from(types::governor_share::FULL_SHARE.0),
            verdict,
            alarm,
        })
    }
}
