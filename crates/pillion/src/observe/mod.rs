//! `pillion advise` and `pillion trial`: what is observed of connections, and what it says.

mod advise;
mod config;
mod trial;
mod trial_report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Arg;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pillion_bpf::{
    Attachment, Change, NamespaceName, Namespaces, Observation, Observing, Policy, Programs,
    Selection,
};
use pillion_cli::disposition::{is_ignored, outlive_file_limit};
use pillion_cli::output_file::OutputFile;
use pillion_cli::print::say_line;
use pillion_cli::settings::times::parse_duration;
use pillion_cli::settings::{BadInput, policy};
use pillion_stats::measure::Unit;
use pillion_stats::report::number;

use crate::args::{BundlingArgs, ChoiceArgs, NamespaceArgs, in_order, start_cleanup_helper};
use crate::follow::{Rules, of_the_view};
use crate::follow::{Watcher, until_readable_or};
use crate::process::{CleanupHelper, Descriptors, read_signal, receive_signals};
use crate::service::status_socket;
use crate::stats::Stats;
use crate::trial::Estimate;
use config::Conditions;

pub use advise::Args as AdviseArgs;
pub use trial::Args as TrialArgs;

// Options of both commands.

/// Which connections are observed, how, and how long.
#[derive(clap::Args)]
#[command(mut_arg("ports", with_its_default))]
pub struct ObserveArgs {
    #[command(flatten)]
    pub choice: ChoiceArgs,

    #[command(flatten)]
    pub namespaces: NamespaceArgs,

    /// End after so many seconds
    #[arg(long, value_name = "S", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Milliseconds beyond the least RTT that are not called late: receivers may take so long to
    /// acknowledge
    #[arg(long, value_name = "MS", default_value = "50", value_parser = parse_us)]
    pub grace: u32,

    /// Milliseconds of ACK latency beyond which a segment stalls
    #[arg(long, value_name = "MS", default_value = "300", value_parser = parse_us)]
    pub stall: u32,

    /// Keep the account of what was done in FILE, as JSON: each ten seconds, on SIGUSR1, and at the
    /// end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Print JSON at the end
    #[arg(long)]
    pub json: bool,

    /// Write a report with figures as well, one HTML file that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// Here, where nothing is chosen, all is.
fn with_its_default(choice: Arg) -> Arg {
    let help = choice.get_help().cloned().unwrap_or_default();
    choice.help(format!("{help} [default: all connections]"))
}

/// Whole microseconds of a time in milliseconds.
fn parse_us(text: &str) -> Result<u32, BadInput> {
    let time = parse_duration(text)?;
    match time <= Duration::from_secs(3600) {
        true => Ok(time.as_micros() as u32),
        false => Err("at most an hour".into()),
    }
}

impl ObserveArgs {
    /// The report's file, of which it is found out before anything is begun that it can be written.
    pub fn report(&self) -> Result<Option<OutputFile>> {
        let file = self.html.as_deref();
        file.map(|file| OutputFile::page("--html", file))
            .transpose()
    }

    /// The connections that are chosen, in words, alike in whatever order they are named.
    pub fn chosen(&self) -> String {
        let words = self.choice.in_order().words();
        words.unwrap_or_else(|| "all connections".to_owned())
    }

    /// Devices and network namespaces that are named, in words.
    pub fn places(&self, bundling: &BundlingArgs) -> String {
        let devices = bundling.devices.iter();
        let devices: Vec<_> = devices.map(|it| it.to_string_lossy()).collect();
        let (devices, namespaces) = (in_order(&devices), in_order(&self.said_namespaces()));
        match (devices.is_empty(), namespaces.is_empty()) {
            (true, true) => "all devices of its own network namespace".to_owned(),
            (true, false) => format!("all devices of {}", namespaces.join(", ")),
            (false, true) => devices.join(", "),
            (false, false) => format!("{} of {}", devices.join(", "), namespaces.join(", ")),
        }
    }

    /// The network namespaces, as they were named.
    fn said_namespaces(&self) -> Vec<String> {
        let said = |name: &NamespaceName| name.as_said().to_string_lossy().into_owned();
        self.namespaces.named.iter().map(said).collect()
    }

    /// All of that, for rules that are to choose no others.
    pub fn conditions(&self) -> Conditions {
        let containers = self.choice.containers();
        Conditions {
            rule: policy::Rule {
                peers: self.choice.peers.clone(),
                cgroup: self.choice.cgroups.clone(),
                container: containers.names,
                container_label: containers.labels,
                ..policy::Rule::default()
            },
            namespaces: self.namespaces.named.clone(),
        }
    }

    /// Where they are.
    pub fn namespaces(&self) -> Namespaces {
        let containers = Some(self.choice.containers());
        Namespaces {
            named: self.namespaces.named.clone(),
            of_containers: containers.into_iter().filter(|it| !it.is_empty()).collect(),
        }
    }

    pub fn policy(
        &self,
        bundling: &BundlingArgs,
        selection: &Selection,
        observing: Observing,
    ) -> Result<Policy> {
        let options = bundling.options()?;
        Ok(Policy {
            rules: vec![self.choice.rule(&bundling.how, options)],
            otherwise: pillion_bpf::Mode::LeaveAlone,
            max_connections: bundling.max_connections,
            observing: Some(observing),
            governing: true,
            ..Policy::default()
        }
        .at(selection))
    }
}

// The time through which connections are observed.

/// How long what is observed is left to itself.
const A_MOMENT: Duration = Duration::from_secs(1);

/// The signals that end it.
const ENDS: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

/// Those that `attach` takes for requests: who sends them to all pillions is to cost none its findings.
const REQUESTS: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// Connections are observed while this lives.
pub struct Session {
    attachment: Attachment,
    selection: Selection,
    teller: Teller,
    signals: SignalFd,
    end: Option<Instant>,
    _helper: CleanupHelper,
}

/// Why it goes on, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    GoOn,
    /// The time is over that was said before.
    Over,
    /// A signal has come.
    Stop,
}

