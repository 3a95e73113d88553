//! A published experiment with its runs: verdicts on its claims, and the causes that explain them.

use std::collections::BTreeMap;

use pillion_stats::report::{Choice, Column, Figure, Table, number};

use super::{Estimate, JudgedClaim, MeasuredRun, Verdict};
use crate::run_key::{Part, RunKey, Selector};
use crate::settings::experiment::{Cause, Claim, ClaimKind, Reproduction};

/// A published experiment with its runs.
#[derive(Debug, Clone, Default)]
pub struct ExperimentResult {
    /// The experiment's name.
    pub name: String,
    /// The experiment's title.
    pub title: String,
    /// The published numbers, tables and figures, and the selectors of the baseline and of causes.
    pub reproduction: Reproduction,
    /// The existing runs.
    pub runs: Vec<MeasuredRun>,
    /// The names of runs that do not exist.
    pub missing: Vec<RunKey>,
}

impl ExperimentResult {
    /// Judges each claim. If several seeds are expected, a single one is not decisive. If several
    /// causes explain a claim, the cause with which most claims hold is named.
    #[must_use]
    pub fn judged(&self) -> Vec<(&Claim, JudgedClaim)> {
        let Reproduction {
            baseline, causes, ..
        } = &self.reproduction;
        let judged = self.reproduction.claims.iter().map(|claim| {
            let mut judged = claim.judge(&self.runs, baseline, causes);
            if self.rests_on_single_seed(claim, &judged) {
                judged.verdict = Verdict::Undecided;
                judged.cause = None;
            }
            (claim, judged)
        });
        let mut judged: Vec<_> = judged.collect();
        self.prefer_most_explanatory_cause(&mut judged);
        for (claim, judged) in &mut judged {
            let deciding = match (judged.verdict, judged.cause) {
                (Verdict::Near, _) => baseline,
                (Verdict::Changed | Verdict::Hypothesis, Some(cause)) => &causes[cause].runs,
                _ => continue,
            };
            claim.judge_other_case(judged, &self.runs, &[deciding, baseline]);
        }
        judged
    }

    /// Whether the verdict rests on a single run although others like it are missing or lack the
    /// value.
    fn rests_on_single_seed(&self, claim: &Claim, judged: &JudgedClaim) -> bool {
        let is_one_of_several = |estimates: &[Estimate], extra: &Selector| {
            let is_missing = |name: &RunKey| claim.matches(name, extra);
            estimates.iter().any(|it| it.runs == 1)
                && (claim.runs_without_value(&self.runs, extra, estimates) > 0
                    || self.missing.iter().any(is_missing))
        };
        let with = |index: usize| {
            is_one_of_several(&judged.causes[index], &self.reproduction.causes[index].runs)
        };
        is_one_of_several(&judged.baseline, &self.reproduction.baseline)
            && !matches!(judged.verdict, Verdict::NotRun | Verdict::NotMeasured)
            || match judged.verdict {
                Verdict::Changed | Verdict::Hypothesis => judged.cause.is_some_and(with),
                Verdict::Miss => (0..self.reproduction.causes.len()).any(with),
                _ => false,
            }
    }

    /// Assigns to each claim that several causes explain the one with which most claims hold.
    /// Documented causes precede hypotheses.
    fn prefer_most_explanatory_cause(&self, judged: &mut [(&Claim, JudgedClaim)]) {
        let causes = &self.reproduction.causes;
        let held: Vec<_> = (0..causes.len())
            .map(|cause| count_held(judged, cause))
            .collect();
        for (_, judged) in judged.iter_mut().filter(|(_, it)| it.is_explained()) {
            let explains = (0..causes.len())
                .rev()
                .filter(|cause| judged.holds_with(*cause));
            judged.cause =
                explains.max_by_key(|cause| (!causes[*cause].source.is_empty(), held[*cause]));
        }
    }

    /// The name of the unmodified kernel in tables and CSV files.
    pub(super) const CURRENT_KERNEL: &str = "current kernel";

    /// Returns the name and selector of each column of measured values: the current kernel, then
    /// each cause.
    pub(super) fn kernels(&self) -> impl Iterator<Item = (String, &Selector)> {
        let causes = self.reproduction.causes.iter();
        let causes = causes.map(|cause| (cause.runs.to_string(), &cause.runs));
        std::iter::once((Self::CURRENT_KERNEL.to_owned(), &self.reproduction.baseline))
            .chain(causes)
    }

