//! The programs that run in the guest, built by cargo as `cargo test` builds them.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Where the programs lie on this host.
#[derive(Debug, Clone)]
pub struct Programs {
    pub pillion: PathBuf,
    pub lab: PathBuf,
    /// The tests of the wire, if they are to run.
    pub wire: Option<PathBuf>,
}

impl Programs {
    /// Builds the programs, those for the tests of the wire only if `wire` is true.
    pub fn build(wire: bool) -> Result<Self> {
        let tests = || {
            build(&[
                "test",
                "--package",
                "pillion-tests",
                "--test",
                "wire",
                "--no-run",
            ])
        };
        Ok(Self {
            pillion: build(&["build", "--package", "pillion", "--bin", "pillion"])?,
            lab: build(&["build", "--package", "pillion-lab", "--bin", "pillion-lab"])?,
            wire: wire.then(tests).transpose()?,
        })
    }
}

fn build(arguments: &[&str]) -> Result<PathBuf> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    if !output.status.success() {
        bail!("cargo {}: {}", arguments.join(" "), output.status);
    }
    let lines = String::from_utf8_lossy(&output.stdout);
    let messages = lines
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    // Libraries have none; the last is what was asked for.
    let mut executables = messages.filter_map(|it| it["executable"].as_str().map(PathBuf::from));
    let last = executables.next_back();
    last.with_context(|| format!("cargo {}: no program", arguments.join(" ")))
}
