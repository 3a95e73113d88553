use std::collections::BTreeMap;

use pillion_measure::Unit;
use pillion_report::{Choice, Column, Fact, Figure, Page, Part, Table, number};
use serde_json::json;

use super::digest::unit;
use super::{
    Claim, DigestedRun, Estimate, FilledTable, Judged, PublishedTable, Sketch, Statement, Verdict,
    seeds,
};

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
    pub today: Vec<String>,
    /// What else may have been otherwise then: what names have instead, and what it is.
    pub causes: Vec<(Vec<String>, String)>,
    /// The published numbers.
    pub claims: Vec<Claim>,
    /// The published tables, to be filled.
    pub tables: Vec<PublishedTable>,
    /// The published figures, to be drawn again.
    pub sketches: Vec<Sketch>,
    /// What was run.
    pub runs: Vec<DigestedRun>,
    /// The names of runs that were to be made and are not there.
    pub missing: Vec<String>,
}

impl Row {
    /// Each claim, judged. Where seeds are missing, a single one decides nothing.
    pub fn judged(&self) -> impl Iterator<Item = (&Claim, Judged)> {
        let causes: Vec<Vec<String>> = self.causes.iter().map(|(runs, _)| runs.clone()).collect();
        self.claims.iter().map(move |claim| {
            let mut judged = claim.judge(&self.runs, &self.today, &causes);
            let lacks = self.missing.iter().any(|name| claim.takes(name));
            let is_known = !matches!(judged.verdict, Verdict::NotRun | Verdict::NotMeasured);
            if lacks && judged.is_of_single_runs() && is_known {
                judged.verdict = Verdict::Undecided;
                judged.cause = None;
            }
            (claim, judged)
        })
    }

