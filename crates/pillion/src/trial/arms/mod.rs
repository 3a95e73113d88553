use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use pillion_bpf::{Arm, Observation};
use pillion_stats::measure::Measure;
use serde::Serialize;

use crate::trial::estimate::{MIN_UNITS, Sample, seeded_rng};
use crate::trial::sequential_test::{
    FIRST_ANALYSIS_SEGMENTS, next_analysis_at, randomisation_test, threshold,
};
use crate::trial::state::{MIN_SEGMENTS, Setting, Unit};
use crate::trial::{Estimate, Formula, InterimAnalysis, MEASURES, Summary, TrialState, Verdict};

/// Maximum number of units that a trial compares. Later units are assigned, and only their
/// connections are counted.
const MAX_UNITS: usize = 10_000;

/// Denominator of [`Setting::bundled_ppm`].
const MILLION: u64 = 1_000_000;

/// Minimum share with which an arm of [`MAX_UNITS`] units reaches the size for an interim analysis.
const MIN_PPM: u32 = (MIN_UNITS * MILLION as usize).div_ceil(MAX_UNITS) as u32;

/// Accepted shares of the bundled arm, in parts per million.
pub const SHARE_RANGE_PPM: RangeInclusive<u32> = MIN_PPM..=MILLION as u32 - MIN_PPM;

/// Minimum data for the first interim analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstAnalysis {
    /// Segments in both arms together. The analysis at the end of `--duration` needs fewer.
    pub segments: u64,
    /// Units that are compared, in both arms together.
    pub units: u64,
    /// Minimum number of segments of a unit to be compared.
    pub segments_each: u64,
}

impl Setting {
    /// Returns the minimum data for the first interim analysis.
    #[must_use]
    pub fn first_analysis(&self) -> FirstAnalysis {
        FirstAnalysis {
            segments: FIRST_ANALYSIS_SEGMENTS,
            units: min_units(self.bundled_ppm),
            segments_each: MIN_SEGMENTS,
        }
    }
}

/// Trial with two arms, compared while it runs.
#[derive(Debug)]
pub struct Trial {
    state: TrialState,
    /// Observations of connections that are still open, by unit.
    present: Vec<(u64, Unit)>,
}

/// Results of a trial so far.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// Verdict of the interim analyses so far.
    pub verdict: Verdict,
    /// Interim analyses so far.
    pub interim_analyses: Vec<InterimAnalysis>,
    /// Results of the bundled arm.
    pub bundled: ArmResults,
    /// Results of the plain arm.
    pub plain: ArmResults,
    /// Comparison of each measure.
    pub measures: Vec<Comparison>,
    /// Connections of units beyond [`MAX_UNITS`].
    pub left_out: u64,
}

/// Results of one arm.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ArmResults {
    /// Number of units.
    pub units: u64,
    /// Units with enough segments to be compared.
    pub compared: u64,
    /// Sum of the units.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Measure in both arms, with intervals over units.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// Name, unit and formula.
    pub measure: Measure<Formula>,
    /// Estimate for the bundled arm.
    pub bundled: Option<Estimate>,
    /// Estimate for the plain arm.
    pub plain: Option<Estimate>,
    /// Bundled arm minus plain arm. At 95 % confidence, the intervals of all analyses contain the true
    /// difference.
    pub difference: Option<Estimate>,
}

impl Trial {
    /// Creates a trial that continues from this state.
    #[must_use]
    pub fn new(state: TrialState) -> Self {
        Self {
            state,
            present: Vec::new(),
        }
    }

    /// Replaces the observations of open connections, and adds those of connections that have ended
    /// since the last call.
    pub fn update(&mut self, observations: &[Observation]) {
        self.present.clear();
        let units = observations.iter().map(|observation| observation.unit);
        self.state.free_slots(units, MAX_UNITS);
        for observation in observations {
            let unit = Unit {
                arm: observation.arm,
                summary: observation.into(),
            };
            if observation.has_ended {
                self.state.add(observation.unit, &unit, MAX_UNITS);
            } else {
                // The slot must not depend on the order in which connections end.
                self.state
                    .reserve_slot(observation.unit, observation.arm, MAX_UNITS);
                self.present.push((observation.unit, unit));
            }
        }
    }

    /// Returns the state, with the open connections as observed last.
    #[must_use]
    pub fn state(&self) -> TrialState {
        let mut state = self.state.clone();
        for (unit, present) in &self.present {
            state.add(*unit, present, MAX_UNITS);
        }
        state
    }

    /// Returns the time observed so far, in milliseconds.
    #[must_use]
    pub fn observed_ms(&self) -> u64 {
        self.state.observed_ms
    }

    /// Sets the time observed so far, in milliseconds.
    pub fn set_observed_ms(&mut self, ms: u64) {
        self.state.observed_ms = ms;
    }

