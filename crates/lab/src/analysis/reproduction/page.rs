use std::collections::BTreeMap;

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Fact, Page, Part, Table, number};
use serde_json::json;

use super::{Estimate, ExperimentResult, Verdict};
use crate::settings::experiment::{Claim, Statement};

/// Returns the first table: every published number, the measured ones, and the verdict.
#[must_use]
pub fn summary_table(results: &[ExperimentResult]) -> Table {
    let columns = [
        Column::left("claim").wrapped(48),
        Column::right("published"),
        Column::right("current kernel").wrapped(18),
        Column::right("with a cause").wrapped(18),
        Column::left("verdict").verdicts(),
        Column::left("explanation").wrapped(40),
        Column::left("source").wrapped(30),
    ];
    let mut table = Table::new("Published and measured numbers", columns).with_section_links();
    for result in results {
        table.section(result.heading());
        for (claim, judged) in result.judged() {
            let shown_cause = claim.shown_cause(&judged);
            table.row([
                claim.description.clone(),
                published(claim),
                estimates(&judged.baseline, claim),
                estimates(
                    judged.causes.get(shown_cause).map_or(&[], Vec::as_slice),
                    claim,
                ),
                judged.verdict.word().to_owned(),
                result.explanation(&judged),
                claim.source.clone(),
            ]);
        }
    }
    table
}

/// Returns the report as a page. `method` has facts about how the runs were made.
#[must_use]
pub fn page(results: &[ExperimentResult], method: Vec<Fact>) -> Page {
    let lead = hold_summary(results);
    let mut parts: Vec<Part> = vec![summary_table(results).into()];
    for result in results {
        let about = format!(
            "{}: {} {}",
            result.reproduction.source,
            result.reproduction.finding,
            hold_summary([result])
        );
        parts.push(Part::Heading(result.heading(), about));
        parts.extend(result.warnings_table().map(Part::from));
        parts.extend(result.causes_table().map(Part::from));
        parts.extend(result.tables().map(|it| Part::from(it.table)));
        parts.extend(result.choices().map(Part::from));
    }
    Page {
        title: "Reproduction of published experiments on thin streams".to_owned(),
        lead,
        parts,
        method,
        data: data(results),
    }
}

/// Counts the verdicts in one sentence for published numbers, and in another for exploratory
/// expectations.
fn hold_summary<'a>(results: impl IntoIterator<Item = &'a ExperimentResult>) -> String {
    let (exploratory, published): (Vec<_>, Vec<_>) = results
        .into_iter()
        .partition(|result| result.reproduction.exploratory);
    let kinds = [
        (published, "published number"),
        (exploratory, "exploratory expectation"),
    ];
    let kinds = kinds.into_iter().filter(|(results, _)| !results.is_empty());
    let sentences = kinds.map(|(results, one)| {
        let judged = results.iter().flat_map(|result| result.judged());
        let verdicts: Vec<Verdict> = judged.map(|(_, it)| it.verdict).collect();
        let total = number::counted(verdicts.len() as u64, one);
        format!("{total}: {}.", verdict_counts(&verdicts))
    });
    sentences.collect::<Vec<_>>().join(" ")
}

/// Counts the verdicts of each kind, as part of a sentence.
fn verdict_counts(verdicts: &[Verdict]) -> String {
    let count = |verdict: Verdict| verdicts.iter().filter(|it| **it == verdict).count();
    let (near, changed) = (count(Verdict::Near), count(Verdict::Changed));
    let (miss, not_run) = (count(Verdict::Miss), count(Verdict::NotRun));
    let hold = |count: usize| if count == 1 { "holds" } else { "hold" };
    let mut text = format!("{near} {} on the current kernel", hold(near));
    if changed > 0 {
        text += &format!(", {changed} {} only with a cause", hold(changed));
    }
    if miss > 0 {
        text += &format!(
            ", {miss} {} not hold",
            if miss == 1 { "does" } else { "do" }
        );
    }
    let undecided = count(Verdict::Undecided);
    if undecided > 0 {
        text += &format!(
            ", {undecided} {} undecided",
            if undecided == 1 { "is" } else { "are" }
        );
    }
    let not_measured = count(Verdict::NotMeasured);
    if not_measured > 0 {
        text += &format!(", {not_measured} could not be measured");
    }
    if not_run > 0 {
        text += &format!("; {not_run} lack runs");
    }
    text
}

fn data(results: &[ExperimentResult]) -> serde_json::Value {
    let results = results.iter().map(|result| {
        let claims = result.judged().into_iter().map(|(claim, judged)| {
            json!({
                "description": claim.description,
                "source": claim.source,
                "measure": claim.measure.as_str(),
                "published": published(claim),
                "judged": judged,
            })
        });
        json!({
            "experiment": result.name,
            "source": result.reproduction.source,
            "finding": result.reproduction.finding,
            "claims": claims.collect::<Vec<_>>(),
            "warnings": result.warnings().collect::<BTreeMap<_, _>>(),
        })
    });
    results.collect()
}

fn published(claim: &Claim) -> String {
    match claim.statement() {
        Statement::Value(value, within) => {
            with_tolerance(&format_value(value, claim), &format_value(within, claim))
        }
        Statement::AtMost(bound) => format!("at most {}", format_value(bound, claim)),
        Statement::AtLeast(bound) => format!("at least {}", format_value(bound, claim)),
        Statement::Ascending => "ascending".to_owned(),
    }
}

fn estimates(of: &[Estimate], claim: &Claim) -> String {
    let each = of.iter().map(|estimate| match estimate.half {
        Some(half) => with_tolerance(
            &format_value(estimate.mean, claim),
            &format_value(half, claim),
        ),
        None => format_value(estimate.mean, claim),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Splits a number from its unit, if it has one.
fn split_unit(text: &str) -> Option<(&str, &str)> {
    let parts = text.rsplit_once('\u{a0}');
    parts.filter(|(_, unit)| !unit.starts_with(|c: char| c.is_ascii_digit()))
}

/// Formats a value and its tolerance, with a common unit only once.
fn with_tolerance(value: &str, half: &str) -> String {
    match (split_unit(value), split_unit(half)) {
        (Some((number, one)), Some((_, other))) if one == other => {
            format!("{number}\u{a0}±\u{a0}{half}")
        }
        _ => format!("{value}\u{a0}±\u{a0}{half}"),
    }
}

fn format_value(value: f64, claim: &Claim) -> String {
    if claim.base().is_some() {
        return number::ratio(value);
    }
    match claim.measure.unit() {
        Unit::Milliseconds => format!("{}\u{a0}ms", number::millis(value)),
        Unit::Bytes => number::bytes(value),
        Unit::Number => number::amount(value),
        Unit::BitPerSecond => number::rate(value),
        Unit::Share => number::percent(value),
    }
}
