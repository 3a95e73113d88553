//! The running `pillion attach`: follows devices, handles signals, reloads the rules, stops.

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{AttachTargets, Attachment, Change, Device, Hook, Namespaces, Reviewed};
use pillion_cli::exit::one_line;
use pillion_cli::log as logger;
use pillion_cli::settings::policy::File;
use pillion_cli::settings::{BadInput, OutputConfig};
use pillion_stats::report::number::counted;

use super::{Args, display_name, is_from_terminal};
use crate::event_loop::{EventHandler, Wake, run_until_signal};
use crate::handover::{Handover, is_handover_signal};
use crate::process::{CleanupHelper, HELPER_KILLED, read_signal};
use crate::rules::Rules;
use crate::service::condition::Condition;
use crate::service::{Service, manager};
use crate::stats::log_totals;
use crate::trial::RuleComparison;

/// Warning about a SIGHUP without `--config`.
pub(super) const SIGHUP_IGNORED: &str =
    "SIGHUP ignored: there is no --config to reload; SIGTERM stops pillion";

/// The running `pillion attach`. Fields are dropped in declaration order: the cleanup helper stops after
/// the attachment.
pub(super) struct Daemon<'a> {
    pub state: DaemonState,
    pub attachment: Attachment,
    /// Cleans up the network namespaces of the start only.
    pub helper: CleanupHelper,
    pub targets: AttachTargets,
    pub namespaces: Namespaces,
    /// Values at the start.
    pub output: OutputConfig,
    /// False if the capabilities to enter other network namespaces were dropped.
    pub may_enter: bool,
    pub args: &'a Args,
}

/// Why the daemon stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The new process has taken over.
    HandedOver,
    /// A signal requested it.
    Signal,
    /// The cleanup helper was killed.
    HelperExited,
}

impl Daemon<'_> {
    /// Follows devices and rules, and handles signals, until one stops it.
    pub(super) fn run(&mut self, signals: &SignalFd) -> Result<End> {
        loop {
            let Self {
                attachment,
                helper,
                targets,
                state,
                ..
            } = self;
            let wake = run_until_signal(signals, helper, attachment, targets, state);
            if wake.context("wait for a signal")? == Wake::HelperExited {
                log::error!("{HELPER_KILLED} pillion stops; start it again");
                return Ok(End::HelperExited);
            }
            if let Some(signal) = read_signal(signals)?
                && let Some(end) = self.handle_signal(&signal)
            {
                return Ok(end);
            }
        }
    }

    /// Handles a signal; returns the reason if it stops the daemon.
    fn handle_signal(&mut self, signal: &siginfo) -> Option<End> {
        let number = Signal::try_from(signal.ssi_signo.cast_signed());
        log::debug!(
            "received signal {} from process {}",
            signal.ssi_signo,
            signal.ssi_pid
        );
        match (number, &self.args.config) {
            (Ok(Signal::SIGHUP), Some(file)) => self.reload_rules(file),
            (Ok(Signal::SIGHUP), None) if !is_from_terminal(signal) => {
                log::warn!("{SIGHUP_IGNORED}");
            }
            (Ok(Signal::SIGUSR1), _) => self.state.service.write_stats(&self.attachment),
            (Ok(Signal::SIGUSR2), _) => self.start_handover(),
            _ if is_handover_signal(signal) && !self.state.handover.is_from_new_process(signal) => {
            }
            _ if is_handover_signal(signal) => {
                manager::set_main_process(signal.ssi_pid);
                return Some(End::HandedOver);
            }
            _ => return Some(End::Signal),
        }
        None
    }

    fn reload_rules(&mut self, file: &Path) {
        manager::notify_reloading();
        let reloaded = self.reload(file);
        let allowed = self.may_hand_over();
        let state = &mut self.state;
        let bundling = reloaded.as_ref().map(|it| it.description.as_str());
        state
            .service
            .set_reload_result(bundling.map_err(String::as_str));
        let Ok(ReloadResult { rules, changes, .. }) = reloaded else {
            return;
        };
        changes.iter().for_each(|change| state.on_change(change));
        state.replace_rules(rules);
        state.warn(&self.attachment, &self.targets);
        let requests = self.attachment.requests();
        let holdbacks = state.rules.holdbacks();
        let restarted = state.handover.restart(allowed, requests, holdbacks);
        restarted.unwrap_or_else(|error| log_failed_handover(&error));
        if state.rules.holdbacks().is_unobserved() && !state.handover.is_in_progress() {
            log::info!("`holdback` added: handing over to a process that compares connections");
            self.start_handover();
        }
    }

    fn start_handover(&mut self) {
        let allowed = self.may_hand_over();
        let DaemonState {
            handover, rules, ..
        } = &mut self.state;
        let requests = self.attachment.requests();
        let started = allowed.and_then(|()| handover.start(requests, rules.holdbacks()));
        started.unwrap_or_else(|error| log_failed_handover(&error));
    }

    /// # Errors
    /// Why a new process could not take over.
    fn may_hand_over(&self) -> Result<()> {
        self.args.may_hand_over()?;
        match self.namespaces.named.iter().find(|it| it.is_process_gone()) {
            None => Ok(()),
            Some(name) => bail!(
                "the process of the {name} has exited, so that a new process could not enter it; restart \
                 pillion without it"
            ),
        }
    }

    /// Detaches the programs, logs the totals, and completes or stops a hand-over.
    pub(super) fn stop(mut self, end: End, signals: &SignalFd) -> Result<()> {
        let handover = &mut self.state.handover;
        if end != End::HandedOver {
            handover.stop();
            manager::notify_stopping();
        }
        log::debug!("waiting for bundles in flight, then detaching");
        self.attachment.finish();
        let pending = pending_signals(signals)?;
        let is_handed_over = end == End::HandedOver && !pending.stop;
        if !is_handed_over {
            handover.stop();
        } else if pending.reload && self.args.config.is_some() {
            handover.forward_reload();
        }
        let totals = self.attachment.totals()?;
        log_totals(&totals);
        match is_handed_over {
            true => log::info!("hand-over complete: the new process is ready"),
            // After a hand-over, the file of --stats belongs to the new process.
            false => self.state.service.finish(&self.attachment)?,
        }
        Ok(())
    }
}

