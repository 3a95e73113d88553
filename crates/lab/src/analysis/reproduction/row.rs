//! One published experiment with what was run of it: its claims judged, and what explains them.

use std::collections::BTreeMap;

use pillion_stats::report::{Choice, Column, Figure, Table, number};

use super::{Digest, Estimate, FilledTable, GroupDigest, Judged, Verdict};
use crate::measure_ref::MeasureRef;
use crate::run_key::{Part, RunKey, Selector};
use crate::settings::experiment::{Claim, Reproduction};

/// A run, and what is kept of it.
#[derive(Debug, Clone)]
pub struct DigestedRun {
    /// The run's name, as in `plain,loss=2,seed=1`.
    pub name: RunKey,
    /// How long the run's streams were to send, in seconds.
    pub duration_s: f64,
    /// What is kept of the run.
    pub digest: Digest,
}

impl DigestedRun {
    /// Whether it is one of these runs, with `more` in its name besides.
    pub(super) fn is_of(&self, runs: &Selector, more: &Selector) -> bool {
        runs.takes(&self.name) && more.takes(&self.name)
    }

    /// The group of this name; of an empty one, the only group.
    pub(super) fn group(&self, name: &str) -> Option<&GroupDigest> {
        let groups = &self.digest.groups;
        match (name, groups.len()) {
            ("", 1) => groups.values().next(),
            (name, _) => groups.get(name),
        }
    }

    /// The value of a measure of a group.
    pub(super) fn value(&self, group: &str, measure: &MeasureRef) -> Option<f64> {
        self.group(group)?.value(measure)
    }
}

/// A published experiment, with what was run of it.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The experiment's name.
    pub name: String,
    /// What the experiment is about.
    pub title: String,
    /// The published numbers, tables and figures, and what tells runs of today from those of then.
    pub published: Reproduction,
    /// What was run.
    pub runs: Vec<DigestedRun>,
    /// The names of runs that were to be made and are not there.
    pub missing: Vec<RunKey>,
}

impl Row {
    /// Each claim, judged. Where there are several seeds, a single one decides nothing. A claim that
    /// several causes explain is explained by the one with which most of the experiment's claims hold.
    #[must_use]
    pub fn judged(&self) -> Vec<(&Claim, Judged)> {
        let causes = self.published.causes.iter();
        let causes: Vec<Selector> = causes.map(|cause| cause.runs.clone()).collect();
        let judged = self.published.published.iter().map(|claim| {
            let mut judged = claim.judge(&self.runs, &self.published.today, &causes);
            if self.decides_by_one_of_several(claim, &judged) {
                judged.verdict = Verdict::Undecided;
                judged.cause = None;
            }
            (claim, judged)
        });
        let mut judged: Vec<_> = judged.collect();
        by_the_cause_that_explains_most(&mut judged);
        judged
    }

    /// Whether something that the verdict follows from is of a single run, and others like it are not
    /// there, or have nothing of it.
    fn decides_by_one_of_several(&self, claim: &Claim, judged: &Judged) -> bool {
        let is_one_of_several = |estimates: &[Estimate], more: &Selector| {
            let is_missing = |name: &RunKey| claim.takes(name, more);
            estimates.iter().any(|it| it.runs == 1)
                && (claim.without(&self.runs, more, estimates) > 0
                    || self.missing.iter().any(is_missing))
        };
        let with = |place: usize| {
            is_one_of_several(&judged.causes[place], &self.published.causes[place].runs)
        };
        is_one_of_several(&judged.today, &self.published.today)
            && !matches!(judged.verdict, Verdict::NotRun | Verdict::NotMeasured)
            || match judged.verdict {
                Verdict::Changed => judged.cause.is_some_and(with),
                Verdict::Miss => (0..self.published.causes.len()).any(with),
                _ => false,
            }
    }

    /// What the kernel as it is is called, where ours of several are set beside a published number.
    pub(super) const TODAY: &str = "today";

    /// What is set beside the published numbers: the kernel of today, and each cause; its name, and what
    /// names of runs have.
    pub(super) fn kernels(&self) -> impl Iterator<Item = (String, &Selector)> {
        let causes = self.published.causes.iter();
        let causes = causes.map(|cause| (cause.runs.to_string(), &cause.runs));
        std::iter::once((Self::TODAY.to_owned(), &self.published.today)).chain(causes)
    }

