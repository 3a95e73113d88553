use std::collections::{BTreeMap, HashSet};
use std::io;

use pillion_bpf::{Arm, AssignBy};
use serde::{Deserialize, Serialize};

use crate::trial::{InterimAnalysis, Summary};

/// Minimum number of segments of a unit to be compared.
pub(crate) const MIN_SEGMENTS: u64 = 20;

/// Settings that define a trial. A stored state is valid only with equal settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Share of units in the bundled arm, in parts per million.
    pub bundled_ppm: u32,
    /// Connections that are assigned together.
    pub assign_by: AssignBy,
    /// Tolerance beyond the minimum RTT before a segment counts as late, in microseconds.
    pub grace_us: u32,
    /// ACK latency beyond which a segment stalls, in microseconds.
    pub stall_us: u32,
    /// Selected connections, in words.
    pub connections_text: String,
    /// Devices and network namespaces of the connections, in words.
    pub location: String,
    /// Bundling options, as JSON.
    pub bundling: String,
    /// Planned observation time in milliseconds; `None` if the trial runs until a verdict.
    pub duration_ms: Option<u64>,
}

/// Unit of assignment: connections that share an arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Arm of the unit.
    pub arm: Arm,
    /// Sum of the observations of its connections.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Version of the file format.
pub(crate) const VERSION: u32 = 3;

/// State of a trial, as stored on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialState {
    pub(crate) version: u32,
    /// Settings that define the trial.
    pub setting: Setting,
    /// Secret key of the assignment. It reveals the arm of every unit.
    pub key: [u64; 2],
    /// Observations by unit.
    pub units: BTreeMap<u64, Unit>,
    /// Interim analyses so far.
    pub interim_analyses: Vec<InterimAnalysis>,
    /// Connections of units beyond the maximum number that is compared.
    pub left_out: u64,
    /// Time observed so far, in milliseconds.
    pub observed_ms: u64,
}

/// Reason why a stored state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be read or written.
    #[error("trial state {name}: {error}")]
    File {
        /// Path of the file.
        name: String,
        /// Error of the system call.
        error: io::Error,
    },
    /// The file is not a trial state of this version.
    #[error("invalid trial state {name}: {reason}; use another file with --state")]
    Foreign {
        /// Path of the file.
        name: String,
        /// Error of the parser, or the version that was found.
        reason: String,
    },
    /// Another process uses the file.
    #[error(
        "trial state {name} is in use by another process; wait for its end, or use another file \
         with --state"
    )]
    InUse {
        /// Path of the file.
        name: String,
    },
    /// The file belongs to a trial with other settings.
    #[error(
        "trial state {name} belongs to a trial with other settings: {difference} is {old}, \
         requested is {new}; remove the file to abandon that trial, or use another file with --state"
    )]
    OtherTrial {
        /// Path of the file.
        name: String,
        /// First setting that differs.
        difference: &'static str,
        /// Stored value.
        old: String,
        /// Requested value.
        new: String,
    },
}

impl StateError {
    /// Returns true if the user must change the command, as opposed to repairing the system.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Foreign { .. } | Self::InUse { .. } | Self::OtherTrial { .. }
        )
    }
}

impl TrialState {
    /// Creates the state of a new trial.
    #[must_use]
    pub fn new(setting: Setting, key: [u64; 2]) -> Self {
        Self {
            version: VERSION,
            setting,
            key,
            units: BTreeMap::new(),
            interim_analyses: Vec::new(),
            left_out: 0,
            observed_ms: 0,
        }
    }

    /// Adds observations of connections of a unit. If `max_units` is reached, only counts them.
    pub(crate) fn add(&mut self, number: u64, unit: &Unit, max_units: usize) {
        match self.reserve_slot(number, unit.arm, max_units) {
            Some(slot) => slot.summary += &unit.summary,
            None => self.left_out = self.left_out.saturating_add(1),
        }
    }

    /// Frees the slots of units with too few segments, unless they are `present`, once `max_units`
    /// is reached. Connections that end with an error do not protect a unit, because port scanners
    /// cause many of them.
    pub(crate) fn free_slots(&mut self, present: impl Iterator<Item = u64>, max_units: usize) {
        if self.units.len() < max_units {
            return;
        }
        let present: HashSet<_> = present.collect();
        let is_retained = |number: &u64, unit: &mut Unit| {
            unit.summary.segments >= MIN_SEGMENTS || present.contains(number)
        };
        self.units.retain(is_retained);
    }