    /// Returns the warnings of runs, and to which runs each applies.
    pub fn warnings(&self) -> impl Iterator<Item = (&str, String)> {
        let mut affected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for run in &self.runs {
            for warning in &run.measures.warnings {
                affected.entry(warning).or_default().push(run.name.as_str());
            }
        }
        if !self.missing.is_empty() {
            let missing = self.missing.iter().map(RunKey::as_str).collect();
            affected.insert("these runs do not exist: not made yet, or failed", missing);
        }
        let identical_seeds = identical_seeds(&self.runs);
        if !identical_seeds.is_empty() {
            affected.insert(IDENTICAL_SEEDS, identical_seeds);
        }
        let affected = affected.into_iter();
        affected.map(|(warning, runs)| (warning, runs_text(&runs)))
    }

    /// Returns the warnings as a table; `None` without warnings.
    pub(super) fn warnings_table(&self) -> Option<Table> {
        let columns = [Column::left("runs"), Column::left("warning").wrapped(80)];
        let mut table = Table::new("Runs with warnings", columns);
        let warnings: Vec<_> = self.warnings().collect();
        for (warning, runs) in &warnings {
            table.row([runs, *warning]);
        }
        (!warnings.is_empty()).then_some(table)
    }

    /// Returns all figures of the experiment in order.
    pub fn figures(&self) -> impl Iterator<Item = Figure> {
        let figures = self.choices().flat_map(|choice| choice.figures);
        figures.map(|(_, figure)| figure)
    }

    /// Returns the experiment's figures: with the current kernel and with each cause, also as tails
    /// of distributions, and at all other values of the parameters.
    pub(super) fn choices(&self) -> impl Iterator<Item = Choice> {
        let choices = self.reproduction.figure.iter().map(move |sketch| {
            let with_causes = self.reproduction.causes.iter();
            let with_causes =
                with_causes.map(|cause| (&cause.runs, format!("if {}", cause.description)));
            let current = (&self.reproduction.baseline, Self::CURRENT_KERNEL.to_owned());
            let kernels = std::iter::once(current).chain(with_causes);
            let kernels: Vec<_> = kernels.collect();
            let at_values = sketch.at_values(&self.runs);
            let figures = at_values.iter().flat_map(|(values, sketch)| {
                kernels.iter().flat_map(move |(extra, kernel)| {
                    sketch.views().filter_map(move |(view, sketch)| {
                        let figure = sketch.draw(&self.runs, extra, kernel)?;
                        let mut options = vec![kernel.clone(), view.to_owned()];
                        options.extend_from_slice(values);
                        Some((options, figure))
                    })
                })
            });
            Choice {
                figures: figures.collect(),
            }
        });
        choices.filter(|choice| !choice.figures.is_empty())
    }

    /// Returns the heading of the experiment's part of the report.
    pub(super) fn heading(&self) -> String {
        format!("{}: {}", self.name, self.title)
    }
}

/// Names runs in a message: the only one, or the number and the first one.
#[must_use]
pub fn runs_text(runs: &[&str]) -> String {
    match runs {
        [run] => (*run).to_owned(),
        _ => format!("{} runs, first {}", runs.len(), runs[0]),
    }
}

fn count_held(judged: &[(&Claim, JudgedClaim)], cause: usize) -> usize {
    judged.iter().filter(|(_, it)| it.holds_with(cause)).count()
}

impl JudgedClaim {
    fn holds_with(&self, cause: usize) -> bool {
        self.holds[cause] == Some(true)
    }

    /// Whether the claim holds with the cause that is shown.
    fn is_explained(&self) -> bool {
        self.cause.is_some_and(|cause| self.holds_with(cause))
    }

    /// Returns the estimates and whether the claim holds, in the order of
    /// [`ExperimentResult::kernels`].
    pub(super) fn by_kernel(&self) -> impl Iterator<Item = (&[Estimate], Option<bool>)> {
        let causes = self.causes.iter().map(Vec::as_slice);
        let causes = causes.zip(self.holds.iter().copied());
        std::iter::once((self.baseline.as_slice(), self.holds_on_current_kernel())).chain(causes)
    }

    /// Whether the claim holds on the current kernel; `None` if unknown.
    fn holds_on_current_kernel(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Near => Some(true),
            Verdict::Changed | Verdict::Hypothesis | Verdict::Miss => Some(false),
            _ => None,
        }
    }

    /// Whether causes exist and the claim holds with none of them.
    fn holds_only_on_current_kernel(&self) -> bool {
        !self.holds.is_empty() && self.holds.iter().all(|it| *it == Some(false))
    }
}