impl Args {
    /// Checks that a new process can read all that this one has read.
    fn may_hand_over(&self) -> Result<()> {
        if process::id() == 1 {
            bail!("pillion is the first process of this container; start another container");
        }
        if self.reads_standard_input() {
            bail!("rules from standard input cannot be read again");
        }
        Ok(())
    }
}

/// Signals that arrived during the hand-over.
#[derive(Debug, Default)]
struct PendingSignals {
    /// Stop both processes.
    stop: bool,
    /// Reload the rules.
    reload: bool,
}

/// Reads all pending signals.
fn pending_signals(signals: &SignalFd) -> Result<PendingSignals> {
    let mut pending = PendingSignals::default();
    let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    while let Ok(1..) = poll(&mut fds, Some(Duration::ZERO)) {
        let Some(signal) = read_signal(signals)? else {
            continue;
        };
        match signal.ssi_signo.cast_signed() {
            libc::SIGINT | libc::SIGTERM => pending.stop |= !is_handover_signal(&signal),
            libc::SIGHUP => pending.reload = true,
            _ => {}
        }
    }
    Ok(pending)
}

/// Interval of checks whether other tcx programs run first.
const ORDER_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Note about the first holdback after a reload whose hand-over failed.
const HOLDBACK_UNOBSERVED: &str = "`holdback` was added: hand over (SIGUSR2) or restart pillion to \
                                   apply it (all connections are bundled)";

/// State of the daemon that the event loop updates: output, hand-over and rules.
pub struct DaemonState {
    pub service: Service,
    pub handover: Handover,
    rules: Rules,
    /// Warnings about this process, which last as long as it runs.
    warnings: Vec<String>,
    /// Notes on programs that run first, at the last check.
    preceded: Vec<String>,
    order_checked_at: Instant,
}

impl DaemonState {
    /// `warnings` last as long as pillion runs.
    pub fn new(service: Service, rules: Rules, warnings: impl IntoIterator<Item = String>) -> Self {
        Self {
            service,
            handover: Handover::default(),
            rules,
            warnings: warnings
                .into_iter()
                .inspect(|warning| log::warn!("{warning}"))
                .collect(),
            preceded: Vec::new(),
            order_checked_at: Instant::now(),
        }
    }

