//! `pillion advise` and `pillion trial`: observation of connections, and the evaluation.

mod advise;
mod rules_file;
mod trial;
mod trial_report;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Arg;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use pillion_bpf::{
    AttachTargets, Attachment, Change, NamespaceName, Namespaces, Observation, Observing, Policy,
    Programs,
};
use pillion_cli::disposition::{ignore_file_limit_signal, is_ignored};
use pillion_cli::log::{self as logging, LogLevel};
use pillion_cli::output_file::OutputFile;
use pillion_cli::settings::times::parse_duration;
use pillion_cli::settings::{BadInput, policy};
use pillion_stats::report::number;

use crate::args::{BundlingArgs, ConnectionMatchArgs, NamespaceArgs, sorted, start_cleanup_helper};
use crate::event_loop::{EventHandler, Wake, log_change, run_until_signal_or};
use crate::process::{CleanupHelper, Descriptors, HELPER_KILLED, read_signal, receive_signals};
use crate::rules::{Rules, view_warning};
use crate::service::{Shared, serve_trial, status_socket};
use crate::stats::Stats;
use rules_file::Conditions;

pub use advise::Args as AdviseArgs;
pub use trial::Args as TrialArgs;

// Options of both commands.

/// Options of the observed connections, the thresholds and the outputs.
#[derive(clap::Args)]
#[command(mut_arg("ports", add_default_to_help))]
pub struct ObserveArgs {
    #[command(flatten)]
    pub matches: ConnectionMatchArgs,

    #[command(flatten)]
    pub namespaces: NamespaceArgs,

    /// Stop after this time, as in 1h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,

    /// Time beyond the minimum RTT before a segment counts as late, up to 1h; receivers may delay
    /// ACKs that long
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = parse_us)]
    pub grace: u32,

    /// ACK latency beyond which a segment stalls, up to 1h
    #[arg(long, value_name = "DURATION", default_value = "300ms", value_parser = parse_us)]
    pub stall: u32,

    /// Write totals to FILE as JSON: every 10 s, on SIGUSR1 and at the end
    #[arg(long, value_name = "FILE")]
    pub stats: Option<PathBuf>,

    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,

    /// Also write a report with figures to FILE, as self-contained HTML
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Lowest severity to log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    pub log_level: LogLevel,
}

/// Adds the default of these commands to the help of `--port`.
fn add_default_to_help(choice: Arg) -> Arg {
    let help = choice.get_help().cloned().unwrap_or_default();
    choice.help(format!("{help} [default: all connections]"))
}

/// Parses a duration of at most one hour, and returns microseconds.
fn parse_us(text: &str) -> Result<u32, BadInput> {
    let time = parse_duration(text)?;
    match time <= Duration::from_secs(3600) {
        true => Ok(time.as_micros() as u32),
        false => Err(BadInput(format!(
            "invalid duration `{text}`: expected at most 1h"
        ))),
    }
}

impl ObserveArgs {
    /// Checks that the file of `--html` can be written, before anything else starts.
    pub fn report(&self) -> Result<Option<OutputFile>> {
        let file = self.html.as_deref();
        file.map(|file| OutputFile::page("--html", file))
            .transpose()
    }

    /// Describes the selected connections, independently of the order of the options.
    pub fn connections_text(&self) -> String {
        let description = self.matches.sorted().description();
        description.unwrap_or_else(|| "all connections".to_owned())
    }

    /// Describes the devices and network namespaces of the options.
    pub fn location(&self, bundling: &BundlingArgs) -> String {
        let devices = bundling.devices.iter();
        let devices: Vec<_> = devices.map(|it| it.to_string_lossy()).collect();
        let (devices, namespaces) = (sorted(&devices), sorted(&self.namespace_names()));
        match (devices.is_empty(), namespaces.is_empty()) {
            (true, true) => "all devices of its own network namespace".to_owned(),
            (true, false) => format!("all devices of {}", namespaces.join(", ")),
            (false, true) => devices.join(", "),
            (false, false) => format!("{} of {}", devices.join(", "), namespaces.join(", ")),
        }
    }

    /// Returns the network namespaces as typed.
    fn namespace_names(&self) -> Vec<String> {
        let typed = |name: &NamespaceName| name.as_given().to_string_lossy().into_owned();
        self.namespaces.named.iter().map(typed).collect()
    }

