//! Traces to analyse, and the period of interest.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use pillion_cli::exit;
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::{Observation, OpenError, Trace, Traces, unread_packet_notes};
use pillion_lab::store::{RunState, StoredRun};
use pillion_trace::input::Progress;
use pillion_trace::measure::Group;
use pillion_trace::{Observer, Period, TimePoint};

use crate::commands::progress;

/// Options for the traces.
#[derive(clap::Args)]
pub struct TraceArgs {
    /// Trace taken at the sender of the data; `-` for standard input; or the folder of a run
    ///
    /// Several files are one capture, as from the ring buffer of `tcpdump -C`. They are read in the
    /// order of their first packets. For a run of the lab, both traces are read, with one clock,
    /// and the run's groups are shown.
    #[arg(value_name = "SENDER|RUN", required = true)]
    sender: Vec<PathBuf>,

    /// Trace of the same connections taken at their receiver; its clock may differ
    ///
    /// Repeat the option for each file of a capture with several files.
    #[arg(long, value_name = "RECEIVER")]
    receiver: Vec<PathBuf>,

    /// Address that the network translates: as in the receiver's trace, and as in the sender's; may
    /// be repeated. Most are found automatically
    #[arg(long, value_name = "THERE=HERE", value_parser = parse_nat, requires = "receiver")]
    nat: Vec<(IpAddr, IpAddr)>,

    /// Both traces have the same clock: use delays as they are
    #[arg(long, requires = "receiver")]
    same_clock: bool,
}

/// Opened traces.
pub struct OpenedTraces {
    pub traces: Traces,
    /// Groups of the run; empty for other traces.
    pub groups: Vec<Group>,
}

impl TraceArgs {
    pub fn open(self, period: Period) -> Result<OpenedTraces> {
        if let [folder] = &self.sender[..]
            && folder.is_dir()
        {
            return open_run(folder, &self.receiver, period);
        }
        let (sender, receiver) = (&self.sender, &self.receiver);
        if let Some(folder) = sender.iter().chain(receiver).find(|file| file.is_dir()) {
            let reason = format!(
                "{} is a folder: give the folder of one run, or files",
                folder.display()
            );
            return Err(BadInput(reason).into());
        }
        let traces = Traces::open(sender, receiver, self.nat, period, self.same_clock);
        let traces = traces.map_err(open_error)?;
        Ok(OpenedTraces {
            traces,
            groups: Vec::new(),
        })
    }
}

/// Opens the traces of a run, which have one clock and known groups.
fn open_run(run: &Path, receiver: &[PathBuf], period: Period) -> Result<OpenedTraces> {
    let folder = run.display();
    if !receiver.is_empty() {
        let reason =
            format!("{folder} is a folder: both traces of a run are read; remove --receiver");
        return Err(BadInput(reason).into());
    }
    let Some(run) = StoredRun::read(run)? else {
        let reason =
            format!("{folder} is a folder, but not of a run; give a trace, or the folder of a run");
        return Err(BadInput(reason).into());
    };
    if run.state != RunState::Complete {
        let reason = format!("the run in {folder} is incomplete; give one of its traces");
        return Err(BadInput(reason).into());
    }
    let Some(trace_pair) = run.trace_pair()? else {
        let reason =
            format!("the run in {folder} was made without traces; set `traces` in its [measure]");
        return Err(BadInput(reason).into());
    };
    let files = [trace_pair.sender, trace_pair.receiver];
    let (sender, receiver) = files.split_at(1);
    let traces = Traces::open(sender, receiver, Vec::new(), period, true);
    let groups = trace_pair.groups.into_iter();
    Ok(OpenedTraces {
        traces: traces.map_err(open_error)?,
        groups: groups.map(|(name, to)| Group::to(name, to)).collect(),
    })
}

fn open_error(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::OneInput | OpenError::InputAmongFiles => BadInput(error.to_string()).into(),
        OpenError::Input(error) => error.into(),
        OpenError::Damaged { .. } => error.into(),
    }
}

