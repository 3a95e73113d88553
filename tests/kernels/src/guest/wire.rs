use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use super::teller::Teller;
use crate::report::Report;

/// Runs the tests of the wire, and passes on what they print.
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
        child.wait().map_err(failed)?;
    }
    Ok(())
}