    /// Replaces the rules after a reload.
    pub fn replace_rules(&mut self, rules: Rules) {
        self.rules.replace(rules);
    }

    /// Logs new warnings about the rules and about programs that run first, and stores all for
    /// `status`.
    pub fn warn(&mut self, attachment: &Attachment, targets: &AttachTargets) {
        let warnings = self.rules.warn(targets);
        let mut conditions = Vec::new();
        conditions.extend((!warnings.is_empty()).then_some(Condition::UnmatchedRules));
        let all = self.warnings.iter().chain(warnings);
        let mut notes: Vec<_> = all.cloned().collect();
        if self.handover.is_in_progress() {
            // The new process's programs run first.
            conditions.push(Condition::Handover);
        } else if self.order_checked_at.elapsed() >= ORDER_CHECK_INTERVAL {
            self.order_checked_at = Instant::now();
            let preceded = attachment.preceded().into_iter().map(describe_preceded);
            let preceded: Vec<_> = preceded.collect();
            let is_new = |it: &&String| !self.preceded.contains(it);
            preceded
                .iter()
                .filter(is_new)
                .for_each(|it| log::info!("{it}"));
            self.preceded = preceded;
        }
        conditions.extend((!self.preceded.is_empty()).then_some(Condition::Preceded));
        let mut comparisons = self.rules.holdbacks().comparisons();
        let has_withdrawn = comparisons.any(RuleComparison::is_withdrawn);
        conditions.extend(has_withdrawn.then_some(Condition::Withdrawn));
        notes.extend_from_slice(&self.preceded);
        if self.rules.holdbacks().is_unobserved() && !self.handover.is_in_progress() {
            notes.push(HOLDBACK_UNOBSERVED.to_owned());
        }
        self.service.set_notes(notes, conditions);
    }
}

/// Describes a device at which another program runs first, and the program's id.
fn describe_preceded((device, program): (&Device, u32)) -> String {
    format!("{device}: program {program} runs before pillion (`bpftool prog show id {program}`)")
}

/// Logs why this process continues.
pub fn log_failed_handover(why: &anyhow::Error) {
    log::error!("hand-over failed: {}", one_line(why));
}

impl EventHandler for DaemonState {
    fn on_change(&mut self, change: &Change) {
        self.service.on_change(change);
    }

    fn on_tick(&mut self, attachment: &mut Attachment, targets: &AttachTargets) {
        let failure = self.rules.update(attachment, targets);
        self.service.set_rules_failure(failure);
        let holdbacks = self.rules.holdbacks().comparisons().cloned();
        self.service.set_holdbacks(holdbacks.collect());
        self.warn(attachment, targets);
        self.service.on_tick(attachment, targets);
        if let Err(error) = self.handover.check() {
            log_failed_handover(&error);
            // The new process may have reviewed connections by its own rules.
            if let Err(error) = attachment.review_changed() {
                log::warn!("{error}");
            }
        }
    }
}

// Reload of the rules file.

/// Result of a reload.
struct ReloadResult {
    /// The selected connections.
    description: String,
    rules: Rules,
    /// Changes of other network namespaces.
    changes: Vec<Change>,
}

