use std::collections::{BTreeMap, HashSet};
use std::io;

use pillion_bpf::{Arm, DrawBy};
use serde::{Deserialize, Serialize};

use crate::trial::{Look, Summary};

/// Segments with which a unit is compared.
pub(crate) const FEWEST_SEGMENTS: u64 = 20;

/// What makes a trial what it is: with another one, its record is of no use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// How much of what is drawn is bundled, of a million.
    pub bundled_ppm: u32,
    /// Which connections share a draw.
    pub draw_by: DrawBy,
    /// Microseconds beyond the least RTT that are not called late.
    pub grace_us: u32,
    /// Microseconds of ACK latency beyond which a segment stalls.
    pub stall_us: u32,
    /// Which connections are chosen, in words.
    pub chosen: String,
    /// The devices and network namespaces that they are in, in words.
    pub places: String,
    /// How connections are bundled, as JSON.
    pub bundling: String,
    /// For how long the trial is to observe, in milliseconds; none until it is clear.
    #[serde(default)]
    pub duration_ms: Option<u64>,
}

/// What is drawn: connections that share an arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// The unit's arm.
    pub arm: Arm,
    /// What was observed of the unit's connections.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The layout of the file.
pub(crate) const VERSION: u32 = 2;

/// What a trial has found, as it is kept on disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    pub(crate) version: u32,
    /// What the trial is about.
    pub setting: Setting,
    /// The key of the draw; who knows it knows who is in which arm.
    pub key: [u64; 2],
    /// What was observed of each unit.
    pub units: BTreeMap<u64, Unit>,
    /// The looks taken so far.
    pub looks: Vec<Look>,
    /// Connections of units that were too many to be compared.
    pub left_out: u64,
    /// How long the trial has observed, in milliseconds.
    #[serde(default)]
    pub observed_ms: u64,
}

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be read, or not be written.
    #[error("the trial's record {name}: {error}")]
    File {
        /// The file.
        name: String,
        /// What the kernel says.
        error: io::Error,
    },
    /// The file holds something else.
    #[error("{name} is no record of a trial, or one of another version; name another file: {why}")]
    Foreign {
        /// The file.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// Another process keeps its trial's record in this file.
    #[error(
        "{name} is the record of a trial that goes on in another process; wait for its end, or name another file"
    )]
    InUse {
        /// The file.
        name: String,
    },
    /// The trial on record is another one.
    #[error(
        "{name} is the record of a trial with other {what}: {old}, and not {new}; end that one by \
         removing the file, or name another file"
    )]
    OtherTrial {
        /// The file.
        name: String,
        /// What differs.
        what: &'static str,
        /// As on record.
        old: String,
        /// As asked for now.
        new: String,
    },
}

impl RecordError {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Foreign { .. } | Self::InUse { .. } | Self::OtherTrial { .. }
        )
    }
}

impl Record {
    /// The record of a trial that begins.
    #[must_use]
    pub fn new(setting: Setting, key: [u64; 2]) -> Self {
        Self {
            version: VERSION,
            setting,
            key,
            units: BTreeMap::new(),
            looks: Vec::new(),
            left_out: 0,
            observed_ms: 0,
        }
    }

    /// Adds what was observed of some of a unit's connections, unless there are too many units.
    pub(crate) fn add(&mut self, number: u64, unit: &Unit, most: usize) {
        match self.give_place(number, unit.arm, most) {
            Some(known) => known.summary += &unit.summary,
            None => self.left_out = self.left_out.saturating_add(1),
        }
    }

    /// Where no place is left among so many, frees those of units of which too few segments were
    /// observed to compare them, though connections be cut short (who scans has that), but not those of units that are `present`.
    pub(crate) fn make_room(&mut self, present: impl Iterator<Item = u64>, most: usize) {
        if self.units.len() < most {
            return;
        }
        let present: HashSet<_> = present.collect();
        let stays = |number: &u64, unit: &mut Unit| {
            unit.summary.segments >= FEWEST_SEGMENTS || present.contains(number)
        };
        self.units.retain(stays);
    }

