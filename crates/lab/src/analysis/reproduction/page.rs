use std::collections::BTreeMap;

use pillion_stats::measure::Unit;
use pillion_stats::report::{Card, Column, Fact, Page, Part, Table, number};
use serde_json::json;

use super::{Estimate, ExperimentResult, JudgedClaim, Verdict};
use crate::settings::experiment::{Claim, ClaimKind, Reproduction, Statement};

/// Returns all claims with the measured values and verdicts, for a terminal. Each experiment has a
/// section per kind of claim.
#[must_use]
pub fn summary_table(results: &[ExperimentResult]) -> Table {
    let columns = [
        Column::left("claim").wrapped(48),
        Column::right("expected"),
        Column::right("current kernel").wrapped(18),
        Column::right("with a cause").wrapped(18),
        Column::left("verdict").verdicts(),
    ];
    let mut table = Table::new("", columns);
    for it in &judge(results) {
        let heading = it.result.heading();
        for (kind, claims) in it.by_kind() {
            table.section(match kind {
                ClaimKind::Published => heading.clone(),
                _ => format!("{heading}, {}", plural_of(kind)),
            });
            for (claim, judged) in claims {
                table.row(claim_cells(claim, judged));
            }
        }
    }
    table
}

/// Returns the report as a page. `method` has facts about how the runs were made.
///
/// The first part answers, in this order, how many published statements hold on the current kernel,
/// which do not and why, and which results are pillion's own.
#[must_use]
pub fn page(results: &[ExperimentResult], method: Vec<Fact>) -> Page {
    let all = judge(results);
    let verdicts = |kind| -> Vec<Verdict> { all.iter().flat_map(|it| it.verdicts(kind)).collect() };
    let has_published = |it: &&JudgedResult| !it.verdicts(ClaimKind::Published).is_empty();
    let (papers, own): (Vec<_>, Vec<_>) = all.iter().partition(has_published);
    let mut parts = Vec::new();
    if !papers.is_empty() {
        let cards = papers.iter().map(|it| card(it)).collect();
        parts.push(Part::Cards("The published experiments".to_owned(), cards));
        parts.push(differences_table(&all).into());
    }
    if !own.is_empty() {
        let cards = own.iter().map(|it| card(it)).collect();
        let title = "Self-checks and own expectations: no evidence for the papers";
        parts.push(Part::Cards(title.to_owned(), cards));
    }
    for it in papers.iter().chain(&own) {
        parts.extend(details(it));
    }
    let lead = match verdicts(ClaimKind::Published).as_slice() {
        [] => counts_sentence(ClaimKind::Expectation, &verdicts(ClaimKind::Expectation)),
        published => counts_sentence(ClaimKind::Published, published),
    };
    let others = [
        ClaimKind::Derived,
        ClaimKind::SelfCheck,
        ClaimKind::Expectation,
    ];
    let others = others.into_iter().filter(|_| !papers.is_empty());
    let others = others.map(|kind| (kind, verdicts(kind)));
    let others = others.filter(|(_, verdicts)| !verdicts.is_empty());
    let others =
        others.map(|(kind, verdicts)| Fact::new(kind.as_str(), counts_sentence(kind, &verdicts)));
    Page {
        title: "Published experiments on thin streams, reproduced".to_owned(),
        lead,
        parts,
        method: others.chain(method).collect(),
        data: data(&all),
    }
}

/// Returns the part of the page with everything about an experiment.
fn details(judged_result: &JudgedResult) -> Vec<Part> {
    let result = judged_result.result;
    let Reproduction {
        source, finding, ..
    } = &result.reproduction;
    let about = match source.as_str() {
        "" => finding.clone(),
        source => format!("{source}. {finding}"),
    };
    let mut parts = vec![Part::Heading(result.heading(), about)];
    for (kind, claims) in judged_result.by_kind() {
        let mut table = claims_table(kind);
        for (claim, judged) in claims {
            let mut cells = claim_cells(claim, judged).to_vec();
            cells.push(result.explanation(judged));
            cells.push(words(claim));
            table.row(cells);
        }
        parts.push(table.into());
    }
    parts.extend(result.warnings_table().map(Part::from));
    parts.extend(result.causes_table(&judged_result.claims).map(Part::from));
    parts.extend(result.tables().map(|it| Part::from(it.table)));
    parts.extend(result.choices().map(Part::from));
    parts
}

fn claims_table(kind: ClaimKind) -> Table {
    let (caption, expected, note) = match kind {
        ClaimKind::Published => ("Published statements", "published", ""),
        ClaimKind::Derived => (
            "Derived numbers",
            "derived",
            "Computed from published numbers; the arithmetic is in the last column.",
        ),
        ClaimKind::SelfCheck => (
            "Self-checks",
            "expected",
            "They test the traffic generator, a formula or a configured value, or they hold in the other \
             case as well. They are no evidence for the paper.",
        ),
        ClaimKind::Expectation => (
            "Own expectations",
            "expected",
            "No paper has these statements.",
        ),
    };
    let columns = [
        Column::left("claim").wrapped(48),
        Column::right(expected),
        Column::right("current kernel").wrapped(18),
        Column::right("with a cause").wrapped(18),
        Column::left("verdict").verdicts(),
        Column::left("explanation").wrapped(40),
        Column::left("source").wrapped(40),
    ];
    Table::new(caption, columns).with_note(note)
}