    /// Returns the conditions for rules, so that they match only the observed connections.
    pub fn conditions(&self) -> Conditions {
        let containers = self.matches.containers();
        Conditions {
            rule: policy::Rule {
                peer: self.matches.peers.clone(),
                cgroup: self.matches.cgroups.clone(),
                container: containers.names,
                container_label: containers.labels,
                ..policy::Rule::default()
            },
            namespaces: self.namespaces.named.clone(),
        }
    }

    /// Returns the network namespaces to observe.
    pub fn namespaces(&self) -> Namespaces {
        let containers = Some(self.matches.containers());
        Namespaces {
            named: self.namespaces.named.clone(),
            container_selectors: containers.into_iter().filter(|it| !it.is_empty()).collect(),
        }
    }

    pub fn policy(
        &self,
        bundling: &BundlingArgs,
        targets: &AttachTargets,
        observing: Observing,
    ) -> Result<Policy> {
        let options = bundling.options()?;
        let (max_connections, memory_warning) = bundling.max_connections(true)?;
        if let Some(warning) = memory_warning {
            log::warn!("{warning}");
        }
        Ok(Policy {
            rules: vec![self.matches.rule(&bundling.how, options)],
            default_mode: pillion_bpf::Mode::Never,
            max_connections,
            observing: Some(observing),
            governing: true,
            redundancy_caps: bundling.caps(),
            ..Policy::default()
        }
        .with_targets(targets))
    }
}

// Observation session.

/// Time between two readings of the observations.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time between two readings while the last data is acknowledged.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum time until the last data is acknowledged: several back-offs of the retransmission timer.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// Signals that stop the session.
const STOP_SIGNALS: [Signal; 2] = [Signal::SIGINT, Signal::SIGTERM];

/// Signals with a meaning for `attach`. They must not kill a session if a script sends them to
/// every pillion.
const ATTACH_SIGNALS: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// Running observation, which ends when it is dropped.
pub struct Session {
    attachment: Attachment,
    targets: AttachTargets,
    logger: ChangeLogger,
    signals: SignalFd,
    end: Option<Instant>,
    helper: CleanupHelper,
}

/// State of the session after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    Continue,
    /// The duration has passed.
    TimeUp,
    /// A signal requested the end.
    Stopped,
}

/// Logs changes, updates the rules, and writes the file of `--stats`.
struct ChangeLogger {
    stats: Stats,
    rules: Rules,
    /// Health for `status`, during a trial.
    shared: Option<Arc<Shared>>,
}

impl EventHandler for ChangeLogger {
    fn on_change(&mut self, change: &Change) {
        log_change(change);
    }

    fn on_tick(&mut self, attachment: &mut Attachment, targets: &AttachTargets) {
        // The rules log their failures themselves.
        let _ = self.rules.update(attachment, targets);
        self.rules.warn(targets);
        self.stats.write_if_due(attachment);
        if let Some(shared) = &self.shared {
            let failures = targets.failing().map(str::to_owned);
            shared.update(attachment, failures.collect(), Vec::new());
        }
    }
}

impl Session {
    /// Starts to observe, for `duration` if given. `verb` starts the log line.
    pub fn start(
        args: &ObserveArgs,
        bundling: &BundlingArgs,
        observing: Observing,
        duration: Option<Duration>,
        verb: &str,
    ) -> Result<Self> {
        logging::start("pillion", args.log_level);
        Descriptors::raise();
        ignore_file_limit_signal().context("ignore SIGXFSZ")?;
        let namespaces = args.namespaces();
        let mut targets = bundling.targets(&namespaces)?;
        let stats = Stats::new(args.stats.clone())?;
        let hangup = (!is_ignored(Signal::SIGHUP)).then_some(Signal::SIGHUP);
        let signals = STOP_SIGNALS.into_iter().chain(ATTACH_SIGNALS).chain(hangup);
        let signals = receive_signals(signals)?;
        let policy = args.policy(bundling, &targets, observing)?;
        let rules = Rules::new(policy.clone())?;
        let programs = Programs::load(&policy)?.with_hook(bundling.hook());
        let helper = start_cleanup_helper(&programs, &namespaces)?;
        let (attachment, changes) = Attachment::start_everywhere(programs, &mut targets, None)?;
        log::info!("{verb} {}; stop with Ctrl-C", args.connections_text());
        let shared = observing
            .bundled_ppm
            .is_some_and(|it| it > 0)
            .then(|| serve_trial(args.connections_text(), &attachment))
            .transpose()?;
        let mut logger = ChangeLogger {
            stats,
            rules,
            shared,
        };
        changes.iter().for_each(|change| logger.on_change(change));
        if let Some(view) = view_warning() {
            log::warn!("{view}");
        }
        logger.rules.warn(&targets);
        warn_of_other_processes();
        Ok(Self {
            attachment,
            targets,
            logger,
            signals,
            // A duration beyond the range of the clock means no end.
            end: duration.and_then(|it| Instant::now().checked_add(it)),
            helper,
        })
    }