    /// Gives a unit a place among so many, where one is left.
    pub(crate) fn give_place(&mut self, number: u64, arm: Arm, most: usize) -> Option<&mut Unit> {
        if self.units.len() >= most && !self.units.contains_key(&number) {
            return None;
        }
        let summary = Summary::default();
        Some(self.units.entry(number).or_insert(Unit { arm, summary }))
    }
}

impl Setting {
    /// The first thing in which another setting differs, as it is in both.
    pub(crate) fn differing(&self, other: &Self) -> Option<(&'static str, String, String)> {
        // As the options take them.
        let percent = |ppm: u32| format!("{}%", f64::from(ppm) / 1e4);
        let ms = |us: u32| (f64::from(us) / 1e3).to_string();
        let s = |ms: Option<u64>| {
            ms.map_or_else(|| "none".to_owned(), |ms| (ms as f64 / 1e3).to_string())
        };
        let of = |setting: &Self| {
            [
                ("--share", percent(setting.bundled_ppm)),
                ("--draw-by", setting.draw_by.to_string()),
                ("--grace, in ms", ms(setting.grace_us)),
                ("--stall, in ms", ms(setting.stall_us)),
                ("connections", setting.chosen.clone()),
                ("devices or network namespaces", setting.places.clone()),
                ("options of bundling", setting.bundling.clone()),
                ("--duration, in s", s(setting.duration_ms)),
            ]
        };
        let pairs = of(self).into_iter().zip(of(other));
        pairs
            .map(|((what, old), (_, new))| (what, old, new))
            .find(|(_, old, new)| old != new)
    }
}

#[cfg(test)]
impl Setting {
    /// One for tests.
    pub(crate) fn example() -> Self {
        Self {
            bundled_ppm: 500_000,
            draw_by: pillion_bpf::DrawBy::Peer,
            grace_us: 50_000,
            stall_us: 300_000,
            chosen: "all connections".to_owned(),
            places: "all devices of its own network namespace".to_owned(),
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
    fn another_draw_is_told_in_the_words_that_one_types() {
        let other = Setting {
            draw_by: pillion_bpf::DrawBy::Connection,
            ..Setting::example()
        };
        let (what, old, new) = Setting::example().differing(&other).unwrap();
        assert_eq!([what, &old, &new], ["--draw-by", "peer", "connection"]);
        let other = Setting {
            bundled_ppm: 125_000,
            ..Setting::example()
        };
        let (what, old, new) = Setting::example().differing(&other).unwrap();
        assert_eq!([what, &old, &new], ["--share", "50%", "12.5%"]);
    }

    #[test]
    fn more_units_than_can_be_compared_are_counted() {
        let mut record = Record::new(Setting::example(), [1, 2]);
        (0..3).for_each(|number| record.add(number, &unit(1), 2));
        record.add(0, &unit(1), 2);
        assert_eq!((record.units.len(), record.left_out), (2, 1));
        assert_eq!(record.units[&0].summary.segments, 2);
    }

    #[test]
    fn a_unit_keeps_its_place_whenever_its_connections_end() {
        let mut record = Record::new(Setting::example(), [1, 2]);
        record.give_place(0, Arm::Plain, 2);
        (1..9).for_each(|number| record.add(number, &unit(1), 2));
        record.add(0, &unit(50), 2);
        assert_eq!(record.units[&0].summary.segments, 50);
        assert_eq!((record.units.len(), record.left_out), (2, 7));
    }

    #[test]
    fn units_that_are_too_small_to_be_compared_make_room() {
        let mut record = Record::new(Setting::example(), [1, 2]);
        for (number, segments) in [(0, 20), (1, 19), (2, 0)] {
            record.add(number, &unit(segments), 3);
        }
        record.make_room([2].into_iter(), 4);
        assert_eq!(record.units.len(), 3, "there is a place left");
        record.make_room([2].into_iter(), 3);
        assert_eq!(record.units.keys().collect::<Vec<_>>(), [&0, &2]);
    }
}