/// Returns the published statements that do not hold on the current kernel, and why.
fn differences_table(all: &[JudgedResult]) -> Table {
    let columns = [
        Column::left("statement").wrapped(48),
        Column::right("published"),
        Column::right("current kernel").wrapped(18),
        Column::right("with a cause").wrapped(18),
        Column::left("verdict").verdicts(),
        Column::left("why").wrapped(40),
    ];
    let mut table = Table::new(
        "Published statements that do not hold on the current kernel",
        columns,
    )
    .with_section_links();
    for JudgedResult { result, claims } in all {
        let is_different = |judged: &JudgedClaim| {
            judged.kind == ClaimKind::Published && judged.verdict != Verdict::Near
        };
        let mut different = claims.iter().filter(|(_, it)| is_different(it)).peekable();
        if different.peek().is_some() {
            table.section(result.heading());
        }
        for (claim, judged) in different {
            let mut cells = claim_cells(claim, judged).to_vec();
            cells.push(result.explanation(judged));
            table.row(cells);
        }
    }
    table
}

/// Returns the entry of an experiment in the overview, with its first figure. It counts published
/// statements, or without any the other claims.
fn card(judged_result: &JudgedResult) -> Card {
    let result = judged_result.result;
    let mut kinds = ClaimKind::ALL.into_iter();
    let kind = kinds.find(|kind| !judged_result.verdicts(*kind).is_empty());
    let kind = kind.unwrap_or_default();
    let counted = judged_result.verdicts(kind);
    let count = |verdict| counted.iter().filter(|it| **it == verdict).count();
    Card {
        title: result.heading(),
        text: result.reproduction.finding.clone(),
        figure: result.figures().next(),
        counted: plural_of(kind),
        verdicts: Verdict::ALL
            .map(|verdict| (verdict.word(), count(verdict)))
            .to_vec(),
    }
}

/// An experiment and its judged claims.
struct JudgedResult<'a> {
    result: &'a ExperimentResult,
    claims: Vec<(&'a Claim, JudgedClaim)>,
}

fn judge(results: &[ExperimentResult]) -> Vec<JudgedResult<'_>> {
    let judged = results.iter().map(|result| JudgedResult {
        result,
        claims: result.judged(),
    });
    judged.collect()
}

impl JudgedResult<'_> {
    fn of_kind(&self, kind: ClaimKind) -> Vec<&(&Claim, JudgedClaim)> {
        let claims = self.claims.iter();
        claims.filter(|(_, judged)| judged.kind == kind).collect()
    }

    fn verdicts(&self, kind: ClaimKind) -> Vec<Verdict> {
        let claims = self.of_kind(kind).into_iter();
        claims.map(|(_, judged)| judged.verdict).collect()
    }

    /// Returns the claims by kind, without empty kinds.
    fn by_kind(&self) -> impl Iterator<Item = (ClaimKind, Vec<&(&Claim, JudgedClaim)>)> {
        let kinds = ClaimKind::ALL.into_iter();
        let kinds = kinds.map(|kind| (kind, self.of_kind(kind)));
        kinds.filter(|(_, claims)| !claims.is_empty())
    }
}

/// Returns the first five cells of a claim's row.
fn claim_cells(claim: &Claim, judged: &JudgedClaim) -> [String; 5] {
    let cause = judged.causes.get(claim.shown_cause(judged));
    [
        claim.description.clone(),
        expected(claim),
        estimates(&judged.baseline, claim),
        estimates(cause.map_or(&[], Vec::as_slice), claim),
        judged.verdict.word().to_owned(),
    ]
}

/// Returns the source of a claim with its words, and the reason for its bound.
fn words(claim: &Claim) -> String {
    let quote = match claim.quote.as_str() {
        "" => String::new(),
        quote => format!(": \u{201c}{quote}\u{201d}"),
    };
    let reason = claim.reason.as_ref().map(|it| format!(" ({it})"));
    format!("{}{quote}{}", claim.source, reason.unwrap_or_default())
}

/// Counts the verdicts of claims of one kind, in a sentence.
fn counts_sentence(kind: ClaimKind, verdicts: &[Verdict]) -> String {
    let count = |verdict: Verdict| verdicts.iter().filter(|it| **it == verdict).count();
    let total = number::counted(verdicts.len() as u64, singular_of(kind));
    let near = count(Verdict::Near);
    let rest = [
        (
            Verdict::Changed,
            "only with a documented difference of the published set-up",
        ),
        (Verdict::Hypothesis, "only under a hypothesis"),
        (Verdict::Miss, "not at all"),
    ];
    let mut text = format!("{total}: {near} hold on the current kernel");
    if near == 1 {
        text = format!("{total}: 1 holds on the current kernel");
    }
    for (verdict, words) in rest {
        match count(verdict) {
            0 => (),
            count => text += &format!(", {count} {words}"),
        }
    }
    let rest = [
        (Verdict::Undecided, "undecided"),
        (Verdict::NotMeasured, "not measured"),
        (Verdict::NotRun, "not run"),
    ];
    for (verdict, words) in rest {
        match count(verdict) {
            0 => (),
            count => text += &format!("; {count} {words}"),
        }
    }
    text + "."
}

fn singular_of(kind: ClaimKind) -> &'static str {
    match kind {
        ClaimKind::Published => "published statement",
        ClaimKind::Derived => "derived number",
        ClaimKind::SelfCheck => "self-check",
        ClaimKind::Expectation => "own expectation",
    }
}

fn plural_of(kind: ClaimKind) -> String {
    format!("{}s", singular_of(kind))
}

fn data(all: &[JudgedResult]) -> serde_json::Value {
    let results = all.iter().map(|JudgedResult { result, claims }| {
        let claims = claims.iter().map(|(claim, judged)| {
            json!({
                "description": claim.description,
                "source": claim.source,
                "quote": claim.quote,
                "measure": claim.measure.as_str(),
                "expected": expected(claim),
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

fn expected(claim: &Claim) -> String {
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
