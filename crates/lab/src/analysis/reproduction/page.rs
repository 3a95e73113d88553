use std::collections::BTreeMap;

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Fact, Page, Part, Table, number};
use serde_json::json;

use super::{Estimate, Row, Verdict};
use crate::settings::experiment::{Claim, Statement};

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
            let as_it_was = claim.shown_cause(&judged);
            table.row([
                claim.what.clone(),
                published(claim),
                estimates(&judged.today, claim),
                estimates(
                    judged.causes.get(as_it_was).map_or(&[], Vec::as_slice),
                    claim,
                ),
                judged.verdict.word().to_owned(),
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
        let about = format!(
            "{}: {} {}",
            row.published.source,
            row.published.finding,
            how_many_hold([row])
        );
        parts.push(Part::Heading(row.heading(), about));
        parts.extend(row.doubts_table().map(Part::from));
        parts.extend(row.causes_table().map(Part::from));
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

/// How many numbers hold: in a sentence those that were published, in one of its own those that go
/// beyond the papers.
fn how_many_hold<'a>(rows: impl IntoIterator<Item = &'a Row>) -> String {
    let (beyond, published): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| row.published.beyond);
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
        let claims = row.judged().into_iter().map(|(claim, judged)| {
            json!({
                "what": claim.what,
                "source": claim.source,
                "measure": claim.measure.as_str(),
                "published": published(claim),
                "judged": judged,
            })
        });
        json!({
            "row": row.name,
            "source": row.published.source,
            "finding": row.published.finding,
            "claims": claims.collect::<Vec<_>>(),
            "doubts": row.doubts().collect::<BTreeMap<_, _>>(),
        })
    });
    rows.collect()
}

fn published(claim: &Claim) -> String {
    match claim.statement() {
        Statement::Value(value, within) => {
            give_or_take(&shown(value, claim), &shown(within, claim))
        }
        Statement::AtMost(most) => format!("at most {}", shown(most, claim)),
        Statement::AtLeast(least) => format!("at least {}", shown(least, claim)),
        Statement::Ascending => "growing".to_owned(),
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
