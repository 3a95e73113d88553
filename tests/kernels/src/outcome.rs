//! Result of testing a kernel, stored as a file from which tables are made.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::catalogue::{KernelEntry, SkippedTests};
use crate::gate::AcceptedCosts;
use crate::report::{CheckResult, Costs, Report, Stream};
use crate::stock::StockKernel;

/// Result of testing a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kernel's name in the catalogue.
    pub name: String,
    pub distribution: String,
    /// Output of `uname -r`.
    pub release: String,
    /// Version of its package.
    pub version: String,
    /// Processor that executed the guest's instructions.
    pub processor: String,
    pub check_results: Vec<CheckResult>,
    pub costs: Costs,
    pub streams: Vec<Stream>,
    /// True for a run of environments, whose streams it contains.
    #[serde(default)]
    pub environments: bool,
    /// Parts of names of the requested wire tests; empty for all.
    pub tests: Vec<String>,
    /// Wire tests; `true` if passed.
    pub wire: BTreeMap<String, bool>,
    /// Tests of these that failed at first, and passed in a serial rerun.
    #[serde(default)]
    pub passed_on_rerun: Vec<String>,
    pub skipped: Vec<SkippedTests>,
    /// Reasons for failure; empty on success.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Creates an empty result.
    pub fn new(
        entry: &KernelEntry,
        stock: &StockKernel,
        processor: &str,
        tests: &[String],
        environments: bool,
    ) -> Self {
        Self {
            name: entry.name.clone(),
            distribution: entry.distribution.clone(),
            release: stock.release.clone(),
            version: stock.version.clone(),
            processor: processor.to_owned(),
            check_results: Vec::new(),
            costs: Costs::new(),
            streams: Vec::new(),
            environments,
            tests: tests.to_vec(),
            wire: BTreeMap::new(),
            passed_on_rerun: Vec::new(),
            skipped: match environments {
                true => Vec::new(),
                false => entry.skipped.clone(),
            },
            failures: Vec::new(),
        }
    }

    /// Adds a report; lines of wire tests and of their reruns are collected separately.
    pub fn add_report(&mut self, report: Report, [wire, passed_on_rerun]: &mut [Vec<String>; 2]) {
        match report {
            Report::Check(check_results) => self.check_results = check_results,
            Report::Costs(costs) => self.costs = costs,
            Report::Stream(stream) => self.streams.push(stream),
            Report::Wire(line) => wire.push(line),
            Report::WireAgain(line) => passed_on_rerun.push(line),
            Report::Failed(part, reason) => self.failures.push(format!("{part}: {reason}")),
            Report::Done(_) | Report::End => {}
        }
    }

    /// Parses the output of the wire tests and of their reruns.
    pub fn read_wire(&mut self, [lines, passed_on_rerun]: &[Vec<String>; 2]) {
        self.wire = outcomes(lines);
        for (test, _) in outcomes(passed_on_rerun).into_iter().filter(|it| it.1) {
            self.wire.insert(test.clone(), true);
            self.passed_on_rerun.push(test);
        }
        let missing = announced(lines).saturating_sub(self.wire.len());
        if missing > 0 {
            let line = format!("{missing} wire tests have no result");
            self.failures.push(line);
        }
        for (test, _) in self.wire.iter().filter(|(_, passed)| !**passed) {
            let output = output_of(lines, test);
            // The first line has the location, the next ones the reason, and expected and observed
            // events.
            let output = output.iter().take(4).copied().collect::<Vec<_>>().join(" ");
            self.failures.push(format!("test {test}: {output}"));
        }
    }

    /// Returns how many wire tests passed, for reports.
    pub fn wire_passed(&self) -> String {
        let passed = self.wire.values().filter(|passed| **passed).count();
        match self.wire.len() {
            0 => "not run".to_owned(),
            all if self.tests.is_empty() => format!("{passed} of {all} passed"),
            all => format!(
                "{passed} of {all} passed; requested: {}",
                self.tests.join(", ")
            ),
        }
    }

    /// Adds costs above the accepted ones to the failures.
    pub fn judge(&mut self, accepted: &AcceptedCosts) {
        let regressions = accepted.regressions(&self.name, &self.costs);
        self.failures.extend(regressions);
    }

    /// Returns the name of the run's file with this extension.
    pub fn file(&self, extension: &str) -> String {
        file(&self.name, self.environments, extension)
    }

    /// Stores the result.
    pub fn store(&self) -> Result<()> {
        let path = folder()?.join(self.file("json"));
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }

    /// Returns the last stored result of a kernel, or of its environments.
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

/// Returns the folder for results and consoles, in cargo's target folder.
pub fn folder() -> Result<PathBuf> {
    let program = env::current_exe().context("find this program")?;
    let target = program.ancestors().nth(2).context("find cargo's folder")?;
    let folder = target.join("kernels");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    Ok(folder)
}

/// Returns the outcome of each test that has one; `true` if it passed.
pub fn outcomes(lines: &[String]) -> BTreeMap<String, bool> {
    let lines_of_tests = lines.iter().filter_map(|line| line.strip_prefix("test "));
    let lines_of_tests = lines_of_tests.filter_map(|line| line.rsplit_once(" ... "));
    let known = lines_of_tests.filter_map(|(name, outcome)| match outcome {
        "ok" => Some((name.to_owned(), true)),
        "FAILED" => Some((name.to_owned(), false)),
        _ => None,
    });
    known.collect()
}

/// Returns the number of tests that the runs announced.
pub fn announced(lines: &[String]) -> usize {
    let counts = lines.iter().filter_map(|line| {
        let count = line.strip_prefix("running ")?.split(' ').next()?;
        count.parse::<usize>().ok()
    });
    counts.sum()
}

/// Returns the output of a failed test.
pub fn output_of<'a>(lines: &'a [String], test: &str) -> Vec<&'a str> {
    let start_line = format!("---- {test} stdout ----");
    let lines = lines.iter().map(String::as_str);
    let after = lines.skip_while(|line| *line != start_line).skip(1);
    let own = after.take_while(|line| !line.starts_with("---- ") && *line != "failures:");
    own.filter(|line| !line.trim().is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_that_passes_on_rerun_passes_and_is_listed() {
        let kernel = &crate::catalogue::Catalogue::load().unwrap().kernels[0];
        let mut outcome = Outcome::new(kernel, &StockKernel::default(), "emulated", &[], false);
        let mut wire = [Vec::new(), Vec::new()];
        for line in [
            "running 4 tests",
            "test a ... FAILED",
            "test b ... ok",
            "test c ... FAILED",
            "test d ... FAILED",
        ] {
            outcome.add_report(Report::Wire(line.to_owned()), &mut wire);
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
            outcome.add_report(Report::WireAgain(line.to_owned()), &mut wire);
        }
        outcome.read_wire(&wire);
        assert_eq!(outcome.wire_passed(), "3 of 4 passed");
        assert_eq!(outcome.passed_on_rerun, ["a", "d"]);
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
    fn outcomes_counts_and_failure_output_are_parsed() {
        let lines = printed();
        let outcomes = outcomes(&lines);
        assert_eq!(outcomes.len(), 4);
        let failed: Vec<_> = outcomes.iter().filter(|(_, passed)| !**passed).collect();
        assert_eq!(failed, [(&"a::fails".to_owned(), &false)]);
        assert_eq!(announced(&lines), 4);
        let output = output_of(&lines, "a::fails");
        assert_eq!(output.len(), 2);
        assert_eq!(output[1], "too late");
    }
}
