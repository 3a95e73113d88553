//! The start of `pillion attach`: waits for devices and namespaces, and attaches the programs.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use caps::CapsHashSet;
use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::sys::signalfd::{SignalFd, siginfo};
use pillion_bpf::host::interruption::poll;
use pillion_bpf::{
    AttachTargets, Attachment, Error, Namespaces, Observing, Policy, Programs, cgroup2_mount,
};
use pillion_cli::exit::one_line;
use pillion_cli::log as logger;
use pillion_cli::settings::{BadInput, Endpoint, OutputConfig};
use pillion_stats::report::number::counted;

use super::daemon::{
    Daemon, DaemonState, SIGHUP_IGNORED, format_not_reloaded, log_failed_handover, restart_warning,
};
use super::{Args, AttachConfig, display_name, is_from_terminal, names};
use crate::args::start_cleanup_helper;
use crate::event_loop::EventHandler;
use crate::handover::{check_old_process, inherited, inherited_holdbacks};
use crate::process::{
    FOR_DEVICES, FOR_FILES, FOR_HANDOVER, FOR_NAMESPACES, drop_capabilities, read_signal,
};
use crate::rules::{Rules, view_warning};
use crate::service::{PendingService, Service, manager};
use crate::stats::Stats;

/// Maximum time to attach to devices before it is ready; the others follow later. A service manager and
/// an old process wait about a minute.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);

impl Args {
    /// Attaches the programs, and drops unneeded capabilities.
    pub(super) fn start(
        &self,
        config: AttachConfig,
        mut targets: AttachTargets,
        stats: Stats,
        pending: PendingService,
    ) -> Result<Daemon<'_>> {
        let AttachConfig {
            policy,
            namespaces,
            output,
        } = config;
        let description = self.description(&policy);
        let has_holdback = policy.has_holdback();
        let (max_connections, memory_warning) = self.bundling.max_connections(has_holdback)?;
        // Programs without a holdback observe no connections, so they continue no comparison.
        let old_holdbacks = has_holdback.then(inherited_holdbacks).unwrap_or_default();
        let key = old_holdbacks.key().unwrap_or_else(rand::random);
        let mut policy = Policy {
            max_connections,
            governing: true,
            observing: has_holdback.then(|| Observing::by_holdback(key)),
            ..policy
        }
        .with_targets(&targets);
        // Before the programs are attached, so that later changes of cgroups show as a difference.
        let mut rules = Rules::new(policy.clone())?;
        for rule in rules.continue_from(&old_holdbacks) {
            policy.withdraw(rule);
        }
        log::debug!("loading the eBPF programs");
        let programs = self.load(&policy)?;
        let helper = start_cleanup_helper(&programs, &namespaces)?;
        let service = Service::start(&output, stats, pending)?;
        // Its scope keeps network namespaces alive.
        drop(policy);
        log::debug!("attaching to devices and the cgroup");
        let (mut attachment, changes) =
            Attachment::start_everywhere(programs, &mut targets, Some(ATTACH_TIMEOUT))?;
        let mut warnings = rules.copy_delay_warnings(&attachment);
        warnings.extend(memory_warning.into_iter().chain(view_warning()));
        let mut state = DaemonState::new(service, rules, warnings);
        let service = &mut state.service;
        service.set_ready(description.clone(), &mut attachment, &targets)?;
        log::info!(
            "bundling {description} on {}; end with Ctrl-C",
            names(attachment.devices())
        );
        for change in changes {
            state.on_change(&change);
        }
        state.warn(&attachment, &targets);
        let may_enter = !namespaces.is_own_only();
        let mut needed = CapsHashSet::from(FOR_DEVICES);
        needed.extend(FOR_NAMESPACES.iter().filter(|_| may_enter));
        let has_files = self.has_files(&output, &namespaces);
        needed.extend(FOR_FILES.iter().filter(|_| has_files));
        drop_capabilities(&needed, &FOR_HANDOVER);
        Ok(Daemon {
            state,
            attachment,
            helper,
            targets,
            namespaces,
            output,
            may_enter,
            args: self,
        })
    }

    /// Loads the programs, with the requests of applications from the old process of a hand-over.
    fn load(&self, policy: &Policy) -> Result<Programs> {
        let programs = Programs::load_with_requests(policy, inherited())?;
        if inherited().is_some_and(|left| !programs.requests().has_same_layout(left)) {
            log::warn!("requests of applications are lost: this version stores them differently");
        }
        Ok(programs.with_hook(self.bundling.hook()))
    }

    /// Returns true if files of other users may be read or written later.
    fn has_files(&self, output: &OutputConfig, namespaces: &Namespaces) -> bool {
        self.config.is_some()
            || output.stats.is_some()
            || matches!(output.metrics, Some(Endpoint::Unix(_)))
            || !namespaces.container_selectors.is_empty()
    }
}

