use std::collections::BTreeMap;

use pillion_stats::report::{Choice, Column, Figure, Table};

use super::{
    Claim, DigestedRun, Estimate, FilledTable, Judged, PublishedTable, Sketch, Verdict, explained,
    seeds,
};
use crate::run_key::{RunKey, Selector};

/// A published experiment, with what was run of it.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// The experiment's name.
    pub name: String,
    /// What the experiment is about.
    pub title: String,
    /// Where the experiment was published.
    pub source: String,
    /// What was found then.
    pub finding: String,
    /// No paper has it: its numbers are expectations of its own.
    pub beyond: bool,
    /// What names of runs on the kernel of today have.
    pub today: Selector,
    /// What else may have been otherwise then: what names have instead, and what it is.
    pub causes: Vec<(Selector, String)>,
    /// The published numbers.
    pub claims: Vec<Claim>,
    /// The published tables, to be filled.
    pub tables: Vec<PublishedTable>,
    /// The published figures, to be drawn again.
    pub sketches: Vec<Sketch>,
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
        let causes: Vec<Selector> = self.causes.iter().map(|(runs, _)| runs.clone()).collect();
        let judged = self.claims.iter().map(|claim| {
            let mut judged = claim.judge(&self.runs, &self.today, &causes);
            if self.decides_by_one_of_several(claim, &judged) {
                judged.verdict = Verdict::Undecided;
                judged.cause = None;
            }
            (claim, judged)
        });
        let mut judged: Vec<_> = judged.collect();
        explained::by_the_cause_that_explains_most(&mut judged);
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
        let with = |place: usize| is_one_of_several(&judged.causes[place], &self.causes[place].0);
        is_one_of_several(&judged.today, &self.today)
            && !matches!(judged.verdict, Verdict::NotRun | Verdict::NotMeasured)
            || match judged.verdict {
                Verdict::Changed => judged.cause.is_some_and(with),
                Verdict::Miss => (0..self.causes.len()).any(with),
                _ => false,
            }
    }

    /// What the kernel as it is is called, where ours of several are set beside a published number.
    pub(super) const TODAY: &str = "today";

    /// What is set beside the published numbers: the kernel of today, and each cause; its name, and what
    /// names of runs have.
    pub(super) fn kernels(&self) -> impl Iterator<Item = (String, &Selector)> {
        let causes = self.causes.iter();
        let causes = causes.map(|(more, _)| (more.to_string(), more));
        std::iter::once((Self::TODAY.to_owned(), &self.today)).chain(causes)
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
        let of_one_test = seeds::of_one_test(&self.runs);
        if !of_one_test.is_empty() {
            doubtful.insert(seeds::ONE_TEST, of_one_test);
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
        self.tables.iter().filter_map(|table| table.fill(self))
    }

    /// The experiment's figures, all one after the other.
    pub fn figures(&self) -> impl Iterator<Item = Figure> {
        let figures = self.choices().flat_map(|choice| choice.figures);
        figures.map(|(_, figure)| figure)
    }

    /// The experiment's figures: each of the kernel of today, and as it was; distributions also
    /// by their tails; and all at the other values of what was varied.
    pub(super) fn choices(&self) -> impl Iterator<Item = Choice> {
        let choices = self.sketches.iter().map(move |sketch| {
            let as_it_was = self.causes.iter();
            let as_it_was = as_it_was.map(|(runs, is)| (runs, format!("if {is}")));
            let kernels = std::iter::once((&self.today, "today".to_owned())).chain(as_it_was);
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
