//! Continuous comparison of a rule's bundled connections with those that its holdback leaves plain.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use pillion_bpf::{Arm, Holdback, Observation, Policy};
use pillion_stats::measure::Unit as MeasureUnit;
use serde::{Deserialize, Serialize};

use crate::trial::arms::analyse;
use crate::trial::estimate::{Sample, estimate_text, seeded_rng};
use crate::trial::sequential_test::{FIRST_ANALYSIS_SEGMENTS, threshold};
use crate::trial::state::Unit;
use crate::trial::{Estimate, InterimAnalysis, LATENESS_MS, Summary, Verdict};

// The comparison consists of windows, each with its own analysis, so that earlier benefit does not
// hide later harm. Window k may withdraw bundling wrongly with a probability of at most
// `ERROR_RATE` / (k (k + 1)), half of it for either measure, and as often report a benefit. The same
// connections appear in many windows, and Boole's inequality, on which that alpha spending rests
// (K. K. G. Lan, D. L. DeMets, Biometrika 1983), holds for dependent analyses. Windows grow with the
// age, so that their number, and with it the evidence needed, grows with its logarithm.
//
// A unit is a bucket: connections with equal first bits of their hash, which share an arm. Their
// number bounds memory, and the test compares what was assigned at random.

/// Bounds of the length of a window.
const WINDOW_MS: [u64; 2] = [10_000, 7 * 24 * 3600 * 1000];

/// Within the bounds, a window lasts this part of the time before it.
const WINDOW_DIVISOR: u64 = 4;

/// Time between two readings of the observations.
const READ_INTERVAL: Duration = Duration::from_secs(10);

/// Sums over connections of one arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArmCounts {
    /// Connections.
    pub connections: u64,
    /// New segments that were acknowledged with a known ACK latency.
    pub segments: u64,
    /// Waits for their ACKs beyond the minimum RTT and 50 ms, in microseconds.
    pub late_us: u64,
    /// Segments with new data.
    pub sent: u64,
    /// Connections that ended by an error with data in flight or unsent.
    pub cut: u64,
}

impl From<&Observation> for ArmCounts {
    fn from(observation: &Observation) -> Self {
        Self {
            connections: 1,
            segments: observation.segments,
            late_us: observation.late_us,
            sent: observation.counters.segments(),
            cut: observation.is_aborted.into(),
        }
    }
}

impl From<&ArmCounts> for Summary {
    fn from(counts: &ArmCounts) -> Self {
        Self {
            segments: counts.segments,
            late_us: counts.late_us,
            sent: counts.sent,
            cut: counts.cut,
            ..Self::default()
        }
    }
}

impl ArmCounts {
    /// Returns the increase since an earlier reading of the same connection. An observation restarts
    /// when a reload changes the share of its rule.
    fn since(self, last: Self) -> Self {
        if self.segments < last.segments || self.sent < last.sent {
            return Self {
                connections: 0,
                ..self
            };
        }
        Self {
            connections: self.connections.saturating_sub(last.connections),
            segments: self.segments - last.segments,
            late_us: self.late_us.saturating_sub(last.late_us),
            sent: self.sent - last.sent,
            cut: self.cut.saturating_sub(last.cut),
        }
    }
}

impl AddAssign for ArmCounts {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.segments += other.segments;
        self.late_us += other.late_us;
        self.sent += other.sent;
        self.cut += other.cut;
    }
}

/// Comparison of a rule so far, as in `status --json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleComparison {
    /// Number of the rule.
    pub rule: u32,
    /// Share of its connections that stay plain.
    pub holdback_ppm: u32,
    /// Time of the complete windows.
    pub observed_ms: u64,
    /// Number of complete windows.
    pub windows: u64,
    /// Analysis of the last one.
    pub last_window: Option<InterimAnalysis>,
    /// Lateness of bundled connections in it, per segment.
    pub bundled_late_ms: Option<Estimate>,
    /// Lateness of plain connections in it, per segment.
    pub plain_late_ms: Option<Estimate>,
    /// Bundled minus plain. At 95 % confidence, the intervals of all windows contain the true
    /// difference.
    pub difference_late_ms: Option<Estimate>,
    /// Bundled connections since the start.
    pub bundled: ArmCounts,
    /// Plain connections since the start.
    pub plain: ArmCounts,
}

