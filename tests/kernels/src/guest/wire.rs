use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::teller::Teller;
use crate::report::Report;

/// The exit status of the test harness where a test failed.
const TESTS_FAILED: i32 = 101;

/// Runs the tests of the wire, and passes on what they print. A program that ends otherwise than by their outcome is
/// an error: of the tests that it left out nothing is known.
pub fn run(program: &str, runs: &[Vec<String>], teller: &Teller) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    for arguments in runs {
        let mut child = Command::new(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let output = child.stdout.take().map(BufReader::new);
        for line in output.into_iter().flat_map(BufRead::lines) {
            teller.tell(&Report::Wire(line.map_err(failed)?))?;
        }
        let status = child.wait().map_err(failed)?;
        if !matches!(status.code(), Some(0 | TESTS_FAILED)) {
            return Err(format!("{program} {}: {status}", arguments.join(" ")));
        }
    }
    Ok(())
}
