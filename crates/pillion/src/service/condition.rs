//! Conditions in which pillion is useless or degraded, or an operator may have to act.

use std::time::{Duration, Instant};

use pillion_bpf::{Outcome, Totals};
use serde::{Deserialize, Serialize};

macro_rules! conditions {
    ($($name:ident: $severity:ident, $text:literal;)+) => {
        /// A current condition; docs/operate/monitoring.md lists all with their remedies.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Condition {
            $(#[doc = $text] $name,)+
        }

        impl Condition {
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Describes it for people.
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// Returns true if `status` fails because of it.
            pub fn is_degraded(self) -> bool {
                match self {
                    $(Self::$name => conditions!($severity),)+
                }
            }
        }
    };
    (Degraded) => { true };
    (Notice) => { false };
}

conditions! {
    Bypassed: Degraded, "more than half of the segments for a device do not reach pillion there";
    Full: Degraded, "--max-connections is reached: further connections stay plain";
    NoMemory: Degraded, "connections stay plain for lack of kernel memory";
    Dropping: Degraded, "segments or ACKs are dropped because rewriting them fails";
    Stalled: Degraded, "devices, rules and connections are not followed in time: the process is blocked or lacks CPU time";
    Withdrawn: Degraded, "bundling was withdrawn from a rule: plain connections were better";
    Elsewhere: Notice, "more than half of the segments leave by devices without pillion";
    Unsupported: Notice, "most segments with data outstanding cannot be bundled: `pillion flows` lists the reasons";
    Preceded: Notice, "another tcx program runs before pillion's";
    UnmatchedRules: Notice, "a part of the rules covers nothing";
    OptionsRefused: Notice, "the kernel refuses TCP options of the rules";
    NoBenefit: Notice, "no loss was repaired for a day, at a cost of over 100 MB";
    StaleBinary: Notice, "the program's file was replaced: hand over to the new version";
    Handover: Notice, "a hand-over to a new process is in progress";
    Trial: Notice, "`pillion trial` is running here, and segments bundled by both distort its result";
}

/// Time for which an event counts as current.
const RECENT: Duration = Duration::from_secs(60);

/// Minimum number of segments for [`Monitor::MAJORITIES`].
const MIN_SEGMENTS: u64 = 100;

/// Redundant bytes, and time without a repaired loss, for [`Condition::NoBenefit`].
const MIN_COST_BYTES: u64 = 100_000_000;
const MIN_COST_TIME: Duration = Duration::from_secs(24 * 3600);

/// Derives conditions from the totals over time.
#[derive(Debug)]
pub struct Monitor {
    /// Counters of [`Monitor::EVENTS`], and when they grew last.
    events: [(u64, Option<Instant>); Self::EVENTS.len()],
    /// For each of [`Monitor::MAJORITIES`], all segments and those with the outcomes at the last
    /// verdict, and the verdict.
    majorities: [(u64, u64, bool); Self::MAJORITIES.len()],
    /// Last repaired loss: time, repaired losses and redundant bytes.
    repaired: (Instant, u64, u64),
}

/// Reads a counter.
type Count = fn(&Totals) -> u64;

impl Monitor {
    /// Conditions that last as long as a counter grows. [`Condition::Full`] also lasts while no slot is
    /// free.
    const EVENTS: [(Condition, Count); 4] = [
        (Condition::Full, |totals| totals.connection_limit_hits),
        (Condition::NoMemory, |totals| totals.connections_failed),
        (Condition::Dropping, |Totals { counters, .. }| {
            counters.of(Outcome::Dropped) + counters.acks_dropped
        }),
        (Condition::OptionsRefused, |totals| {
            totals.tcp_options_refused.values().sum()
        }),
    ];

