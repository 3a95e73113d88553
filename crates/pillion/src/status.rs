use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use pillion_cli::exit::NO_CONNECTION;
use pillion_cli::print::{print_json, print_line};
use pillion_stats::report::number::counted;

use crate::service::{Health, Role, status_socket};

/// Show the health of each `pillion attach` in this network namespace
///
/// For each process: run time, devices, covered connections, conditions, current failures and the last
/// error. As root, also shows processes of other network namespaces that serve this one, and each
/// `pillion trial`.
/// Exit status 0: all are healthy. 1: none is ready, or one does not respond, is not attached to
/// any device, has a failure, or is degraded. 3: healthy, but no connection is covered now. Processes
/// that wait or are taking over are not ready yet.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON with all totals
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let running = status_socket::query_all().context("query running pillions")?;
        let all = running.healths;
        for process in &running.silent {
            log::warn!(
                "process {process} does not respond: it may be stopped, busy, or another version"
            );
        }
        if self.json {
            print_json(&all)?;
        } else {
            if !all.iter().any(|it| it.command == Role::Attach) && running.silent.is_empty() {
                log::warn!("no `pillion attach` of this user serves this network namespace");
            }
            all.iter().try_for_each(print_health)?;
        }
        let is_degraded = |it: &Health| it.conditions.iter().any(|it| it.is_degraded());
        let is_healthy =
            |it: &&Health| !it.devices.is_empty() && it.failures.is_empty() && !is_degraded(it);
        // A new process that is still starting does not affect the health of the old one.
        let ready = all
            .iter()
            .filter(|it| it.ready && it.command == Role::Attach);
        let mut ready = ready.peekable();
        if ready.peek().is_none()
            || !running.silent.is_empty()
            || !ready.clone().all(|it| is_healthy(&it))
        {
            return Ok(ExitCode::FAILURE);
        }
        let covers = ready.any(|health| health.active_connections > 0);
        Ok(match covers {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(NO_CONNECTION),
        })
    }
}

fn print_health(health: &Health) -> Result<()> {
    let Health { pid, version, .. } = health;
    let command = match health.command {
        Role::Attach => "pillion",
        Role::Trial => "pillion trial",
    };
    print_line!(
        "{command} {version}, process {pid}, for {}",
        elapsed_since(health.started_at_s)
    )?;
    print_line!("  bundling {}", health.bundling)?;
    match &health.devices[..] {
        _ if !health.ready => print_line!("  not ready yet")?,
        [] => print_line!("  not attached to any device")?,
        devices => print_line!("  attached to {}", devices.join(", "))?,
    }
    let covered = counted(health.active_connections, "connection");
    let total = health.totals["connections"].as_u64().unwrap_or(0);
    print_line!("  covers {covered} now, {total} since the start")?;
    for comparison in &health.holdbacks {
        print_line!("  {comparison}")?;
    }
    for condition in &health.conditions {
        let severity = if condition.is_degraded() {
            "degraded"
        } else {
            "note"
        };
        print_line!("  {severity}: {}", condition.text())?;
    }
    for failure in &health.failures {
        print_line!("  fails: {failure}")?;
    }
    for note in &health.notes {
        print_line!("  note: {note}")?;
    }
    if let Some(error) = &health.last_error {
        print_line!(
            "  last error, {} ago: {}",
            elapsed_since(error.at_s),
            error.text
        )?;
    }
    Ok(())
}

/// Formats the time since a time in seconds since 1970.
pub fn elapsed_since(time_s: u64) -> String {
    let seconds = crate::service::now().saturating_sub(time_s);
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}