/// Reads the traces, with a progress bar. Logs damaged parts and packets that are not counted.
pub fn observe<O: Observer>(traces: Traces, observer: O) -> Observation<O> {
    let followed = traces.progress();
    let total = followed.iter().map(Progress::total).sum();
    let read = move || followed.iter().map(Progress::read).sum();
    let progress = progress::Progress::read(total, read);
    let observed = traces.observe(observer);
    progress.finish();
    for trace in &observed.traces {
        for warning in trace.input.warnings() {
            log::warn!("{}: {warning}", trace.name);
        }
        for note in unread_packet_notes(trace.input.counts()) {
            log::warn!("{}: {note}", trace.name);
        }
    }
    observed
}

/// Returns the exit status for complete or damaged traces.
///
/// # Errors
/// [`BadInput`] if the files of a trace are not of one capture.
pub fn exit_code<O>(observed: &Observation<O>) -> Result<ExitCode, BadInput> {
    if let Some(overlap) = observed.traces.iter().find_map(Trace::overlap) {
        let remedy = "give each file of the receiver's trace with --receiver";
        return Err(BadInput(format!("{overlap}; {remedy}")));
    }
    Ok(if observed.is_damaged() {
        ExitCode::from(exit::INCOMPLETE)
    } else {
        ExitCode::SUCCESS
    })
}

fn parse_nat(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let pair = text.split_once('=');
    let pair = pair.and_then(|(there, here)| Some((there.parse().ok()?, here.parse().ok()?)));
    pair.ok_or_else(|| {
        format!("invalid translation `{text}`: expected THERE=HERE, as in 203.0.113.9=10.0.0.7")
    })
}

/// Options for the period of interest.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Period")]
pub struct PeriodArgs {
    /// Start of the period: seconds since the trace's first TCP packet, or a date
    ///
    /// Dates have the form 2026-11-21T22:49:11.5Z, in UTC. With two traces, the time is by the
    /// sender's clock. Earlier packets are read as well, so data in flight is complete. Latencies
    /// include only data whose first transmission is in the period. Connections retain their
    /// numbers.
    #[arg(long, value_name = "TIME", value_parser = parse_when, allow_hyphen_values = true)]
    from: Option<TimePoint>,

    /// End of the period, in the form of --from
    #[arg(long, value_name = "TIME", value_parser = parse_when, allow_hyphen_values = true)]
    to: Option<TimePoint>,
}

impl PeriodArgs {
    /// Returns the period.
    ///
    /// # Errors
    /// [`BadInput`] if the end is not after the start, as far as both are comparable.
    pub fn period(self) -> Result<Period, BadInput> {
        let is_empty = match (self.from, self.to) {
            (Some(TimePoint::After(from)), Some(TimePoint::After(to)))
            | (Some(TimePoint::At(from)), Some(TimePoint::At(to))) => to <= from,
            _ => false,
        };
        if is_empty {
            let reason = "--to is not after --from: the period is empty; give a later --to";
            return Err(BadInput(reason.to_owned()));
        }
        Ok(Period {
            from: self.from,
            until: self.to,
        })
    }
}

fn parse_when(text: &str) -> Result<TimePoint, String> {
    let ns = |seconds: f64| (seconds * 1e9).round() as i64;
    if let Some(seconds) = text
        .parse()
        .ok()
        .filter(|s: &f64| s.is_finite() && *s >= 0.0)
    {
        return Ok(TimePoint::After(ns(seconds)));
    }
    let date = humantime::parse_rfc3339_weak(text).ok();
    let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    let at = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    at.map(TimePoint::At).ok_or_else(|| {
        "expected seconds, as in 12.5, or a date, as in 2026-11-21T22:49:11Z".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn period_limits_are_seconds_or_dates() {
        for (text, expected) in [
            ("12.5", TimePoint::After(12_500_000_000)),
            ("1970-01-01T00:01:00.25Z", TimePoint::At(60_250_000_000)),
            ("1970-01-02 00:00:00", TimePoint::At(86_400_000_000_000)),
        ] {
            assert_eq!(parse_when(text), Ok(expected), "{text}");
        }
        for reason in [
            "",
            "-1",
            "NaN",
            "noon",
            "2026-11-21",
            "1969-12-31T00:00:00Z",
        ] {
            assert!(parse_when(reason).is_err(), "{reason}");
        }
    }
}
