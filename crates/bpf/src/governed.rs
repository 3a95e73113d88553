use serde::Serialize;

use crate::contract::flow_types;

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
    /// Denominator of the kernel's share (`FULL_SHARE` in `bpf/bundler/policy/governor.h`).
    pub(crate) const FULL: u32 = 256;

    /// The decision that a connection met last; `None` if it has met none.
    pub(crate) fn of_flow(raw: &flow_types::allowance) -> Option<Self> {
        let verdict = match raw.verdict {
            flow_types::verdict::VERDICT_OURS => Some(Verdict::Ours),
            flow_types::verdict::VERDICT_NOT_OURS => Some(Verdict::NotOurs),
            flow_types::verdict::VERDICT_STALE => Some(Verdict::Stale),
            _ => None,
        };
        let alarm = match raw.alarm {
            flow_types::alarm::ALARM_QUEUE => Some(Alarm::Queue),
            flow_types::alarm::ALARM_LOSS => Some(Alarm::Loss),
            _ => None,
        };
        let is_met = raw.verdict != flow_types::verdict::VERDICT_UNKNOWN;
        is_met.then(|| Self {
            share: f64::from(raw.share) / f64::from(Self::FULL),
            verdict,
            alarm,
        })
    }
}
