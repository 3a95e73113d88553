//! What is written of outcomes: lines for people, and the table in `docs/kernels.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use pillion_stats::report::{Column, Table, number};

use crate::BadInput;
use crate::catalogue::Catalogue;
use crate::gate::Accepted;
use crate::outcome::Outcome;
use crate::report::Finding;

/// Lines around the table of kernels in the document.
const MARKS: [&str; 2] = ["<!-- made by make kernels-table -->\n", "<!-- end -->\n"];

/// Lines around the table of environments.
const ENVIRONMENT_MARKS: [&str; 2] = [
    "<!-- environments, made by make kernels-table -->\n",
    "<!-- end of environments -->\n",
];

/// What `pillion check` says of a host rather than of a kernel.
const OF_THE_HOST: [&str; 3] = ["kernel", "privilege", "devices"];

/// Writes the tables into the document, from the last outcome of every kernel. A table stays as it is if
/// none of its runs is stored.
pub fn write() -> Result<()> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/kernels.md");
    let mut text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let mut tables = 0;
    for (marks, environments) in [(MARKS, false), (ENVIRONMENT_MARKS, true)] {
        if let Some(outcomes) = stored(environments)? {
            let table = document(&outcomes);
            text = put(&text, marks, &table).with_context(|| format!("{}", path.display()))?;
            tables += 1;
        }
    }
    if tables == 0 {
        return Err(BadInput("no kernel was run: make kernels".to_owned()).into());
    }
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// Returns the last outcome of every kernel, or `None` if no kernel was run. The table of environments has
/// only those kernels whose environments were run.
fn stored(environments: bool) -> Result<Option<Vec<Outcome>>> {
    let accepted = Accepted::read()?;
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
            let line = format!("{name} was not run: make kernels KERNELS={name}");
            Err(BadInput(line).into())
        }
    }
}

/// Replaces what is between the marks.
fn put(text: &str, [begin, end]: [&str; 2], made: &str) -> Result<String> {
    let parts = text.split_once(begin);
    let parts = parts.and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let Some((before, after)) = parts else {
        bail!(
            "the lines {} and {} are not there",
            begin.trim(),
            end.trim()
        );
    };
    Ok(format!("{before}{begin}\n{made}\n{end}{after}"))
}

fn document(outcomes: &[Outcome]) -> String {
    let mut text = table(outcomes).to_markdown();
    let notes = outcomes.iter().flat_map(|outcome| {
        let name = &outcome.name;
        let left_out = outcome.left_out.iter();
        let left_out =
            left_out.map(move |it| format!("* {name}: left out: {}: {}\n", it.tests, it.reason));
        let again = outcome
            .again
            .iter()
            .map(move |it| format!("* {name}: failed at first, and passed alone: {it}\n"));
        let failures = outcome
            .failures
            .iter()
            .map(move |it| format!("* {name}: **failed**: {it}\n"));
        left_out.chain(again).chain(failures)
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
        it.findings.iter().map(|it| it.name.as_str()).collect()
    }) {
        if !OF_THE_HOST.contains(&name) && !environments {
            row(name, &|it| {
                it.findings
                    .iter()
                    .find(|it| it.name == name)
                    .map_or_else(String::new, found)
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
        row("tests of the wire", &Outcome::wire_passed);
    }
    row("all in all", &|it| match it.failures.is_empty() {
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

/// Names in the order in which outcomes have them, each once.
fn in_order<'a>(outcomes: &'a [Outcome], of: fn(&'a Outcome) -> Vec<&'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let names = outcomes.iter().flat_map(of);
    names.filter(|name| seen.insert(*name)).collect()
}

fn found(finding: &Finding) -> String {
    match finding.standing.as_str() {
        "ok" => finding.found.clone(),
        other => format!("{other}: {}", finding.found),
    }
}

fn stream(outcome: &Outcome, name: &str) -> String {
    let stream = outcome.streams.iter().find(|it| it.name == name);
    stream.map_or_else(String::new, |it| {
        let (messages, repaired) = (number::count(it.messages), number::count(it.hidden_losses));
        format!("{messages} messages, {repaired} losses repaired")
    })
}

/// Prints what was found, and what is wrong.
pub fn print_outcome(outcome: &Outcome, accepted: &Accepted) {
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
        println!("{name}: tests of the wire: {passed}");
    }
    for test in &outcome.again {
        println!("{name}: failed at first, and passed alone: {test}");
    }
    for left_out in &outcome.left_out {
        println!(
            "{}: left out: {}: {}",
            outcome.name, left_out.tests, left_out.reason
        );
    }
    for failure in &outcome.failures {
        println!("{}: FAILED: {failure}", outcome.name);
    }
}

fn costs(outcome: &Outcome, accepted: &Accepted) -> Table {
    let columns = [
        Column::left("program"),
        Column::right("verified instructions"),
        Column::right("accepted"),
    ];
    let mut table = Table::new("", columns);
    for (program, cost) in &outcome.costs {
        let before = accepted.of(&outcome.name, program);
        let before = before.map_or_else(String::new, |cost| number::count(cost.into()));
        table.row([program.clone(), number::count((*cost).into()), before]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_keeps_all_but_what_is_between_the_marks() {
        let [begin, end] = MARKS;
        let text = format!("before\n{begin}old\n{end}after\n");
        let once = put(&text, MARKS, "| new |\n").unwrap();
        assert_eq!(once, format!("before\n{begin}\n| new |\n\n{end}after\n"));
        assert_eq!(put(&once, MARKS, "| new |\n").unwrap(), once);
        assert!(put("no marks", MARKS, "").is_err());
    }
}
