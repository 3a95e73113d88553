use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::teller::Teller;
use crate::libtest;
use crate::report::Report;

/// The exit status of the test harness where a test failed.
const TESTS_FAILED: i32 = 101;

/// How often a test that failed is run again.
const CHANCES: usize = 2;

/// Runs the tests of the wire, and passes on what they print; those that failed again, one at a time:
/// an emulated machine may stand still for longer than a test waits.
pub fn run(program: &str, runs: &[Vec<String>], teller: &Teller) -> Result<(), String> {
    let mut printed = Vec::new();
    for arguments in runs {
        let lines = run_once(program, arguments, |line| {
            teller.tell(&Report::Wire(line.to_owned()))
        });
        printed.extend(lines?);
    }
    for _ in 0..CHANCES {
        let outcomes = libtest::outcomes(&printed).into_iter();
        let failed: Vec<_> = outcomes.filter(|it| !it.1).map(|(name, _)| name).collect();
        if failed.is_empty() {
            break;
        }
        let alone = ["--test-threads=1", "--exact"].map(str::to_owned);
        let arguments = [&alone[..], &failed].concat();
        printed = run_once(program, &arguments, |line| {
            teller.tell(&Report::WireAgain(line.to_owned()))
        })?;
    }
    Ok(())
}

/// A program that ends otherwise than by its tests' outcome is an error: of those that it left out
/// nothing is known.
fn run_once(
    program: &str,
    arguments: &[String],
    tell: impl Fn(&str) -> Result<(), String>,
) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let output = child.stdout.take().map(BufReader::new);
    let mut lines = Vec::new();
    for line in output.into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(failed)?;
        tell(&line)?;
        lines.push(line);
    }
    let status = child.wait().map_err(failed)?;
    match status.code() {
        Some(0 | TESTS_FAILED) => Ok(lines),
        _ => Err(format!("{program} {}: {status}", arguments.join(" "))),
    }
}
