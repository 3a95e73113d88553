use std::ops::RangeInclusive;

use pillion_bpf::{Arm, Observation};
use pillion_stats::measure::Measure;
use serde::Serialize;

use crate::trial::estimate::{FEWEST, Sample, generator};
use crate::trial::record::{FEWEST_SEGMENTS, Setting, Unit};
use crate::trial::sequential_test::{FIRST, chances, due_at, threshold};
use crate::trial::{Estimate, Look, MEASURES, Of, Record, Summary, Verdict};

/// Units that a trial compares at most; later ones are drawn, and their connections counted alone.
const MOST_UNITS: usize = 10_000;

/// A share, as of [`Setting::bundled_ppm`], is of this.
const MILLION: u64 = 1_000_000;

/// The least share with which an arm of as many units as there can be has those that a look takes.
const LEAST_PPM: u32 = (FEWEST * MILLION as usize).div_ceil(MOST_UNITS) as u32;

/// Shares, of a million, with which a trial can come to look.
pub const SHARES_PPM: RangeInclusive<u32> = LEAST_PPM..=MILLION as u32 - LEAST_PPM;

/// What has to be there before a trial looks for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstLook {
    /// Segments, in both arms together; fewer at the end of a time that was said before.
    pub segments: u64,
    /// Units that are compared, in both arms together.
    pub units: u64,
    /// Segments with which a unit is compared.
    pub segments_each: u64,
}

impl Setting {
    /// What a trial's first look takes.
    #[must_use]
    pub fn first_look(&self) -> FirstLook {
        FirstLook {
            segments: FIRST,
            units: fewest_units(self.bundled_ppm),
            segments_each: FEWEST_SEGMENTS,
        }
    }
}

/// Two arms, compared while they go on.
#[derive(Debug)]
pub struct Trial {
    record: Record,
    /// What was observed of connections that go on.
    present: Vec<(u64, Unit)>,
}

/// What a trial says so far.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// The verdict of the looks so far.
    pub verdict: Verdict,
    /// The looks so far.
    pub looks: Vec<Look>,
    /// The bundled arm.
    pub bundled: ArmResults,
    /// The plain arm.
    pub plain: ArmResults,
    /// Each measure of both arms.
    pub measures: Vec<Comparison>,
    /// Connections of units that were too many to be compared.
    pub left_out: u64,
}

/// What one arm has.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ArmResults {
    /// Units.
    pub units: u64,
    /// How many of these have sent enough to be compared.
    pub compared: u64,
    /// The units together.
    #[serde(flatten)]
    pub summary: Summary,
}

/// A measure of both arms, with intervals over units.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// The measure.
    pub measure: Measure<Of>,
    /// The measure of the bundled arm.
    pub bundled: Option<Estimate>,
    /// The measure of the plain arm.
    pub plain: Option<Estimate>,
    /// The bundled arm's less the plain one's.
    pub difference: Option<Estimate>,
}

impl Trial {
    /// A trial that goes on where its record ends.
    #[must_use]
    pub fn new(record: Record) -> Self {
        Self {
            record,
            present: Vec::new(),
        }
    }

    /// Takes what was observed of all connections so far, and of those that have ended since the
    /// last time.
    pub fn take(&mut self, observations: &[Observation]) {
        self.present.clear();
        let units = observations.iter().map(|seen| seen.unit);
        self.record.make_room(units, MOST_UNITS);
        for seen in observations {
            let unit = Unit {
                arm: seen.arm,
                summary: seen.into(),
            };
            if seen.has_ended {
                self.record.add(seen.unit, &unit, MOST_UNITS);
            } else {
                // Its place is not to depend on when its connections end.
                self.record.give_place(seen.unit, seen.arm, MOST_UNITS);
                self.present.push((seen.unit, unit));
            }
        }
    }

    /// The record, with the connections that go on as they are now.
    #[must_use]
    pub fn record(&self) -> Record {
        let mut record = self.record.clone();
        for (unit, present) in &self.present {
            record.add(*unit, present, MOST_UNITS);
        }
        record
    }

    /// How long it has observed so far, in milliseconds.
    #[must_use]
    pub fn observed_ms(&self) -> u64 {
        self.record.observed_ms
    }

    /// It has observed so long by now.
    pub fn has_observed(&mut self, ms: u64) {
        self.record.observed_ms = ms;
    }