    /// What casts doubt on runs, and on which.
    pub fn doubts(&self) -> impl Iterator<Item = (&str, String)> {
        let mut doubtful: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for run in &self.runs {
            for doubt in &run.digest.doubts {
                doubtful.entry(doubt).or_default().push(run.name.as_str());
            }
        }
        if !self.missing.is_empty() {
            let missing = self.missing.iter().map(RunKey::as_str).collect();
            doubtful.insert("they are not there: not made yet, or failed", missing);
        }
        let of_one_test = of_one_test(&self.runs);
        if !of_one_test.is_empty() {
            doubtful.insert(ONE_TEST, of_one_test);
        }
        let doubtful = doubtful.into_iter();
        doubtful.map(|(doubt, runs)| (doubt, which(&runs)))
    }

    /// The same as a table.
    pub(super) fn doubts_table(&self) -> Option<Table> {
        let columns = [
            Column::left("runs"),
            Column::left("why they are in doubt").wrapped(80),
        ];
        let mut table = Table::new("Runs in doubt", columns);
        let doubts: Vec<_> = self.doubts().collect();
        for (doubt, runs) in &doubts {
            table.row([runs, *doubt]);
        }
        (!doubts.is_empty()).then_some(table)
    }

    /// The experiment's tables, in the published columns: those of which anything was run.
    pub fn tables(&self) -> impl Iterator<Item = FilledTable> {
        self.published
            .table
            .iter()
            .filter_map(|table| table.fill(self))
    }

    /// The experiment's figures, all one after the other.
    pub fn figures(&self) -> impl Iterator<Item = Figure> {
        let figures = self.choices().flat_map(|choice| choice.figures);
        figures.map(|(_, figure)| figure)
    }

