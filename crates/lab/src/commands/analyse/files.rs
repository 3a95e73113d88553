use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use pillion_cli::exit;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;
use pillion_lab::analysis::{Observed, OpenError, Traces, unread};
use pillion_lab::store::{State, StoredRun};
use pillion_trace::input::Progress;
use pillion_trace::measure::Group;
use pillion_trace::{Observer, Period};

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