/// Says what changes, has the rules follow it, and keeps the account.
struct Teller {
    stats: Stats,
    rules: Rules,
}

impl Watcher for Teller {
    fn tell(&mut self, change: &Change) {
        say_line!("pillion: {change}");
    }

    fn keep_up(&mut self, attachment: &Attachment, selection: &Selection) {
        // What fails is said there.
        let _ = self.rules.keep_up(attachment, selection);
        self.rules.tell_of_idle(selection);
        self.stats.keep_up(attachment);
    }
}

impl Session {
    /// Begins to observe, for so long if at all for a time; what is said then begins with `what`.
    pub fn begin(
        args: &ObserveArgs,
        bundling: &BundlingArgs,
        observing: Observing,
        duration: Option<Duration>,
        what: &str,
    ) -> Result<Self> {
        Descriptors::raise();
        outlive_file_limit().context("ignore SIGXFSZ")?;
        let namespaces = args.namespaces();
        let mut selection = bundling.selection(&namespaces)?;
        let stats = Stats::to(args.stats.clone())?;
        let hang_up = (!is_ignored(Signal::SIGHUP)).then_some(Signal::SIGHUP);
        let signals = ENDS.into_iter().chain(REQUESTS).chain(hang_up);
        let signals = receive_signals(signals)?;
        let policy = args.policy(bundling, &selection, observing)?;
        let rules = Rules::of(policy.clone())?;
        let programs = Programs::load(&policy)?.by(bundling.hook());
        let helper = start_cleanup_helper(&programs, &namespaces)?;
        let (attachment, changes) = Attachment::begin_everywhere(programs, &mut selection, None)?;
        say_line!("pillion: {what} {}; end with Ctrl-C", args.chosen());
        let mut teller = Teller { stats, rules };
        changes.iter().for_each(|change| teller.tell(change));
        if let Some(view) = of_the_view() {
            say_line!("pillion: {view}");
        }
        teller.rules.tell_of_idle(&selection);
        tell_of_others();
        Ok(Self {
            attachment,
            selection,
            teller,
            signals,
            // One that no clock comes to is none.
            end: duration.and_then(|it| Instant::now().checked_add(it)),
            _helper: helper,
        })
    }

    /// Waits for a moment; then gives what was observed by then.
    pub fn next(&mut self) -> Result<(Next, Vec<Observation>)> {
        let moment = Instant::now() + A_MOMENT;
        let until = self.end.map_or(moment, |end| end.min(moment));
        let Self {
            attachment,
            selection,
            teller,
            signals,
            ..
        } = self;
        let until = Some(until);
        let has_come = until_readable_or(signals, attachment, selection, until, teller);
        let is_told = has_come.context("wait for a signal")? && self.heed()?;
        let next = match (is_told, self.end) {
            (true, _) => Next::Stop,
            (false, Some(end)) if Instant::now() >= end => Next::Over,
            _ => Next::GoOn,
        };
        Ok((next, self.attachment.observations()?))
    }

    /// Does what the signal that has come asks for; true if it ends this.
    fn heed(&mut self) -> Result<bool> {
        let Some(signal) = read_signal(&self.signals)? else {
            return Ok(false);
        };
        match Signal::try_from(signal.ssi_signo.cast_signed()) {
            Ok(Signal::SIGUSR1) => self.teller.stats.now(&self.attachment),
            // Nothing is handed over.
            Ok(Signal::SIGUSR2) => {}
            _ => return Ok(true),
        }
        Ok(false)
    }

    /// Ends it, with the account of what was done.
    pub fn finish(mut self) -> Result<()> {
        self.attachment.finish();
        tell_of_others();
        let totals = self.attachment.totals()?;
        if totals.unobserved > 0 {
            say_line!(
                "pillion: not observed: {}, for more than --max-connections were there, or for \
                 want of kernel memory",
                number::counted(totals.unobserved, "connection")
            );
        }
        self.teller.stats.write(&totals)
    }
}

/// Says which other pillions bundle here: what one has bundled, another leaves as it is, so that
/// nothing can be told of connections that both have.
fn tell_of_others() {
    for other in status_socket::ask().unwrap_or_default().healths {
        say_line!(
            "pillion: process {} is bundling here as well ({}): of what it bundles nothing is \
             learnt; end it meanwhile, or choose other connections",
            other.pid,
            other.bundling
        );
    }
}

// Estimates in words.

/// A value with its interval, as in `12.3 (9.8 to 15.0)`.
pub fn estimate(estimate: Option<Estimate>, unit: Unit) -> String {
    let Some(Estimate { value, interval }) = estimate else {
        return number::MISSING.to_owned();
    };
    let value = one(value, unit);
    match interval {
        Some((low, high)) => format!("{value} ({} to {})", one(low, unit), one(high, unit)),
        None => value,
    }
}

fn one(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => number::percent(value),
        _ => number::millis(value),
    }
}