    /// Looks at the trial if a look is due, or if `is_last`, and says what came of it. That it is
    /// the last one must have been planned before: who ends a trial when it looks good finds what
    /// is not there.
    pub fn look(&mut self, is_last: bool) -> Option<Look> {
        let units = self.record().units;
        let segments = units.values().map(|unit| unit.summary.segments);
        let segments = segments.fold(0, u64::saturating_add);
        let last = self.record.looks.last().map(|look| look.segments);
        let is_due = segments >= due_at(last) || is_last && Some(segments) > last;
        if self.verdict() != Verdict::Undecided || !is_due {
            return None;
        }
        let compared = units.values().filter(|unit| is_compared(&unit.summary));
        let values: Vec<_> = compared
            .map(|Unit { arm, summary }| (*arm, summary.late_us as f64 / summary.segments as f64))
            .collect();
        // Who is cut short may never send enough for the comparison above.
        let ended = |unit: &&Unit| is_compared(&unit.summary) || unit.summary.cut > 0;
        let cuts = units.values().filter(ended);
        let cuts: Vec<_> = cuts
            .filter_map(|unit| Some((unit.arm, unit.summary.cut_share()?)))
            .collect();
        // To wait until so many are there would have the draw decide when it is looked.
        if (values.len() as u64) < fewest_units(self.record.setting.bundled_ppm) {
            return None;
        }
        let number = self.record.looks.len() + 1;
        let seed = self.record.key[0] ^ number as u64;
        let threshold = threshold(number);
        let random = &mut generator(seed);
        let late = chances(&values, threshold, random);
        let cut = chances(&cuts, threshold, random);
        let look = Look {
            segments,
            units: values.len() as u64,
            chance_of_better: late.of_lower,
            chance_of_worse: late.of_higher,
            chance_of_more_cut: cut.of_higher,
            threshold,
        };
        self.record.looks.push(look);
        Some(look)
    }

    /// What the looks so far decided.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let last = self.record.looks.last();
        last.map_or(Verdict::Undecided, Look::verdict)
    }

    /// Whether nothing more is to be observed: it is decided, or the time is over that was said for it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let planned_ms = self.record.setting.duration_ms;
        self.verdict() != Verdict::Undecided
            || planned_ms.is_some_and(|planned_ms| self.record.observed_ms >= planned_ms)
    }

    /// What the trial says so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let record = self.record();
        let [bundled, plain] = [Arm::Bundled, Arm::Plain].map(|arm| {
            let of_arm = record.units.values().filter(|unit| unit.arm == arm);
            of_arm.map(|unit| &unit.summary).collect::<Vec<_>>()
        });
        let mut random = generator(record.key[1]);
        let fewest = bundled.len().min(plain.len());
        let arms = [&bundled, &plain].map(|units| Sample::new(units, fewest, &mut random));
        let measures = MEASURES.map(|measure| compare(measure, &arms)).into();
        let compared = [&bundled, &plain].map(|units| {
            let compared = units.iter().filter(|unit| is_compared(unit));
            compared.count() as u64
        });
        let [bundled, plain] = arms;
        let [bundled, plain] = [(bundled, compared[0]), (plain, compared[1])].map(ArmResults::from);
        Results {
            verdict: self.verdict(),
            looks: record.looks,
            bundled,
            plain,
            measures,
            left_out: record.left_out,
        }
    }
}

impl From<(Sample, u64)> for ArmResults {
    fn from((arm, compared): (Sample, u64)) -> Self {
        Self {
            units: arm.units as u64,
            compared,
            summary: arm.sum,
        }
    }
}

/// Whether a unit has sent enough for its lateness to say anything.
fn is_compared(unit: &Summary) -> bool {
    unit.segments >= FEWEST_SEGMENTS
}

/// The fewest units of which the draw can be expected to put enough into each arm.
fn fewest_units(bundled_ppm: u32) -> u64 {
    let bundled = u64::from(bundled_ppm);
    let smaller = bundled.min(MILLION.saturating_sub(bundled));
    (FEWEST as u64 * MILLION).div_ceil(smaller.max(1))
}

fn compare(measure: Measure<Of>, [bundled, plain]: &[Sample; 2]) -> Comparison {
    Comparison {
        measure,
        bundled: bundled.estimate(measure.of),
        plain: plain.estimate(measure.of),
        difference: bundled.difference(plain, measure.of),
    }
}

#[cfg(test)]
mod tests;