impl RuleComparison {
    /// Returns the verdict of the last window.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let last = self.last_window.as_ref();
        last.map_or(Verdict::Undecided, InterimAnalysis::verdict)
    }

    /// Returns true once its bundled connections were reliably worse; no window follows.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        self.verdict() == Verdict::Harms
    }

    /// Describes how the arms differ.
    #[must_use]
    pub fn differences(&self) -> String {
        let late = |of| estimate_text(of, MeasureUnit::Milliseconds);
        let analysis = self.last_window.as_ref();
        let cut = match analysis.is_some_and(InterimAnalysis::is_cut_clear) {
            true => "; more bundled ones ended by an error",
            false => "",
        };
        format!(
            "lateness in ms: {} bundled, {} plain{cut}",
            late(self.bundled_late_ms),
            late(self.plain_late_ms)
        )
    }

    /// Stores the lateness of both arms in a window.
    fn estimate(&mut self, units: &BTreeMap<u64, Unit>, seed: u64) {
        let [bundled, plain] = [Arm::Bundled, Arm::Plain].map(|arm| {
            let of_arm = units.values().filter(|unit| unit.arm == arm);
            of_arm.map(|unit| &unit.summary).collect::<Vec<_>>()
        });
        let smaller_arm = bundled.len().min(plain.len());
        let rng = &mut seeded_rng(seed);
        let [bundled, plain] = [bundled, plain].map(|units| Sample::new(&units, smaller_arm, rng));
        self.bundled_late_ms = bundled.estimate(LATENESS_MS);
        self.plain_late_ms = plain.estimate(LATENESS_MS);
        let ordinal = self.windows as usize;
        self.difference_late_ms = bundled.difference(&plain, LATENESS_MS, ordinal);
    }
}

impl fmt::Display for RuleComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rule, share) = (self.rule, Holdback::from_ppm(self.holdback_ppm));
        write!(f, "holdback {share} of rule {rule}: ")?;
        let verdict = match self.verdict() {
            _ if self.last_window.is_none() => return f.write_str("not compared yet"),
            Verdict::Harms => "bundling withdrawn",
            Verdict::Helps => "bundling helps",
            Verdict::Undecided => "no clear difference",
        };
        write!(f, "{verdict}; {}", self.differences())
    }
}

/// A rule with a holdback, and its current window.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct HeldBackRule {
    /// [`Rule::source`](pillion_bpf::Rule::source), or all fields of a rule without it. A changed rule is
    /// another one.
    source: String,
    comparison: RuleComparison,
    /// Units of the current window by bucket, which a hand-over does not pass on.
    #[serde(skip)]
    units: BTreeMap<u64, (Arm, ArmCounts)>,
    /// Time of the current window so far.
    #[serde(skip)]
    window_ms: u64,
}

impl HeldBackRule {
    /// Adds counts of a connection with this hash.
    fn add(&mut self, hash: u64, arm: Arm, counts: ArmCounts) {
        let unit = self.units.entry(Holdback::bucket(hash));
        unit.or_insert((arm, ArmCounts::default())).1 += counts;
        match arm {
            Arm::Bundled => self.comparison.bundled += counts,
            Arm::Plain => self.comparison.plain += counts,
        }
    }

    /// Ends and analyses the current window if it is due, and returns its units.
    fn analyse_if_due(&mut self, key: [u64; 2]) -> Option<BTreeMap<u64, Unit>> {
        let [min, max] = WINDOW_MS;
        let comparison = &mut self.comparison;
        let window_ms = (comparison.observed_ms / WINDOW_DIVISOR).clamp(min, max);
        let segments = self.units.values().map(|(_, counts)| counts.segments);
        if self.window_ms < window_ms || segments.sum::<u64>() < FIRST_ANALYSIS_SEGMENTS {
            return None;
        }
        let ordinal = comparison.windows + 1;
        let bundled_ppm = 1_000_000 - comparison.holdback_ppm;
        let units = self.units.iter().map(|(bucket, (arm, counts))| {
            let (arm, summary) = (*arm, Summary::from(counts));
            (*bucket, Unit { arm, summary })
        });
        let units = units.collect();
        // Both verdicts have the whole error rate, because each is a claim of its own.
        let threshold = 2.0 * threshold(ordinal as usize);
        let analysis = analyse(&units, bundled_ppm, threshold, key[0] ^ ordinal)?;
        comparison.last_window = Some(analysis);
        comparison.windows = ordinal;
        comparison.observed_ms += self.window_ms;
        self.window_ms = 0;
        self.units.clear();
        Some(units)
    }
}

/// Rules with a holdback, and the connections that they compare.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Holdbacks {
    /// Secret key of the assignment; `None` if the programs observe no connections by holdback.
    key: Option<[u64; 2]>,
    rules: Vec<HeldBackRule>,
    /// Last reading of each connection, by its cookie, and the rule that counts it; 0: none.
    #[serde(skip)]
    last: HashMap<u64, (u32, ArmCounts)>,
    #[serde(skip)]
    read_at: Option<Instant>,
}

