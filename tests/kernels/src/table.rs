//! Output of results: lines for people, and the table in `docs/reference/kernels.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use pillion_stats::report::{Column, Table, number};

use crate::BadInput;
use crate::catalogue::Catalogue;
use crate::gate::AcceptedCosts;
use crate::outcome::Outcome;
use crate::report::CheckResult;

/// Lines around the table of kernels in the document.
const MARKS: [&str; 2] = ["<!-- made by make kernels-table -->\n", "<!-- end -->\n"];

/// Lines around the table of environments.
const ENVIRONMENT_MARKS: [&str; 2] = [
    "<!-- environments, made by make kernels-table -->\n",
    "<!-- end of environments -->\n",
];

/// Checks of `pillion check` that concern the host rather than the kernel.
const HOST_CHECKS: [&str; 3] = ["kernel", "privilege", "devices"];

/// Writes the tables into the document, from the last result of every kernel. A table without
/// stored results stays unchanged.
pub fn write() -> Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/kernels.md");
    let mut text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let mut tables = 0;
    for (marks, environments) in [(MARKS, false), (ENVIRONMENT_MARKS, true)] {
        if let Some(outcomes) = stored(environments)? {
            let table = render(&outcomes);
            text = replace_between(&text, marks, &table)
                .with_context(|| format!("{}", path.display()))?;
            tables += 1;
        }
    }
    if tables == 0 {
        return Err(BadInput("no stored results; run make kernels".to_owned()).into());
    }
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Returns the last result of every kernel, or `None` if no kernel was run. The table of
/// environments contains only kernels whose environments were run.
fn stored(environments: bool) -> Result<Option<Vec<Outcome>>> {
    let accepted = AcceptedCosts::read()?;
    let (mut outcomes, mut missing) = (Vec::new(), Vec::new());
    for kernel in Catalogue::load()?.kernels {
        match Outcome::stored(&kernel.name, environments)? {
            Some(mut outcome) => {
                outcome.judge(&accepted);
                outcomes.push(outcome);
            }
            None => missing.push(kernel.name),
        }
    }
    match missing.first() {
        _ if outcomes.is_empty() => Ok(None),
        Some(_) if environments => Ok(Some(outcomes)),
        None => Ok(Some(outcomes)),
        Some(name) => {
            let line = format!("{name} has no stored result; run make kernels KERNELS={name}");
            Err(BadInput(line).into())
        }
    }
}

/// Replaces the text between the marks.
fn replace_between(text: &str, [start_mark, end_mark]: [&str; 2], content: &str) -> Result<String> {
    let parts = text.split_once(start_mark);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(end_mark)?.1)));
    let Some((before, after)) = parts else {
        bail!(
            "the lines {} and {} are missing",
            start_mark.trim(),
            end_mark.trim()
        );
    };
    Ok(format!(
        "{before}{start_mark}\n{content}\n{end_mark}{after}"
    ))
}

fn render(outcomes: &[Outcome]) -> String {
    let mut text = table(outcomes).to_markdown();
    let notes = outcomes.iter().flat_map(|outcome| {
        let name = &outcome.name;
        let skipped = outcome.skipped.iter();
        let skipped =
            skipped.map(move |it| format!("* {name}: skipped: {}: {}\n", it.tests, it.reason));
        let passed_on_rerun = outcome.passed_on_rerun.iter().map(move |it| {
            format!("* {name}: failed in parallel, passed in a serial rerun: {it}\n")
        });
        let failures = outcome
            .failures
            .iter()
            .map(move |it| format!("* {name}: **failed**: {it}\n"));
        skipped.chain(passed_on_rerun).chain(failures)
    });
    let notes: String = notes.collect();
    if !notes.is_empty() {
        text += &format!("\n{notes}");
    }
    text
}

