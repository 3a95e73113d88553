//! What came of a kernel, kept as a file that tables are made from.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::catalogue::{LeftOut, Wanted};
use crate::gate::Accepted;
use crate::report::{Costs, Finding, Report, Stream};
use crate::stock::Stock;

/// What came of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kernel's name in the catalogue.
    pub name: String,
    pub distribution: String,
    /// What `uname -r` says.
    pub release: String,
    /// The version of its package.
    pub version: String,
    /// What executed the guest's instructions.
    pub processor: String,
    pub findings: Vec<Finding>,
    pub costs: Costs,
    pub streams: Vec<Stream>,
    /// The run was one of environments, and its streams are theirs.
    #[serde(default)]
    pub environments: bool,
    /// Parts of names of the tests of the wire that were asked for; none for all.
    pub tests: Vec<String>,
    /// Tests of the wire, `true` if it passed.
    pub wire: BTreeMap<String, bool>,
    /// Of these, those that failed among others, and passed when they were run again, alone.
    #[serde(default)]
    pub again: Vec<String>,
    pub left_out: Vec<LeftOut>,
    /// Why it is no success; empty where it is one.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Nothing yet.
    pub fn begin(
        wanted: &Wanted,
        stock: &Stock,
        processor: &str,
        tests: &[String],
        environments: bool,
    ) -> Self {
        Self {
            name: wanted.name.clone(),
            distribution: wanted.distribution.clone(),
            release: stock.release.clone(),
            version: stock.version.clone(),
            processor: processor.to_owned(),
            findings: Vec::new(),
            costs: Costs::new(),
            streams: Vec::new(),
            environments,
            tests: tests.to_vec(),
            wire: BTreeMap::new(),
            again: Vec::new(),
            left_out: match environments {
                true => Vec::new(),
                false => wanted.left_out.clone(),
            },
            failures: Vec::new(),
        }
    }

    /// Takes a report; lines of the tests of the wire are collected apart, and those of their second
    /// run.
    pub fn take(&mut self, report: Report, [wire, again]: &mut [Vec<String>; 2]) {
        match report {
            Report::Check(findings) => self.findings = findings,
            Report::Costs(costs) => self.costs = costs,
            Report::Stream(stream) => self.streams.push(stream),
            Report::Wire(line) => wire.push(line),
            Report::WireAgain(line) => again.push(line),
            Report::Failed(part, reason) => self.failures.push(format!("{part}: {reason}")),
            Report::Done(_) | Report::End => {}
        }
    }

    /// Reads what the tests of the wire printed, and those that were run again.
    pub fn read_wire(&mut self, [lines, again]: &[Vec<String>; 2]) {
        self.wire = outcomes(lines);
        for (test, _) in outcomes(again).into_iter().filter(|it| it.1) {
            self.wire.insert(test.clone(), true);
            self.again.push(test);
        }
        let missing = promised(lines).saturating_sub(self.wire.len());
        if missing > 0 {
            let line = format!("{missing} tests of the wire came to no end");
            self.failures.push(line);
        }
        for (test, _) in self.wire.iter().filter(|(_, passed)| !**passed) {
            let said = output_of(lines, test);
            // The first line tells where, the next why, and what was expected and seen.
            let said = said.iter().take(4).copied().collect::<Vec<_>>().join(" ");
            self.failures.push(format!("test {test}: {said}"));
        }
    }

    /// How many tests of the wire passed, for people.
    pub fn wire_passed(&self) -> String {
        let passed = self.wire.values().filter(|passed| **passed).count();
        match self.wire.len() {
            0 => "not run".to_owned(),
            all if self.tests.is_empty() => format!("{passed} of {all} passed"),
            all => format!(
                "{passed} of {all} passed; asked for: {}",
                self.tests.join(", ")
            ),
        }
    }

    /// Takes what costs more than is accepted now for a failure.
    pub fn judge(&mut self, accepted: &Accepted) {
        let objections = accepted.objections(&self.name, &self.costs);
        self.failures.extend(objections);
    }

    /// Returns the name of the run's file with this extension.
    pub fn file(&self, extension: &str) -> String {
        file(&self.name, self.environments, extension)
    }

    /// Keeps it.
    pub fn store(&self) -> Result<()> {
        let path = folder()?.join(self.file("json"));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    /// The last one of a kernel, or of its environments, if it was run here.
    pub fn stored(name: &str, environments: bool) -> Result<Option<Self>> {
        let path = folder()?.join(file(name, environments, "json"));
        let Ok(text) = fs::read(&path) else {
            return Ok(None);
        };
        let outcome = serde_json::from_slice(&text).with_context(|| format!("{}", path.display()));
        outcome.map(Some)
    }
}