    /// What casts doubt on runs, and on which.
    pub fn doubts(&self) -> impl Iterator<Item = (&str, String)> {
        let mut doubtful: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for run in &self.runs {
            for doubt in &run.digest.doubts {
                doubtful.entry(doubt).or_default().push(&run.name);
            }
        }
        if !self.missing.is_empty() {
            let missing = self.missing.iter().map(String::as_str).collect();
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
    fn doubts_table(&self) -> Option<Table> {
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
    fn choices(&self) -> impl Iterator<Item = Choice> {
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
    fn heading(&self) -> String {
        format!("{}: {}", self.name, self.title)
    }

    /// What a verdict means here, in a sentence.
    fn why(&self, judged: &Judged) -> String {
        match (judged.verdict, judged.cause) {
            (Verdict::Near, _) => String::new(),
            (Verdict::Changed, Some(place)) => {
                format!("holds if {}", self.causes[place].1)
            }
            (Verdict::Changed | Verdict::Miss, _) => "no cause is shown".to_owned(),
            (Verdict::Undecided, Some(place)) => {
                format!(
                    "more seeds would tell whether it holds if {}",
                    self.causes[place].1
                )
            }
            (Verdict::Undecided, None) => "more seeds would tell".to_owned(),
            (Verdict::NotRun, _) if judged.today.is_empty() => "its runs were not made".to_owned(),
            (Verdict::NotRun, _) => {
                "does not hold today; not all runs of causes were made".to_owned()
            }
            (Verdict::NotMeasured, _) => {
                "its runs have no such measure or group, or nothing that it could be of".to_owned()
            }
        }
    }
}

/// The first table: every published number, ours, and the verdict.
#[must_use]
pub fn summary_table(rows: &[Row]) -> Table {
    let columns = [
        Column::left("published").wrapped(48),
        Column::right("then"),
        Column::right("today").wrapped(18),
        Column::right("as it was").wrapped(18),
        Column::left("verdict").verdicts(),
        Column::left("because").wrapped(40),
        Column::left("source").wrapped(30),
    ];
    let mut table = Table::new("Published numbers beside ours", columns).leading_on();
    for row in rows {
        table.section(row.heading());
        for (claim, judged) in row.judged() {
            let as_it_was = judged.cause.unwrap_or(0);
            table.row([
                claim.what.clone(),
                published(claim),
                estimates(&judged.today, claim),
                estimates(
                    judged.causes.get(as_it_was).map_or(&[], Vec::as_slice),
                    claim,
                ),
                word(judged.verdict).to_owned(),
                row.why(&judged),
                claim.source.clone(),
            ]);
        }
    }
    table
}

/// The report.
#[must_use]
pub fn page(rows: &[Row], method: Vec<Fact>) -> Page {
    let lead = how_many_hold(rows);
    let mut parts: Vec<Part> = vec![summary_table(rows).into()];
    for row in rows {
        let about = format!("{}: {} {}", row.source, row.finding, how_many_hold([row]));
        parts.push(Part::Heading(row.heading(), about));
        parts.extend(row.doubts_table().map(Part::from));
        parts.extend(row.tables().map(|it| Part::from(it.table)));
        parts.extend(row.choices().map(Part::from));
    }
    Page {
        title: "Published experiments on thin streams, reproduced".to_owned(),
        lead,
        parts,
        method,
        data: data(rows),
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

/// How many numbers hold: in a sentence those that were published, in one of its own those that go
/// beyond the papers.
fn how_many_hold<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let (beyond, published): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.beyond);
    let kinds = [
        (published, "published number", ""),
        (beyond, "expectation", " beyond the papers"),
    ];
    let kinds = kinds.into_iter().filter(|(rows, ..)| !rows.is_empty());
    let sentences = kinds.map(|(rows, one, which)| {
        let judged = rows.iter().flat_map(|row| row.judged());
        let verdicts: Vec<Verdict> = judged.map(|(_, it)| it.verdict).collect();
        let of = number::counted(verdicts.len() as u64, one);
        format!("Of {of}{which}, {}.", how_many(&verdicts))
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// How many of these verdicts there are of each kind, in a part of a sentence.
fn how_many(verdicts: &[Verdict]) -> String {
    let count = |verdict: Verdict| verdicts.iter().filter(|it| **it == verdict).count();
    let (near, changed) = (count(Verdict::Near), count(Verdict::Changed));
    let (miss, not_run) = (count(Verdict::Miss), count(Verdict::NotRun));
    let hold = |many: usize| if many == 1 { "holds" } else { "hold" };
    let mut said = format!("{near} {} on the kernel of today", hold(near));
    if changed > 0 {
        said += &format!(
            ", {changed} {} where one thing is otherwise, as it was or may have been then",
            hold(changed)
        );
    }
    if miss > 0 {
        said += &format!(", {miss} {} not", if miss == 1 { "does" } else { "do" });
    }
    let undecided = count(Verdict::Undecided);
    if undecided > 0 {
        said += &format!(
            ", {undecided} {} within the intervals",
            if undecided == 1 { "lies" } else { "lie" }
        );
    }
    let not_measured = count(Verdict::NotMeasured);
    if not_measured > 0 {
        said += &format!(", {not_measured} could not be measured");
    }
    if not_run > 0 {
        said += &format!("; not all runs of {not_run} were made");
    }
    said
}

fn data(rows: &[Row]) -> serde_json::Value {
    let rows = rows.iter().map(|row| {
        let claims = row.judged().map(|(claim, judged)| {
            json!({
                "what": claim.what,
                "source": claim.source,
                "measure": claim.measure,
                "published": published(claim),
                "judged": judged,
            })
        });
        json!({
            "row": row.name,
            "source": row.source,
            "finding": row.finding,
            "claims": claims.collect::<Vec<_>>(),
            "doubts": row.doubts().collect::<BTreeMap<_, _>>(),
        })
    });
    rows.collect()
}

/// A verdict in a word.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Near => "near",
        Verdict::Changed => "changed",
        Verdict::Miss => "miss",
        Verdict::Undecided => "undecided",
        Verdict::NotRun => "not run",
        Verdict::NotMeasured => "not measured",
    }
}

fn published(claim: &Claim) -> String {
    match &claim.statement {
        Statement::Value(value, within) => {
            give_or_take(&shown(*value, claim), &shown(*within, claim))
        }
        Statement::AtMost(most) => format!("at most {}", shown(*most, claim)),
        Statement::AtLeast(least) => format!("at least {}", shown(*least, claim)),
        Statement::Ascending(_) => "growing".to_owned(),
    }
}

fn estimates(of: &[Estimate], claim: &Claim) -> String {
    let each = of.iter().map(|estimate| match estimate.half {
        Some(half) => give_or_take(&shown(estimate.mean, claim), &shown(half, claim)),
        None => shown(estimate.mean, claim),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// A number and its unit, if it has one.
fn unit_of(text: &str) -> Option<(&str, &str)> {
    let parts = text.rsplit_once('\u{a0}');
    parts.filter(|(_, unit)| !unit.starts_with(|c: char| c.is_ascii_digit()))
}

/// A value and what it may be off by, with their unit once if it is the same.
fn give_or_take(value: &str, half: &str) -> String {
    match (unit_of(value), unit_of(half)) {
        (Some((number, one)), Some((_, other))) if one == other => {
            format!("{number}\u{a0}±\u{a0}{half}")
        }
        _ => format!("{value}\u{a0}±\u{a0}{half}"),
    }
}

fn shown(value: f64, claim: &Claim) -> String {
    if claim.over.is_some() {
        return number::ratio(value);
    }
    match unit(&claim.measure) {
        Unit::Milliseconds => format!("{}\u{a0}ms", number::millis(value)),
        Unit::Bytes => number::bytes(value),
        Unit::Number => number::amount(value),
        Unit::BitPerSecond => number::rate(value),
        Unit::Share => number::percent(value),
    }
}