    /// Returns the slot of a unit, and creates it if fewer than `max_units` exist.
    pub(crate) fn reserve_slot(
        &mut self,
        number: u64,
        arm: Arm,
        max_units: usize,
    ) -> Option<&mut Unit> {
        if self.units.len() >= max_units && !self.units.contains_key(&number) {
            return None;
        }
        let summary = Summary::default();
        Some(self.units.entry(number).or_insert(Unit { arm, summary }))
    }
}

impl Setting {
    /// Returns the name and both values of the first setting that differs.
    pub(crate) fn first_difference(&self, other: &Self) -> Option<(&'static str, String, String)> {
        // In the notation of the options.
        let percent = |ppm: u32| format!("{}%", f64::from(ppm) / 1e4);
        let ms = |us: u32| format!("{}ms", f64::from(us) / 1e3);
        let s = |ms: Option<u64>| {
            ms.map_or_else(|| "none".to_owned(), |ms| format!("{}s", ms as f64 / 1e3))
        };
        let of = |setting: &Self| {
            [
                ("--share", percent(setting.bundled_ppm)),
                ("--assign-by", setting.assign_by.to_string()),
                ("--grace", ms(setting.grace_us)),
                ("--stall", ms(setting.stall_us)),
                ("connections", setting.connections_text.clone()),
                ("devices or network namespaces", setting.location.clone()),
                ("bundling options", setting.bundling.clone()),
                ("--duration", s(setting.duration_ms)),
            ]
        };
        let pairs = of(self).into_iter().zip(of(other));
        pairs
            .map(|((difference, old), (_, new))| (difference, old, new))
            .find(|(_, old, new)| old != new)
    }
}

#[cfg(test)]
impl Setting {
    /// Creates settings for tests.
    pub(crate) fn example() -> Self {
        Self {
            bundled_ppm: 500_000,
            assign_by: pillion_bpf::AssignBy::Peer,
            grace_us: 50_000,
            stall_us: 300_000,
            connections_text: "all connections".to_owned(),
            location: "all devices of its own network namespace".to_owned(),
            bundling: "{}".to_owned(),
            duration_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(segments: u64) -> Unit {
        let summary = Summary {
            segments,
            latencies: vec![(7, segments)].into(),
            ..Summary::default()
        };
        Unit {
            arm: Arm::Plain,
            summary,
        }
    }

    #[test]
    fn setting_difference_is_named_by_its_option() {
        let other = Setting {
            assign_by: pillion_bpf::AssignBy::Connection,
            ..Setting::example()
        };
        let (difference, old, new) = Setting::example().first_difference(&other).unwrap();
        assert_eq!(
            [difference, &old, &new],
            ["--assign-by", "peer", "connection"]
        );
        let other = Setting {
            bundled_ppm: 125_000,
            ..Setting::example()
        };
        let (difference, old, new) = Setting::example().first_difference(&other).unwrap();
        assert_eq!([difference, &old, &new], ["--share", "50%", "12.5%"]);
    }

    #[test]
    fn connections_of_excess_units_are_counted() {
        let mut state = TrialState::new(Setting::example(), [1, 2]);
        (0..3).for_each(|number| state.add(number, &unit(1), 2));
        state.add(0, &unit(1), 2);
        assert_eq!((state.units.len(), state.left_out), (2, 1));
        assert_eq!(state.units[&0].summary.segments, 2);
    }

    #[test]
    fn reserved_slot_survives_until_connection_ends() {
        let mut state = TrialState::new(Setting::example(), [1, 2]);
        state.reserve_slot(0, Arm::Plain, 2);
        (1..9).for_each(|number| state.add(number, &unit(1), 2));
        state.add(0, &unit(50), 2);
        assert_eq!(state.units[&0].summary.segments, 50);
        assert_eq!((state.units.len(), state.left_out), (2, 7));
    }

    #[test]
    fn small_absent_units_free_their_slots() {
        let mut state = TrialState::new(Setting::example(), [1, 2]);
        for (number, segments) in [(0, 20), (1, 19), (2, 0)] {
            state.add(number, &unit(segments), 3);
        }
        state.free_slots([2].into_iter(), 4);
        assert_eq!(state.units.len(), 3, "a slot is free");
        state.free_slots([2].into_iter(), 3);
        assert_eq!(state.units.keys().collect::<Vec<_>>(), [&0, &2]);
    }
}