fn file(name: &str, environments: bool, extension: &str) -> String {
    let environments = if environments { "-environments" } else { "" };
    format!("{name}{environments}.{extension}")
}

/// Where outcomes and consoles are kept: beside what cargo builds.
pub fn folder() -> Result<PathBuf> {
    let program = env::current_exe().context("find this program")?;
    let target = program.ancestors().nth(2).context("find cargo's folder")?;
    let folder = target.join("kernels");
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    Ok(folder)
}

/// The outcome of each test that has one, `true` if it passed.
pub fn outcomes(lines: &[String]) -> BTreeMap<String, bool> {
    let words = lines.iter().filter_map(|line| line.strip_prefix("test "));
    let words = words.filter_map(|line| line.rsplit_once(" ... "));
    let known = words.filter_map(|(name, outcome)| match outcome {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    });
    known.collect()
}

/// How many tests the runs said that they would run.
pub fn promised(lines: &[String]) -> usize {
    let counts = lines.iter().filter_map(|line| {
        let count = line.strip_prefix("running ")?.split(' ').next()?;
        count.parse::<usize>().ok()
    });
    counts.sum()
}

/// What a failed test printed.
pub fn output_of<'a>(lines: &'a [String], test: &str) -> Vec<&'a str> {
    let begin = format!("---- {test} stdout ----");
    let lines = lines.iter().map(String::as_str);
    let after = lines.skip_while(|line| *line != begin).skip(1);
    let own = after.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    own.filter(|line| !line.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_when_it_is_run_again_has_passed_and_is_named() {
        let kernel = &crate::catalogue::Catalogue::load().unwrap().kernels[0];
        let mut outcome = Outcome::begin(kernel, &Stock::default(), "emulated", &[], false);
        let mut wire = [Vec::new(), Vec::new()];
        for line in [
            "running 4 tests",
            "test a ... FAILED",
            "test b ... ok",
            "test c ... FAILED",
            "test d ... FAILED",
        ] {
            outcome.take(Report::Wire(line.to_owned()), &mut wire);
        }
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test c ... FAILED",
            "test d ... FAILED",
            "running 2 tests",
            "test c ... FAILED",
            "test d ... ok",
        ] {
            outcome.take(Report::WireAgain(line.to_owned()), &mut wire);
        }
        outcome.read_wire(&wire);
        assert_eq!(outcome.wire_passed(), "3 of 4 passed");
        assert_eq!(outcome.again, ["a", "d"]);
        assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    }

    fn printed() -> Vec<String> {
        let text = "\
    running 3 tests
    test a::passes ... ok
    test a::b::takes_long has been running for over 60 seconds
    test a::fails ... FAILED
    test a::b::takes_long ... ok

    failures:

    ---- a::fails stdout ----

    thread 'a::fails' panicked at tests/wire/a.rs:12:5:
    too late

    failures:
    a::fails

    test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out
    running 1 test
    test c::timed ... ok
    ";
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn outcomes_counts_and_the_words_of_failures_are_read() {
        let lines = printed();
        let outcomes = outcomes(&lines);
        assert_eq!(outcomes.len(), 4);
        let failed: Vec<_> = outcomes.iter().filter(|(_, passed)| !**passed).collect();
        assert_eq!(failed, [(&"a::fails".to_owned(), &false)]);
        assert_eq!(promised(&lines), 4);
        let said = output_of(&lines, "a::fails");
        assert_eq!(said.len(), 2);
        assert_eq!(said[1], "too late");
    }
}
