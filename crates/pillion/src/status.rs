use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use pillion_cli::exit::COVERS_NOTHING;
use pillion_cli::print::{print_json, print_line, say, say_line};
use pillion_stats::report::number::counted;

use crate::service::{Health, status_socket};

/// Say how the pillions are that bundle in this network namespace
///
/// Of each `pillion attach`: since when, on which devices, how many connections it covers, what
/// fails at present, and what failed last. The exit status is 0 if all is well; 1 if none is at work,
/// or one does not answer, is attached to no device or has something that fails; 3 if all is well but
/// no connection is covered at this moment. One that waits, or takes over from another one, is not at
/// work yet.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON, with all totals
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let at_work = status_socket::ask().context("look for pillions at work")?;
        let all = at_work.healths;
        for process in &at_work.silent {
            say_line!(
                "pillion: process {process} does not answer: is it stopped, busy, or another version?"
            );
        }
        if self.json {
            print_json(&all)?;
        } else if all.is_empty() && at_work.silent.is_empty() {
            say("pillion: no `pillion attach` of this user is at work in this network namespace");
        } else {
            all.iter().try_for_each(tell)?;
        }
        let is_well = |it: &&Health| !it.devices.is_empty() && it.failing.is_empty();
        // A successor that begins takes nothing from the one that is at work.
        let mut begun = all.iter().filter(|it| it.at_work).peekable();
        if begun.peek().is_none()
            || !at_work.silent.is_empty()
            || !begun.clone().all(|it| is_well(&it))
        {
            return Ok(ExitCode::FAILURE);
        }
        let covers = begun.any(|health| health.connections > 0);
        Ok(match covers {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(COVERS_NOTHING),
        })
    }
}

fn tell(health: &Health) -> Result<()> {
    let Health { pid, version, .. } = health;
    print_line!(
        "pillion {version}, process {pid}, for {}",
        since(health.since)
    )?;
    print_line!("  bundling {}", health.bundling)?;
    match &health.devices[..] {
        _ if !health.at_work => print_line!("  not at work yet")?,
        [] => print_line!("  attached to no device")?,
        devices => print_line!("  attached to {}", devices.join(", "))?,
    }
    let covered = counted(health.connections, "connection");
    let so_far = health.totals["connections"].as_u64().unwrap_or(0);
    print_line!("  covers {covered} now, {so_far} since it began")?;
    for failing in &health.failing {
        print_line!("  fails: {failing}")?;
    }
    for note in &health.notes {
        print_line!("  note: {note}")?;
    }
    if let Some(error) = &health.last_error {
        print_line!("  last error, {} ago: {}", since(error.at), error.text)?;
    }
    Ok(())
}

/// How long ago a time is, which is in seconds since 1970.
pub fn since(time: u64) -> String {
    let seconds = crate::service::now().saturating_sub(time);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