    /// Analyses the trial if an analysis is due or `is_last` is set, and returns its result. Set
    /// `is_last` only at a planned end: stopping when the numbers look good biases the result.
    pub fn analyse_if_due(&mut self, is_last: bool) -> Option<InterimAnalysis> {
        let units = self.state().units;
        let segments = units.values().map(|unit| unit.summary.segments);
        let segments = segments.fold(0, u64::saturating_add);
        let last = self
            .state
            .interim_analyses
            .last()
            .map(|analysis| analysis.segments);
        let is_due = segments >= next_analysis_at(last) || is_last && Some(segments) > last;
        if self.verdict() != Verdict::Undecided || !is_due {
            return None;
        }
        let ordinal = self.state.interim_analyses.len() + 1;
        let bundled_ppm = self.state.setting.bundled_ppm;
        let seed = self.state.key[0] ^ ordinal as u64;
        let analysis = analyse(&units, bundled_ppm, threshold(ordinal), seed)?;
        self.state.interim_analyses.push(analysis);
        Some(analysis)
    }

    /// Returns the verdict of the interim analyses so far.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let last = self.state.interim_analyses.last();
        last.map_or(Verdict::Undecided, InterimAnalysis::verdict)
    }

    /// Returns true if the trial has a verdict or has reached its planned duration.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        let planned_ms = self.state.setting.duration_ms;
        self.verdict() != Verdict::Undecided
            || planned_ms.is_some_and(|planned_ms| self.state.observed_ms >= planned_ms)
    }

    /// Returns the results so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let state = self.state();
        let [bundled, plain] = [Arm::Bundled, Arm::Plain].map(|arm| {
            let of_arm = state.units.values().filter(|unit| unit.arm == arm);
            of_arm.map(|unit| &unit.summary).collect::<Vec<_>>()
        });
        let mut rng = seeded_rng(state.key[1]);
        let smaller_arm = bundled.len().min(plain.len());
        let arms = [&bundled, &plain].map(|units| Sample::new(units, smaller_arm, &mut rng));
        let compared = [&bundled, &plain].map(|units| {
            let compared = units.iter().filter(|unit| is_compared(unit));
            compared.count() as u64
        });
        let [bundled, plain] = arms;
        // Until the verdict, the next analysis may end the trial.
        let is_undecided = self.verdict() == Verdict::Undecided;
        let ordinal = state.interim_analyses.len() + usize::from(is_undecided);
        let measures = MEASURES.map(|measure| Comparison {
            bundled: bundled.estimate(measure.of),
            plain: plain.estimate(measure.of),
            difference: bundled.difference(&plain, measure.of, ordinal),
            measure,
        });
        let [bundled, plain] = [(bundled, compared[0]), (plain, compared[1])].map(ArmResults::from);
        Results {
            verdict: self.verdict(),
            interim_analyses: state.interim_analyses,
            bundled,
            plain,
            measures: measures.into(),
            left_out: state.left_out,
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

/// Compares the arms at this significance level of benefit; `None` with too few units.
pub(crate) fn analyse(
    units: &BTreeMap<u64, Unit>,
    bundled_ppm: u32,
    threshold: f64,
    seed: u64,
) -> Option<InterimAnalysis> {
    let segments = units.values().map(|unit| unit.summary.segments);
    let compared = units.values().filter(|unit| is_compared(&unit.summary));
    let values: Vec<_> = compared
        .map(|Unit { arm, summary }| (*arm, summary.late_us as f64 / summary.segments as f64))
        .collect();
    // A unit whose connections end early may never have enough segments for the comparison above.
    let has_outcome = |unit: &&Unit| is_compared(&unit.summary) || unit.summary.cut > 0;
    let cuts = units.values().filter(has_outcome);
    let cuts: Vec<_> = cuts
        .filter_map(|unit| Some((unit.arm, unit.summary.cut_share()?)))
        .collect();
    // Waiting for more units would make the time of the analysis depend on the assignment.
    if (values.len() as u64) < min_units(bundled_ppm) {
        return None;
    }
    let rng = &mut seeded_rng(seed);
    let late = randomisation_test(&values, threshold, rng);
    let cut = randomisation_test(&cuts, threshold, rng);
    Some(InterimAnalysis {
        segments: segments.fold(0, u64::saturating_add),
        units: values.len() as u64,
        chance_of_better: late.lower,
        chance_of_worse: late.higher,
        chance_of_more_cut: cut.higher,
        threshold,
    })
}

/// Returns true if a unit has enough segments for its lateness to be compared.
fn is_compared(unit: &Summary) -> bool {
    unit.segments >= MIN_SEGMENTS
}

/// Returns the minimum number of units with which both arms can be expected to have
/// [`MIN_UNITS`].
fn min_units(bundled_ppm: u32) -> u64 {
    let bundled = u64::from(bundled_ppm);
    let smaller = bundled.min(MILLION.saturating_sub(bundled));
    (MIN_UNITS as u64 * MILLION).div_ceil(smaller.max(1))
}

#[cfg(test)]
mod tests;