    /// Conditions in which more than half of the last segments had one of the first outcomes. Segments
    /// with one of the second outcomes do not count.
    const MAJORITIES: [(Condition, &[Outcome], &[Outcome]); 2] = [
        (Condition::Elsewhere, &[Outcome::UnattachedDevice], &[]),
        (
            Condition::Unsupported,
            &[
                Outcome::NoSack,
                Outcome::NoDsack,
                Outcome::AcksThinned,
                Outcome::TcpOption,
                Outcome::UnparsedIp,
                Outcome::NoRoom,
                Outcome::ExceedsPathSize,
                Outcome::OverFairShare,
                Outcome::HelperPort,
                Outcome::Capped,
                Outcome::NoMemory,
                Outcome::LossDetectionUnavailable,
            ],
            &[Outcome::NothingOutstanding],
        ),
    ];

    pub fn new(now: Instant) -> Self {
        Self {
            events: [(0, None); Self::EVENTS.len()],
            majorities: [(0, 0, false); Self::MAJORITIES.len()],
            repaired: (now, 0, 0),
        }
    }

    /// Returns the current conditions; `is_full`: no slot is free. Call it about once a second.
    pub fn update(&mut self, now: Instant, totals: &Totals, is_full: bool) -> Vec<Condition> {
        let mut current = Vec::new();
        for ((condition, count), (last, grew_at)) in Self::EVENTS.iter().zip(&mut self.events) {
            let count = count(totals);
            if count > *last {
                *grew_at = Some(now);
            }
            *last = count;
            let is_recent = grew_at.is_some_and(|at| now.duration_since(at) < RECENT);
            if is_recent || is_full && *condition == Condition::Full {
                current.push(*condition);
            }
        }
        let counters = &totals.counters;
        let sum = |outcomes: &[Outcome]| outcomes.iter().map(|it| counters.of(*it)).sum::<u64>();
        for ((condition, outcomes, ignored), (last_all, last, is_majority)) in
            Self::MAJORITIES.iter().zip(&mut self.majorities)
        {
            let (all, count) = (
                counters.segments().saturating_sub(sum(ignored)),
                sum(outcomes),
            );
            let new = all.saturating_sub(*last_all);
            if new >= MIN_SEGMENTS {
                *is_majority = count.saturating_sub(*last) > new / 2;
                (*last_all, *last) = (all, count);
            }
            current.extend(is_majority.then_some(*condition));
        }
        let (since, repaired, redundant) = self.repaired;
        if counters.hidden_losses != repaired {
            self.repaired = (now, counters.hidden_losses, counters.redundant_bytes);
        } else if now.duration_since(since) >= MIN_COST_TIME
            && counters.redundant_bytes.saturating_sub(redundant) > MIN_COST_BYTES
        {
            current.push(Condition::NoBenefit);
        }
        current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the conditions after a minute-long pause, after a change, and a minute later.
    fn conditions_after(change: impl FnOnce(&mut Totals)) -> [Vec<Condition>; 3] {
        let start = Instant::now();
        let (mut monitor, mut totals) = (Monitor::new(start), Totals::default());
        let at = |seconds| start + Duration::from_secs(seconds);
        let before = monitor.update(at(0), &totals, false);
        change(&mut totals);
        let changed = monitor.update(at(1), &totals, false);
        [before, changed, monitor.update(at(61), &totals, false)]
    }

    #[test]
    fn growing_counter_raises_condition_for_a_minute() {
        let one = |condition| [vec![], vec![condition], vec![]];
        let full = conditions_after(|totals| totals.connection_limit_hits = 1);
        assert_eq!(full, one(Condition::Full));
        let failed = conditions_after(|totals| totals.connections_failed = 1);
        assert_eq!(failed, one(Condition::NoMemory));
        let dropped = conditions_after(|totals| {
            totals.counters.outcomes.insert(Outcome::Dropped, 1);
        });
        assert_eq!(dropped, one(Condition::Dropping));
        let ack_dropped = conditions_after(|totals| totals.counters.acks_dropped = 1);
        assert_eq!(ack_dropped, one(Condition::Dropping));
        let refused = conditions_after(|totals| {
            let option = pillion_bpf::TcpOption::ALL[0];
            totals.tcp_options_refused.insert(option, 1);
        });
        assert_eq!(refused, one(Condition::OptionsRefused));
    }

    #[test]
    fn full_lasts_until_slot_is_free() {
        let start = Instant::now();
        let mut monitor = Monitor::new(start);
        let mut update = |minutes: u64, is_full| {
            let now = start + Duration::from_secs(minutes * 60);
            monitor.update(now, &Totals::default(), is_full)
        };
        assert_eq!(update(0, false), []);
        assert_eq!(update(1, true), [Condition::Full]);
        assert_eq!(update(99, true), [Condition::Full]);
        assert_eq!(update(100, false), []);
    }

    #[test]
    fn elsewhere_lasts_until_100_segments_show_otherwise() {
        let start = Instant::now();
        let mut monitor = Monitor::new(start);
        let mut update = |bundled, elsewhere| {
            let mut totals = Totals::default();
            let counts = [
                (Outcome::Bundled, bundled),
                (Outcome::UnattachedDevice, elsewhere),
            ];
            totals.counters.outcomes.extend(counts);
            monitor.update(start, &totals, false)
        };
        assert_eq!(update(0, 99), []);
        assert_eq!(update(49, 51), [Condition::Elsewhere]);
        assert_eq!(update(99, 51), [Condition::Elsewhere]);
        assert_eq!(update(99, 101), []);
    }

    #[test]
    fn segments_that_cannot_be_bundled_are_unsupported() {
        let totals_with = |bundled| {
            let mut totals = Totals::default();
            let counts = [
                (Outcome::Bundled, bundled),
                (Outcome::NoSack, 30),
                (Outcome::NoRoom, 30),
                (Outcome::NothingOutstanding, 1_000),
            ];
            totals.counters.outcomes.extend(counts);
            totals
        };
        for (bundled, expected) in [(59, vec![Condition::Unsupported]), (60, vec![])] {
            let now = Instant::now();
            let current = Monitor::new(now).update(now, &totals_with(bundled), false);
            assert_eq!(current, expected, "{bundled}");
        }
    }

    #[test]
    fn day_of_redundancy_without_repair_is_no_benefit() {
        let start = Instant::now();
        let mut monitor = Monitor::new(start);
        let mut update = |hours: u64, redundant_bytes, hidden_losses| {
            let mut totals = Totals::default();
            totals.counters.redundant_bytes = redundant_bytes;
            totals.counters.hidden_losses = hidden_losses;
            monitor.update(start + Duration::from_secs(hours * 3600), &totals, false)
        };
        assert_eq!(update(23, MIN_COST_BYTES + 1, 0), []);
        assert_eq!(update(24, MIN_COST_BYTES + 1, 0), [Condition::NoBenefit]);
        assert_eq!(update(25, MIN_COST_BYTES + 1, 1), []);
        assert_eq!(update(50, 2 * MIN_COST_BYTES + 1, 1), []);
        assert_eq!(
            update(51, 2 * MIN_COST_BYTES + 2, 1),
            [Condition::NoBenefit]
        );
    }

    #[test]
    fn each_condition_has_row_and_alert() {
        let docs = include_str!("../../../../docs/operate/monitoring.md");
        let alerts = include_str!("../../../../packaging/prometheus/alerts.yaml");
        for condition in Condition::ALL {
            let name = serde_json::to_value(condition).unwrap();
            let name = name.as_str().unwrap();
            assert!(docs.contains(&format!("| `{name}` |")), "{name}");
            let is_in = |line: &str| {
                let names = line
                    .split_once("pillion_condition{condition=")
                    .map(|it| it.1);
                names.is_some_and(|names| names.split(['"', '|']).any(|it| it == name))
            };
            assert!(alerts.lines().any(is_in), "{name}");
        }
    }
}