    /// The experiment's figures: each of the kernel of today, and as it was; distributions also
    /// by their tails; and all at the other values of what was varied.
    pub(super) fn choices(&self) -> impl Iterator<Item = Choice> {
        let choices = self.published.figure.iter().map(move |sketch| {
            let as_it_was = self.published.causes.iter();
            let as_it_was = as_it_was.map(|cause| (&cause.runs, format!("if {}", cause.is)));
            let today = (&self.published.today, "today".to_owned());
            let kernels = std::iter::once(today).chain(as_it_was);
            let kernels: Vec<_> = kernels.collect();
            let at_values = sketch.at_values(&self.runs);
            let figures = at_values.iter().flat_map(|(values, sketch)| {
                kernels.iter().flat_map(move |(more, kernel)| {
                    sketch.views().filter_map(move |(view, sketch)| {
                        let figure = sketch.draw(&self.runs, more, kernel)?;
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

    /// The heading of the experiment's part of the report.
    pub(super) fn heading(&self) -> String {
        format!("{}: {}", self.name, self.title)
    }
}

/// Which runs of an experiment: the one, or how many.
#[must_use]
pub fn which(runs: &[&str]) -> String {
    match runs {
        [run] => (*run).to_owned(),
        _ => format!("{} runs, {} the first", runs.len(), runs[0]),
    }
}

/// Has each claim that several causes explain explained by the one with which most of these hold.
fn by_the_cause_that_explains_most(judged: &mut [(&Claim, Judged)]) {
    let causes = judged.first().map_or(0, |(_, judged)| judged.holds.len());
    let held: Vec<_> = (0..causes).map(|cause| count_held(judged, cause)).collect();
    for (_, judged) in judged.iter_mut().filter(|(_, it)| it.is_explained()) {
        let explains = (0..causes).rev().filter(|cause| judged.holds_with(*cause));
        judged.cause = explains.max_by_key(|cause| held[*cause]);
    }
}

fn count_held(judged: &[(&Claim, Judged)], cause: usize) -> usize {
    judged.iter().filter(|(_, it)| it.holds_with(cause)).count()
}

impl Judged {
    fn holds_with(&self, cause: usize) -> bool {
        self.holds[cause] == Some(true)
    }

    /// Whether it holds with the cause that is shown.
    fn is_explained(&self) -> bool {
        self.cause.is_some_and(|cause| self.holds_with(cause))
    }

    /// The measure, and whether the claim holds, as in [`Row::kernels`].
    pub(super) fn by_kernel(&self) -> impl Iterator<Item = (&[Estimate], Option<bool>)> {
        let causes = self.causes.iter().map(Vec::as_slice);
        let causes = causes.zip(self.holds.iter().copied());
        std::iter::once((self.today.as_slice(), self.holds_today())).chain(causes)
    }

    /// Whether it holds today; `None` where that is not known.
    fn holds_today(&self) -> Option<bool> {
        match self.verdict {
            Verdict::Near => Some(true),
            Verdict::Changed | Verdict::Miss => Some(false),
            _ => None,
        }
    }

    /// Whether it holds with none of the causes, of which there are some.
    fn holds_today_alone(&self) -> bool {
        !self.holds.is_empty() && self.holds.iter().all(|it| *it == Some(false))
    }
}

impl Row {
    /// What a verdict means here, in a sentence.
    pub(super) fn why(&self, judged: &Judged) -> String {
        let cause = judged
            .cause
            .map(|place| self.published.causes[place].is.as_str());
        let why = match (judged.verdict, cause) {
            (Verdict::Near, _) if judged.holds_today_alone() => "holds today alone".to_owned(),
            (Verdict::Near, _) => String::new(),
            (Verdict::Changed, Some(cause)) => format!("holds if {cause}"),
            (Verdict::Changed | Verdict::Miss, _) => "no cause is shown".to_owned(),
            (Verdict::Undecided, Some(cause)) if judged.is_explained() => {
                format!("more seeds would tell for today; holds if {cause}")
            }
            (Verdict::Undecided, Some(cause)) => {
                format!("more seeds would tell whether it holds if {cause}")
            }
            (Verdict::Undecided, None) => "more seeds would tell".to_owned(),
            (Verdict::NotRun, _) if judged.today.is_empty() => "its runs were not made".to_owned(),
            (Verdict::NotRun, _) => {
                "does not hold today; not all runs of causes were made".to_owned()
            }
            (Verdict::NotMeasured, _) => {
                "its runs have no such measure or group, or nothing that it could be of".to_owned()
            }
        };
        match (judged.without, judged.verdict) {
            (0, _) | (_, Verdict::NotMeasured | Verdict::NotRun) => why,
            (without, _) => {
                let so = number::counted(without as u64, "run");
                format!(
                    "{why}{}{so} without it",
                    if why.is_empty() { "" } else { "; " }
                )
            }
        }
    }

    /// With each cause, how many of the claims hold of which that is known; nothing where nothing is.
    pub(super) fn causes_table(&self) -> Option<Table> {
        let columns = [
            Column::left("if").wrapped(80),
            Column::right("numbers that hold"),
        ];
        let mut table = Table::new("What explains how much", columns);
        let judged = self.judged();
        let known = |answers: Vec<Option<bool>>| {
            let known = answers.iter().flatten();
            let held = known.clone().filter(|it| **it).count();
            (known.clone().count() > 0).then(|| format!("{held} of {}", known.count()))
        };
        let today = judged.iter().map(|(_, it)| it.holds_today());
        table.row(["all is as today".to_owned(), known(today.collect())?]);
        for (place, cause) in self.published.causes.iter().enumerate() {
            let with = judged.iter().map(|(_, it)| it.holds[place]).collect();
            if let Some(held) = known(with) {
                table.row([cause.is.clone(), held]);
            }
        }
        (!self.published.causes.is_empty()).then_some(table)
    }
}

/// What is said of runs that differ by their seed, and give the same.
const ONE_TEST: &str =
    "every seed gives the same: they are one test, and an interval over them says nothing";

/// The names of runs of which each other seed gives the same as well, to the last bit.
fn of_one_test(runs: &[DigestedRun]) -> Vec<&str> {
    let mut by_seed: BTreeMap<Vec<&Part>, Vec<&DigestedRun>> = BTreeMap::new();
    for it in runs {
        let alike = it.name.without_seed().collect();
        by_seed.entry(alike).or_default().push(it);
    }
    let alike = by_seed.into_values().filter(|seeds| {
        let [first, others @ ..] = &seeds[..] else {
            return false;
        };
        !others.is_empty()
            && others
                .iter()
                .all(|it| it.digest.groups == first.digest.groups)
    });
    alike.flatten().map(|run| run.name.as_str()).collect()
}
