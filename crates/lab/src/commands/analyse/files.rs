//! The files to analyse, and the part of their time.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use anyhow::Result;
use pillion_cli::exit;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::{Observed, OpenError, Traces, unread};
use pillion_lab::store::{State, StoredRun};
use pillion_trace::input::Progress;
use pillion_trace::measure::Group;
use pillion_trace::{Observer, Period, When};

use crate::commands::progress;

/// Where the traces are.
#[derive(clap::Args)]
pub struct Files {
    /// The trace, taken at the sender of the data; `-` for standard input; or a run's folder
    ///
    /// Of a run of the lab both traces are read, by their one clock, and its groups are shown.
    #[arg(value_name = "SENDER|RUN")]
    sender: PathBuf,

    /// The trace of the same connections at their receiver; its clock may be another
    #[arg(long, value_name = "RECEIVER")]
    receiver: Option<PathBuf>,

    /// An address that the network translates: as the receiver's trace shows it, and as the
    /// sender's does; may be repeated. Most are found without
    #[arg(long, value_name = "THERE=HERE", value_parser = parse_nat, requires = "receiver")]
    nat: Vec<(IpAddr, IpAddr)>,

    /// Both traces were taken by one clock: take delays as they are
    #[arg(long, requires = "receiver")]
    same_clock: bool,
}

/// Traces, and what is known of them beforehand.
pub struct Opened {
    pub traces: Traces,
    /// Of a run, its groups.
    pub groups: Vec<Group>,
}

impl Files {
    pub fn open(self, period: Period) -> Result<Opened> {
        if self.sender.is_dir() {
            return self.open_run(period);
        }
        let receiver = self.receiver.as_deref();
        let traces = Traces::open(&self.sender, receiver, self.nat, period, self.same_clock);
        let traces = traces.map_err(refused)?;
        Ok(Opened {
            traces,
            groups: Vec::new(),
        })
    }

    /// A run's own traces: one clock, and groups whose ports are known.
    fn open_run(self, period: Period) -> Result<Opened> {
        let folder = self.sender.display();
        if self.receiver.is_some() {
            let mistake =
                format!("{folder} is a folder; of a run both traces are read, without --receiver");
            return Err(BadInput(mistake).into());
        }
        let Some(run) = StoredRun::read(&self.sender)? else {
            let mistake =
                format!("{folder} is a folder, and not that of a run; name a trace, or a run");
            return Err(BadInput(mistake).into());
        };
        if run.state != State::Whole {
            let mistake = format!("the run in {folder} is not whole; name one of its traces");
            return Err(BadInput(mistake).into());
        }
        let Some(traced) = run.traced()? else {
            let mistake = format!("the run in {folder} has no traces, for its file asks for none");
            return Err(BadInput(mistake).into());
        };
        let traces = Traces::open(
            &traced.sender,
            Some(&traced.receiver),
            Vec::new(),
            period,
            true,
        );
        let groups = traced.groups.into_iter();
        Ok(Opened {
            traces: traces.map_err(refused)?,
            groups: groups.map(|(name, to)| Group::to(name, to)).collect(),
        })
    }
}

fn refused(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::OneInput => BadInput(error.to_string()).into(),
        OpenError::Input(error) => error.into(),
        OpenError::Damaged { .. } => error.into(),
    }
}

/// Reads traces to their ends, shows how far that has come, and says on standard error where they
/// are damaged, and which packets are in no number.
pub fn observe<O: Observer>(traces: Traces, observer: O) -> Observed<O> {
    let followed = traces.progress();
    let total = followed.iter().map(Progress::total).sum();
    let read = move || followed.iter().map(Progress::read).sum();
    let progress = progress::Progress::read(total, read);
    let observed = traces.observe(observer);
    progress.finish();
    for trace in &observed.traces {
        for warning in trace.input.warnings() {
            say_line!("pillion-lab: {}: {warning}", trace.name);
        }
        for told in unread(trace.input.counts()) {
            say_line!("pillion-lab: {}: {told}", trace.name);
        }
    }
    observed
}

/// Whether all was read.
pub fn exit_code<O>(observed: &Observed<O>) -> ExitCode {
    if observed.is_damaged() {
        ExitCode::from(exit::INCOMPLETE)
    } else {
        ExitCode::SUCCESS
    }
}

fn parse_nat(text: &str) -> Result<(IpAddr, IpAddr), String> {
    let pair = text.split_once('=');
    let pair = pair.and_then(|(there, here)| Some((there.parse().ok()?, here.parse().ok()?)));
    pair.ok_or_else(|| format!("`{text}` is not of the form 203.0.113.9=10.0.0.7"))
}

/// Which part of the traces is looked at.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Which part")]
pub struct Part {
    /// What was sent then or later: seconds since the trace's first TCP packet, or a date
    ///
    /// Dates are as in 2026-11-21T22:49:11.5Z, in UTC. Of two traces, both times are by the clock
    /// of the sender's. All before is read as well, so that nothing is lost of what was in flight;
    /// latencies are of what was first sent from then on. Connections keep their numbers.
    #[arg(long, value_name = "TIME", value_parser = parse_when, allow_hyphen_values = true)]
    from: Option<When>,

    /// What was captured before; as --from
    #[arg(long, value_name = "TIME", value_parser = parse_when, allow_hyphen_values = true)]
    to: Option<When>,
}

impl Part {
    /// An error if the part ends before it begins, as far as that can be told without the traces.
    pub fn period(self) -> Result<Period, BadInput> {
        let is_empty = match (self.from, self.to) {
            (Some(When::After(from)), Some(When::After(to)))
            | (Some(When::At(from)), Some(When::At(to))) => to <= from,
            _ => false,
        };
        if is_empty {
            let why = "--to is not after --from, and nothing lies between them; give a later one";
            return Err(BadInput(why.to_owned()));
        }
        Ok(Period {
            from: self.from,
            until: self.to,
        })
    }
}

fn parse_when(text: &str) -> Result<When, String> {
    let ns = |seconds: f64| (seconds * 1e9).round() as i64;
    if let Some(seconds) = text
        .parse()
        .ok()
        .filter(|s: &f64| s.is_finite() && *s >= 0.0)
    {
        return Ok(When::After(ns(seconds)));
    }
    let date = humantime::parse_rfc3339_weak(text).ok();
    let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
    let at = since.and_then(|since| i64::try_from(since.as_nanos()).ok());
    at.map(When::At).ok_or_else(|| {
        "expected seconds, as in 12.5, or a date, as in 2026-11-21T22:49:11Z".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_dates() {
        for (text, expected) in [
            ("12.5", When::After(12_500_000_000)),
            ("1970-01-01T00:01:00.25Z", When::At(60_250_000_000)),
            ("1970-01-02 00:00:00", When::At(86_400_000_000_000)),
        ] {
            assert_eq!(parse_when(text), Ok(expected), "{text}");
        }
        for mistake in [
            "",
            "-1",
            "NaN",
            "noon",
            "2026-11-21",
            "1969-12-31T00:00:00Z",
        ] {
            assert!(parse_when(mistake).is_err(), "{mistake}");
        }
    }
}