// Targets: devices and network namespaces, with --wait.

/// Interval of checks for the missing object.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Result of waiting.
pub enum WaitResult {
    Resolved(AttachTargets),
    Signal(siginfo),
}

impl Args {
    /// Finds the devices and network namespaces, and checks that the cgroup hierarchy is mounted.
    pub(super) fn resolve_targets(&self, namespaces: &Namespaces) -> Result<AttachTargets> {
        let targets = self.bundling.targets(namespaces)?;
        cgroup2_mount()?;
        Ok(targets)
    }

    /// Waits for a missing object, or for a signal. `logged` is the reason that was logged last.
    pub(super) fn wait(
        &self,
        namespaces: &Namespaces,
        pending: &PendingService,
        signals: &SignalFd,
        logged: &mut String,
    ) -> Result<WaitResult> {
        loop {
            let why = match self.resolve_targets(namespaces) {
                Err(error) if may_appear(&error) => one_line(&error),
                resolved => return resolved.map(WaitResult::Resolved),
            };
            if why != *logged {
                pending.set_waiting(&why);
                log::info!("waiting: {why}");
                *logged = why;
            }
            let requests = pending.request_fd().unwrap_or(signals.as_fd());
            let mut fds = [signals.as_fd(), requests].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
            poll(&mut fds, Some(CHECK_INTERVAL)).context("wait for a signal")?;
            let [has_signal, has_request] = fds.map(|fd| fd.any().unwrap_or(false));
            if has_request && pending.request_fd().is_some() {
                pending.answer();
            }
            manager::notify_watchdog();
            check_old_process()?;
            if has_signal && let Some(signal) = read_signal(signals)? {
                return Ok(WaitResult::Signal(signal));
            }
        }
    }
}

/// Returns true if the missing object may appear, as devices and network namespaces do at boot.
fn may_appear(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref(),
        Some(
            Error::UnknownDevice { .. }
                | Error::NoDevice
                | Error::UnknownNamespace { .. }
                // `ip netns` creates a file first, and mounts the namespace on it.
                | Error::NotANamespace { .. }
                | Error::NoCgroup2
        )
    )
}

// Signals while waiting.

impl Args {
    /// Finds the devices and network namespaces. With --wait, waits for them and reloads the file on
    /// SIGHUP; `None` if a signal stops it.
    pub(super) fn find_targets(
        &self,
        config: &mut AttachConfig,
        pending: &PendingService,
        signals: &SignalFd,
    ) -> Result<Option<AttachTargets>> {
        if !self.wait {
            return self.resolve_targets(&config.namespaces).map(Some);
        }
        let mut logged = String::new();
        loop {
            let signal = match self.wait(&config.namespaces, pending, signals, &mut logged)? {
                WaitResult::Resolved(targets) => return Ok(Some(targets)),
                WaitResult::Signal(signal) => signal,
            };
            let number = Signal::try_from(signal.ssi_signo.cast_signed());
            match (number, &self.config) {
                (Ok(Signal::SIGHUP), Some(file)) => {
                    manager::notify_reloading();
                    pending.set_reload_result(self.reload_while_waiting(file, config));
                    // `wait` then notifies the manager again, which ends the reload there.
                    logged.clear();
                }
                (Ok(Signal::SIGHUP), None) if !is_from_terminal(&signal) => {
                    log::warn!("{SIGHUP_IGNORED}");
                }
                (Ok(Signal::SIGUSR2), _) => log_failed_handover(&anyhow!(
                    "pillion still waits and covers nothing; restart it instead"
                )),
                (Ok(Signal::SIGUSR1) | Err(_), _) => {}
                (Ok(_), _) => {
                    manager::notify_stopping();
                    return Ok(None);
                }
            }
        }
    }

    /// Reloads the file; after a mistake the old rules stay in force. Returns true on success.
    fn reload_while_waiting(&self, file: &Path, config: &mut AttachConfig) -> bool {
        let name = display_name(file);
        let read = match self.reload_file(file) {
            Ok(read) => read,
            Err(BadInput(mistakes)) => {
                logger::mistakes(&mistakes);
                log::error!("{}", format_not_reloaded(&name));
                return false;
            }
        };
        config.namespaces = self.namespaces(read.namespaces, &read.policy);
        config.policy = read.policy;
        let rules = counted(config.policy.rules.len() as u64, "rule");
        log::info!("reloaded {name}: {rules}");
        if let Some(warning) = restart_warning(&config.output, &self.output(read.output)) {
            log::warn!("{warning}");
        }
        true
    }
}