impl Holdbacks {
    /// Starts the comparisons of a policy.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        let rules = (1..).zip(&policy.rules);
        let rules = rules.filter(|(_, rule)| !rule.holdback.is_none());
        let rules = rules.map(|(number, rule)| HeldBackRule {
            source: match rule.source.as_str() {
                // A rule of the command line has no text.
                "" => format!("{rule:?}"),
                text => text.to_owned(),
            },
            comparison: RuleComparison {
                rule: number,
                holdback_ppm: rule.holdback.ppm(),
                ..RuleComparison::default()
            },
            units: BTreeMap::new(),
            window_ms: 0,
        });
        // A trial reads the observations itself.
        let observing = policy.observing.filter(|it| it.bundled_ppm.is_none());
        Self {
            key: observing.map(|it| it.key),
            rules: rules.collect(),
            ..Self::default()
        }
    }

    /// Continues the comparisons of rules that did not change, and returns the numbers of those from
    /// which bundling is withdrawn.
    pub fn continue_from(&mut self, old: &Self) -> Vec<u32> {
        self.key = self.key.or(old.key);
        (self.last, self.read_at) = (old.last.clone(), old.read_at);
        let mut unused: Vec<_> = old.rules.iter().collect();
        let mut renumbered = HashMap::new();
        for rule in &mut self.rules {
            let equal = |it: &&HeldBackRule| it.source == rule.source;
            if let Some(index) = unused.iter().position(equal) {
                let number = rule.comparison.rule;
                *rule = unused.remove(index).clone();
                renumbered.insert(rule.comparison.rule, number);
                rule.comparison.rule = number;
            }
        }
        for (rule, _) in self.last.values_mut() {
            *rule = renumbered.get(rule).copied().unwrap_or(0);
        }
        let withdrawn = self.comparisons().filter(|it| it.is_withdrawn());
        withdrawn.map(|it| it.rule).collect()
    }

    /// Returns the key of the assignment, if the programs observe connections.
    #[must_use]
    pub fn key(&self) -> Option<[u64; 2]> {
        self.key
    }

    /// Returns true if there is a holdback, but the programs were loaded without one.
    #[must_use]
    pub fn is_unobserved(&self) -> bool {
        self.key.is_none() && !self.rules.is_empty()
    }

    /// Returns the comparisons so far.
    pub fn comparisons(&self) -> impl Iterator<Item = &RuleComparison> {
        self.rules.iter().map(|rule| &rule.comparison)
    }

    /// Returns true if the observations are to be read now, and starts the time until the next reading.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let elapsed = self.read_at.map(|at| now.saturating_duration_since(at));
        let is_due = elapsed.is_none_or(|elapsed| elapsed >= READ_INTERVAL);
        if self.key.is_none() || !is_due {
            return false;
        }
        self.read_at = Some(now);
        for rule in &mut self.rules {
            rule.window_ms += elapsed.unwrap_or_default().as_millis() as u64;
        }
        true
    }

    /// Adds a reading of a connection. One whose arm is not that of its rule's share waits for its next
    /// packet, which assigns it.
    pub fn add(&mut self, observation: &Observation) {
        let counts = ArmCounts::from(observation);
        let mut rules = self.rules.iter_mut();
        let rule = rules.find(|it| it.comparison.rule == observation.rule);
        let is_assigned = |it: &HeldBackRule| {
            let holdback = Holdback::from_ppm(it.comparison.holdback_ppm);
            holdback.arm_of(observation.unit) == observation.arm
        };
        let rule = rule.filter(|it| !it.comparison.is_withdrawn() && is_assigned(it));
        let number = rule.as_ref().map_or(0, |it| it.comparison.rule);
        let last = match observation.has_ended {
            true => self.last.remove(&observation.cookie),
            false => self.last.insert(observation.cookie, (number, counts)),
        };
        if let Some(rule) = rule {
            let (counted_by, last) = last.unwrap_or_default();
            // A changed rule counts older connections, too.
            let connections = (counted_by != number).into();
            let counts = ArmCounts {
                connections,
                ..counts.since(last)
            };
            rule.add(observation.unit, observation.arm, counts);
        }
    }

    /// Analyses the windows that are due, and returns the rules from which bundling is withdrawn now.
    pub fn analyse(&mut self) -> Vec<RuleComparison> {
        let key = self.key.unwrap_or_default();
        let rules = self
            .rules
            .iter_mut()
            .filter(|it| !it.comparison.is_withdrawn());
        let analysed = rules.filter_map(|rule| {
            let units = rule.analyse_if_due(key)?;
            rule.comparison.estimate(&units, key[1]);
            Some(rule.comparison.clone())
        });
        analysed.filter(RuleComparison::is_withdrawn).collect()
    }
}

#[cfg(test)]
mod tests;