fn table(outcomes: &[Outcome]) -> Table {
    let environments = outcomes.iter().any(|it| it.environments);
    let names = outcomes.iter().map(|it| Column::left(it.name.as_str()));
    let mut table = Table::new("", [Column::left("")].into_iter().chain(names));
    let mut row = |name: &str, cell: &dyn Fn(&Outcome) -> String| {
        let cells = outcomes.iter().map(cell);
        table.row([name.to_owned()].into_iter().chain(cells));
    };
    row("distribution", &|it| it.distribution.clone());
    row("kernel", &|it| it.release.clone());
    row("package", &|it| it.version.clone());
    row("processor", &|it| it.processor.clone());
    for name in in_order(outcomes, |it| {
        it.check_results.iter().map(|it| it.name.as_str()).collect()
    }) {
        if !HOST_CHECKS.contains(&name) && !environments {
            row(name, &|it| {
                it.check_results
                    .iter()
                    .find(|it| it.name == name)
                    .map_or_else(String::new, check_cell)
            });
        }
    }
    for name in in_order(outcomes, |it| {
        it.streams.iter().map(|it| it.name.as_str()).collect()
    }) {
        let kind = if environments { "" } else { "stream, " };
        row(&format!("{kind}{name}"), &|it| stream(it, name));
    }
    if !environments {
        row("wire tests", &Outcome::wire_passed);
    }
    row("result", &|it| match it.failures.is_empty() {
        true => "passed".to_owned(),
        false => "**failed**".to_owned(),
    });
    let programs = outcomes.iter().flat_map(|it| it.costs.keys());
    let programs: BTreeSet<_> = programs.collect();
    for program in programs {
        row(&format!("`{program}`, verified instructions"), &|it| {
            it.costs
                .get(program)
                .map_or_else(String::new, |cost| number::count((*cost).into()))
        });
    }
    table
}

/// Returns names in order of first occurrence, without duplicates.
fn in_order<'a>(
    outcomes: &'a [Outcome],
    names_of: fn(&'a Outcome) -> Vec<&'a str>,
) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let names = outcomes.iter().flat_map(names_of);
    names.filter(|name| seen.insert(*name)).collect()
}

fn check_cell(result: &CheckResult) -> String {
    match result.severity.as_str() {
        "ok" => result.value.clone(),
        other => format!("{other}: {}", result.value),
    }
}

fn stream(outcome: &Outcome, name: &str) -> String {
    let stream = outcome.streams.iter().find(|it| it.name == name);
    stream.map_or_else(String::new, |it| {
        let (messages, repaired) = (number::count(it.messages), number::count(it.hidden_losses));
        format!("{messages} messages, {repaired} losses repaired")
    })
}

/// Prints results and failures.
pub fn print_outcome(outcome: &Outcome, accepted: &AcceptedCosts) {
    if !outcome.costs.is_empty() {
        print!("{}", costs(outcome, accepted).to_text());
    }
    for stream in &outcome.streams {
        println!(
            "{}: stream, {}: {} messages verified, {} redundant bytes, {} losses repaired, {} \
             reactions",
            outcome.name,
            stream.name,
            stream.messages,
            stream.redundant_bytes,
            stream.hidden_losses,
            stream.reactions
        );
    }
    let (name, passed) = (&outcome.name, outcome.wire_passed());
    if !outcome.environments {
        println!("{name}: wire tests: {passed}");
    }
    for test in &outcome.passed_on_rerun {
        println!("{name}: failed in parallel, passed in a serial rerun: {test}");
    }
    for skipped in &outcome.skipped {
        println!(
            "{}: skipped: {}: {}",
            outcome.name, skipped.tests, skipped.reason
        );
    }
    for failure in &outcome.failures {
        println!("{}: FAILED: {failure}", outcome.name);
    }
}

fn costs(outcome: &Outcome, accepted: &AcceptedCosts) -> Table {
    let columns = [
        Column::left("program"),
        Column::right("verified instructions"),
        Column::right("accepted"),
    ];
    let mut table = Table::new("", columns);
    for (program, cost) in &outcome.costs {
        let before = accepted.accepted_cost(&outcome.name, program);
        let before = before.map_or_else(String::new, |cost| number::count(cost.into()));
        table.row([program.clone(), number::count((*cost).into()), before]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_keeps_text_outside_marks() {
        let [start_mark, end_mark] = MARKS;
        let text = format!("before\n{start_mark}old\n{end_mark}after\n");
        let replaced = replace_between(&text, MARKS, "| new |\n").unwrap();
        assert_eq!(
            replaced,
            format!("before\n{start_mark}\n| new |\n\n{end_mark}after\n")
        );
        assert_eq!(
            replace_between(&replaced, MARKS, "| new |\n").unwrap(),
            replaced
        );
        assert!(replace_between("no marks", MARKS, "").is_err());
    }
}