impl ExperimentResult {
    /// Explains a verdict in a sentence.
    pub(super) fn explanation(&self, judged: &JudgedClaim) -> String {
        let cause = judged.cause.map(|index| {
            let Cause {
                description,
                source,
                ..
            } = &self.reproduction.causes[index];
            match source.as_str() {
                "" => description.clone(),
                source => format!("{description} ({source})"),
            }
        });
        let cause = cause.as_deref();
        let reason = match (judged.verdict, cause) {
            (Verdict::Near, _) if judged.holds_only_on_current_kernel() => {
                "holds only on the current kernel".to_owned()
            }
            (Verdict::Near, _) => String::new(),
            (Verdict::Changed, Some(cause)) => format!("holds if {cause}"),
            (Verdict::Hypothesis, Some(cause)) => {
                format!("holds if {cause}, which no source documents")
            }
            (Verdict::Changed | Verdict::Hypothesis | Verdict::Miss, _) => {
                "no cause explains it".to_owned()
            }
            (Verdict::Undecided, Some(cause)) if judged.is_explained() => {
                format!("more seeds are needed on the current kernel; holds if {cause}")
            }
            (Verdict::Undecided, Some(cause)) => {
                format!("more seeds are needed to decide whether it holds if {cause}")
            }
            (Verdict::Undecided, None) => "more seeds are needed".to_owned(),
            (Verdict::NotRun, _) if judged.baseline.is_empty() => {
                "its runs do not exist".to_owned()
            }
            (Verdict::NotRun, _) => {
                "does not hold on the current kernel; runs with causes are missing".to_owned()
            }
            (Verdict::NotMeasured, _) => {
                "its runs lack the measure, the group or the event".to_owned()
            }
        };
        let mut clauses = vec![reason];
        if judged.holds_in_other_case == Some(true) {
            clauses.push("also holds in the other case".to_owned());
        }
        let has_runs = !matches!(judged.verdict, Verdict::NotMeasured | Verdict::NotRun);
        if has_runs && judged.runs_without_value > 0 {
            let count = number::counted(judged.runs_without_value as u64, "run");
            clauses.push(format!("{count} without the value"));
        }
        clauses.retain(|clause| !clause.is_empty());
        clauses.join("; ")
    }

    /// Returns how many claims hold with each cause, of those for which that is known; `None` if it
    /// is known of no claim.
    pub(super) fn causes_table(&self, judged: &[(&Claim, JudgedClaim)]) -> Option<Table> {
        let columns = [
            Column::left("cause").wrapped(80),
            Column::right("claims that hold"),
            Column::left("documented by").wrapped(40),
        ];
        let mut table = Table::new("Claims that hold with each cause", columns);
        let is_self_check = |claim: &Claim| claim.kind() == ClaimKind::SelfCheck;
        let judged = judged.iter().filter(|(claim, _)| !is_self_check(claim));
        let decided = |checks: Vec<Option<bool>>| {
            let decided = checks.iter().flatten();
            let held = decided.clone().filter(|it| **it).count();
            (decided.clone().count() > 0).then(|| format!("{held} of {}", decided.count()))
        };
        let current = judged.clone().map(|(_, it)| it.holds_on_current_kernel());
        table.row(["(current kernel)".to_owned(), decided(current.collect())?]);
        for (index, cause) in self.reproduction.causes.iter().enumerate() {
            let with = judged.clone().map(|(_, it)| it.holds[index]).collect();
            if let Some(held) = decided(with) {
                let source = match cause.source.as_str() {
                    "" => "nothing: a hypothesis",
                    source => source,
                };
                table.row([&*cause.description, &*held, source]);
            }
        }
        (!self.reproduction.causes.is_empty()).then_some(table)
    }
}

/// The warning about runs that differ in their seed and give identical results.
const IDENTICAL_SEEDS: &str =
    "all seeds give identical results: they count as one test, and their interval is meaningless";

/// Returns the names of runs for which all seeds give identical results, bit for bit.
fn identical_seeds(runs: &[MeasuredRun]) -> Vec<&str> {
    let mut by_seed: BTreeMap<Vec<&Part>, Vec<&MeasuredRun>> = BTreeMap::new();
    for it in runs {
        let same_but_seed = it.name.without_seed().collect();
        by_seed.entry(same_but_seed).or_default().push(it);
    }
    let same_but_seed = by_seed.into_values().filter(|seeds| {
        let [first, others @ ..] = &seeds[..] else {
            return false;
        };
        !others.is_empty()
            && others
                .iter()
                .all(|it| it.measures.groups == first.measures.groups)
    });
    same_but_seed
        .flatten()
        .map(|run| run.name.as_str())
        .collect()
}