    /// Waits for [`POLL_INTERVAL`], a signal or the end, and returns the observations so far.
    pub fn wait(&mut self) -> Result<(Progress, Vec<Observation>)> {
        self.wait_for(POLL_INTERVAL)
    }

    /// Replaces the last observations of open connections by those at their next ACK, or at their
    /// end. The longest waits are the most likely to be cut off by an end at a fixed time; an end at
    /// an ACK leaves the mean unbiased (A. Wald, Annals of Mathematical Statistics, 1944). Connections
    /// without an ACK until a signal or [`DRAIN_TIMEOUT`] keep their last observation.
    pub fn drain(&mut self, last: Vec<Observation>) -> Result<Vec<Observation>> {
        let mut pending = last;
        pending.retain(|it| !it.has_ended);
        let mut complete = Vec::new();
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        self.end = None;
        while !pending.is_empty() && Instant::now() < deadline {
            let (progress, found) = self.wait_for(DRAIN_INTERVAL)?;
            let mut found: HashMap<_, _> = found.into_iter().map(|it| (it.cookie, it)).collect();
            pending.retain(|last| match found.remove(&last.cookie) {
                Some(it) if it.has_ended || it.segments > last.segments => {
                    complete.push(it);
                    false
                }
                _ => true,
            });
            if progress == Progress::Stopped {
                break;
            }
        }
        complete.append(&mut pending);
        Ok(complete)
    }

    fn wait_for(&mut self, interval: Duration) -> Result<(Progress, Vec<Observation>)> {
        let moment = Instant::now() + interval;
        let until = self.end.map_or(moment, |end| end.min(moment));
        let Self {
            attachment,
            targets,
            logger,
            signals,
            helper,
            ..
        } = self;
        let until = Some(until);
        let wake = run_until_signal_or(signals, helper, attachment, targets, until, logger);
        let is_stopped = match wake.context("wait for a signal")? {
            Wake::Signal => self.handle_signal()?,
            Wake::Deadline => false,
            Wake::HelperExited => {
                log::error!("{HELPER_KILLED} pillion stops; start it again");
                true
            }
        };
        let progress = match (is_stopped, self.end) {
            (true, _) => Progress::Stopped,
            (false, Some(end)) if Instant::now() >= end => Progress::TimeUp,
            _ => Progress::Continue,
        };
        Ok((progress, self.attachment.observations()?))
    }

    /// Handles a signal; returns true if it stops the session.
    fn handle_signal(&mut self) -> Result<bool> {
        let Some(signal) = read_signal(&self.signals)? else {
            return Ok(false);
        };
        match Signal::try_from(signal.ssi_signo.cast_signed()) {
            Ok(Signal::SIGUSR1) => self.logger.stats.write_now(&self.attachment),
            // These commands have no hand-over.
            Ok(Signal::SIGUSR2) => {}
            _ => return Ok(true),
        }
        Ok(false)
    }

    /// Stops the session, and writes the final totals.
    pub fn finish(mut self) -> Result<()> {
        self.attachment.finish();
        warn_of_other_processes();
        let totals = self.attachment.totals()?;
        if totals.unobserved > 0 {
            log::warn!(
                "{} not observed: more than --max-connections, or out of kernel memory; raise \
                 --max-connections, or select fewer connections",
                number::counted(totals.unobserved, "connection")
            );
        }
        self.logger.stats.write(&totals)
    }
}

/// Warns about other pillions in this namespace. Segments that they have bundled cannot be
/// observed.
fn warn_of_other_processes() {
    let others = status_socket::query().unwrap_or_default().healths;
    for other in others.iter().filter(|it| it.pid != std::process::id()) {
        log::warn!(
            "process {} also bundles here ({}): segments that it bundles cannot be observed; \
             stop it meanwhile, or select other connections",
            other.pid,
            other.bundling
        );
    }
}
