use std::process::Command;

use super::PILLION;
use super::teller::Teller;
use crate::report::{Finding, Report};

/// What pillion says of this kernel; nothing may be missing.
pub fn run(teller: &Teller) -> Result<(), String> {
    let output = Command::new(PILLION).args(["check", "--json"]).output();
    let output = output.map_err(|error| format!("{PILLION}: {error}"))?;
    let findings: Vec<Finding> =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let missing = findings.iter().find(|it| it.standing == "missing");
    let missing = missing.map(|it| format!("{}: {}", it.name, it.found));
    teller.tell(&Report::Check(findings))?;
    missing.map_or(Ok(()), Err)
}