impl Daemon<'_> {
    /// Reloads the file, and logs the result. Applies, in this order, the rules to new connections, the
    /// network namespaces, and the rules to existing connections. After the first, failures are logged
    /// and retried.
    ///
    /// # Errors
    /// The logged mistakes or failure before any change; the old rules stay in force.
    fn reload(&mut self, file: &Path) -> Result<ReloadResult, String> {
        let name = display_name(file);
        let fail = |error: anyhow::Error| {
            let line = format!(
                "{name} not reloaded: the old rules stay in force: {}",
                one_line(&error)
            );
            log::error!("{line}");
            line
        };
        let read = self.args.reload_file(file).map_err(|BadInput(mistakes)| {
            logger::mistakes(&mistakes);
            let line = format_not_reloaded(&name);
            log::error!("{line}");
            format!("{mistakes}\n{line}")
        })?;
        let namespaces = self.args.namespaces(read.namespaces, &read.policy);
        let new_targets = match namespaces == self.namespaces {
            true => None,
            false => Some(self.resolve_targets(&namespaces).map_err(fail)?),
        };
        let targets = new_targets.as_ref().unwrap_or(&self.targets);
        let policy = read.policy.with_targets(targets);
        let (count, description) = (policy.rules.len(), self.args.description(&policy));
        let rules = Rules::new(policy).and_then(|mut rules| {
            rules.continue_from(self.state.rules.holdbacks());
            rules.apply(&self.attachment)?;
            Ok(rules)
        });
        let rules = rules.map_err(|error| fail(error.into()))?;
        let has_new_targets = new_targets.is_some();
        let changed = match new_targets {
            Some(new_targets) => {
                self.namespaces = namespaces;
                self.attachment.change(&mut self.targets, new_targets)
            }
            None => Ok(Vec::new()),
        };
        let reviewed = changed.and_then(|it| Ok((it, self.attachment.review()?)));
        let counted_rules = counted(count as u64, "rule");
        let changes = match reviewed {
            Ok((changes, Reviewed { covered, refused })) => {
                let covered = counted(covered as u64, "connection");
                let refused = match refused {
                    0 => String::new(),
                    _ => format!(", {refused} without a slot (--max-connections)"),
                };
                log::info!("reloaded {name}: {counted_rules}; {covered} covered{refused}");
                changes
            }
            Err(error) => {
                let changes = self.attachment.review_until_done(&mut self.targets);
                log::warn!(
                    "reloaded {name}: {counted_rules} for new connections; some existing ones keep \
                     the old rules: {error}; retrying"
                );
                changes
            }
        };
        if has_new_targets {
            log::info!("now bundling only in {}", describe(&self.namespaces));
        }
        if let Some(warning) = restart_warning(&self.output, &self.args.output(read.output)) {
            log::warn!("{warning}");
        }
        Ok(ReloadResult {
            description,
            rules,
            changes,
        })
    }

    /// Finds the devices of other network namespaces.
    fn resolve_targets(&self, namespaces: &Namespaces) -> Result<AttachTargets> {
        if !self.may_enter {
            bail!(
                "other network namespaces need a restart, because the capabilities to enter them were \
                 dropped"
            );
        }
        if self.args.bundling.hook() == Hook::Clsact {
            bail!("other network namespaces need a restart, because this kernel lacks tcx");
        }
        Ok(self.args.bundling.targets(namespaces)?)
    }
}

impl Args {
    /// Reads a regular file again. Others are refused, because a pipe could block the daemon.
    pub(super) fn reload_file(&self, file: &Path) -> Result<File, BadInput> {
        if self.reads_standard_input() || fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            let name = display_name(file);
            let why = format!("{name}: only a regular file can be reloaded; give one to --config");
            return Err(BadInput(why));
        }
        self.read(file)
    }
}

/// Formats the error after mistakes in the file.
pub(super) fn format_not_reloaded(name: &str) -> String {
    format!("{name} not reloaded: the old rules stay in force; fix the file and reload")
}

/// Formats a warning about changed keys that need a restart, if any.
pub(super) fn restart_warning(old: &OutputConfig, new: &OutputConfig) -> Option<String> {
    let keys: Vec<_> = old
        .changed_keys(new)
        .map(|key| format!("`{key}`"))
        .collect();
    let (it, value) = match keys.len() {
        0 => return None,
        1 => ("it", "value"),
        _ => ("them", "values"),
    };
    Some(format!(
        "{} changed: restart pillion to apply {it} (still using the old {value})",
        keys.join(", ")
    ))
}

/// Describes network namespaces.
fn describe(namespaces: &Namespaces) -> String {
    let own = "pillion's own network namespace".to_owned();
    let own = namespaces.named.is_empty().then_some(own);
    let named = namespaces.named.iter().map(ToString::to_string);
    let containers = namespaces.container_selectors.iter();
    let containers = containers.map(|it| format!("containers {it}"));
    let all: Vec<_> = own.into_iter().chain(named).chain(containers).collect();
    all.join(", ")
}
