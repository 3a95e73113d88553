//! Output of a running `pillion attach`: `status`, metrics, and totals in the log.

pub mod condition;
mod health;
mod http;
pub mod manager;
mod metrics;
mod open_metrics;
pub mod status_socket;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use pillion_bpf::{AttachTargets, Attachment, Change};
use pillion_cli::settings::OutputConfig;

use crate::event_loop::{EventHandler, log_change};
use crate::handover::{is_program_replaced, old_process};
use crate::stats::{Stats, summary};
use crate::trial::RuleComparison;
use condition::{Condition, Monitor};
pub use health::Shared;
use metrics::Metrics;
use status_socket::Listener;

pub use health::{Health, Role, now};
pub use metrics::is_in_use;

const NOT_RELOADED: &str = "the rules file was not reloaded; the old rules stay in force";

/// Output of a running `pillion attach`.
pub struct Service {
    shared: Arc<Shared>,
    stats: Stats,
    /// Why the file of `--stats` cannot be written, if so.
    stats_failure: Option<String>,
    /// Why the rules do not follow cgroups, if so.
    rules_failure: Option<String>,
    /// True if the last reload failed, so that the file differs from the rules in force.
    is_out_of_date: bool,
    monitor: Monitor,
    /// Conditions that other parts report.
    other_conditions: Vec<Condition>,
    /// Last status sent to the service manager, once ready.
    sent_status: Option<String>,
    totals_interval: Option<Duration>,
    next_totals: Instant,
    metrics: Option<Metrics>,
}

impl Service {
    /// Starts to serve `status` and metrics; the programs are ready later.
    pub fn start(output: &OutputConfig, stats: Stats, pending: PendingService) -> Result<Self> {
        let is_out_of_date = pending.is_out_of_date.get();
        let shared = pending.serve();
        let metrics = output.metrics.as_ref();
        let metrics = metrics.map(|endpoint| Metrics::serve(endpoint, Arc::clone(&shared)));
        Ok(Self {
            shared,
            stats,
            stats_failure: None,
            rules_failure: None,
            is_out_of_date,
            monitor: Monitor::new(Instant::now()),
            other_conditions: Vec::new(),
            sent_status: None,
            totals_interval: output.log_totals,
            next_totals: Instant::now() + output.log_totals.unwrap_or_default(),
            metrics: metrics.transpose()?,
        })
    }

    /// Reports that the programs are attached; `bundling` describes the covered connections.
    pub fn set_ready(
        &mut self,
        bundling: String,
        attachment: &mut Attachment,
        targets: &AttachTargets,
    ) -> Result<()> {
        self.shared.set_bundling(bundling);
        self.shared.set_notes(Vec::new());
        self.shared.set_ready(attachment.totals_reader()?);
        self.on_tick(attachment, targets);
        self.metrics.as_mut().map_or(Ok(()), Metrics::publish)?;
        self.notify_ready();
        Ok(())
    }

    fn notify_ready(&mut self) {
        let status = self.shared.description();
        manager::notify_ready(&status);
        self.sent_status = Some(status);
    }

    /// Writes the file of `--stats` now.
    pub fn write_stats(&mut self, attachment: &Attachment) {
        self.stats.write_now(attachment);
    }

    /// Stores the result of a reload: the new description, or the error.
    pub fn set_reload_result(&mut self, bundling: Result<&str, &str>) {
        self.is_out_of_date = bundling.is_err();
        match bundling {
            Ok(bundling) => self.shared.set_bundling(bundling.to_owned()),
            Err(why) => self.shared.record_failure(why),
        }
        self.notify_ready();
    }

    /// Stores why the rules do not follow cgroups now, if so.
    pub fn set_rules_failure(&mut self, why: Option<&str>) {
        store_failure(&mut self.rules_failure, why, &self.shared);
    }

    /// Stores the comparisons of rules with a holdback.
    pub fn set_holdbacks(&mut self, holdbacks: Vec<RuleComparison>) {
        self.shared.set_holdbacks(holdbacks);
    }

    /// Stores the notes on rules and objects that are not covered now, and the conditions that the
    /// service itself does not notice.
    pub fn set_notes(&mut self, notes: Vec<String>, conditions: Vec<Condition>) {
        self.shared.set_notes(notes);
        self.other_conditions = conditions;
    }

    /// Returns the conditions that `read` does not add.
    fn conditions(&mut self, attachment: &Attachment, targets: &AttachTargets) -> Vec<Condition> {
        let mut current = self.other_conditions.clone();
        if let Ok(totals) = attachment.totals() {
            let is_full = attachment.is_full();
            current.extend(self.monitor.update(Instant::now(), &totals, is_full));
        }
        if targets.is_bypassed() {
            // Segments that do not reach pillion look as if they left by another device.
            current.retain(|it| *it != Condition::Elsewhere);
            current.push(Condition::Bypassed);
        }
        current.extend(is_program_replaced().then_some(Condition::StaleBinary));
        current
    }

    /// Writes the final totals.
    pub fn finish(&self, attachment: &Attachment) -> Result<()> {
        self.stats.write(&attachment.totals()?)
    }
}

/// Replaces the current failure, and stores a new one as the last error.
fn store_failure(failure: &mut Option<String>, why: Option<&str>, shared: &Shared) {
    if failure.as_deref() != why {
        *failure = why.map(str::to_owned);
        failure.iter().for_each(|it| shared.record_failure(it));
    }
}

impl EventHandler for Service {
    /// Logs a change and stores its error.
    fn on_change(&mut self, change: &Change) {
        log_change(change);
        self.shared.record(change);
    }

    fn on_tick(&mut self, attachment: &mut Attachment, targets: &AttachTargets) {
        self.stats.write_if_due(attachment);
        store_failure(&mut self.stats_failure, self.stats.failure(), &self.shared);
        let failures = targets.failing().map(str::to_owned);
        let failures = failures.chain(self.rules_failure.clone());
        let failures = failures.chain(self.stats_failure.clone());
        let failures = failures.chain(self.metrics.as_ref().and_then(Metrics::failure));
        let not_reloaded = self.is_out_of_date.then(|| NOT_RELOADED.to_owned());
        let failures = failures.chain(not_reloaded);
        let failures = failures.collect();
        let conditions = self.conditions(attachment, targets);
        self.shared.update(attachment, failures, conditions);
        manager::notify_watchdog();
        let status = self.shared.description();
        if self.sent_status.as_ref().is_some_and(|it| *it != status) {
            manager::set_status(&status);
            self.sent_status = Some(status);
        }
        if let Some(interval) = self.totals_interval
            && Instant::now() >= self.next_totals
        {
            self.next_totals += interval;
            if let Ok(totals) = attachment.totals() {
                log::info!("so far: {}", summary(&totals));
            }
        }
    }
}

// `pillion trial`, which `status` shows as well.

/// Serves `status` for a trial of these connections.
pub fn serve_trial(connections: String, attachment: &Attachment) -> Result<Arc<Shared>> {
    let shared = Arc::new(Shared::new(Role::Trial, connections, Vec::new()));
    shared.set_ready(attachment.totals_reader()?);
    match Listener::start(Role::Trial) {
        Ok(listener) => listener.serve(Arc::clone(&shared)),
        Err(error) => log::warn!("`pillion status` cannot find this process: {error}"),
    }
    Ok(shared)
}

// The service before its programs are ready.

/// A service that waits for its devices. It is still single-threaded, because the start of the
/// helper processes requires that.
pub struct PendingService {
    shared: Arc<Shared>,
    listener: Option<Listener>,
    /// True if the last reload failed, so that the file differs from the rules in force.
    is_out_of_date: Cell<bool>,
}

impl PendingService {
    /// Opens the status socket; `bundling` describes the connections that will be covered.
    pub fn start(bundling: String) -> Self {
        let listener = Listener::start(Role::Attach);
        let handover = old_process().map(|_| Condition::Handover).into_iter();
        if let Err(error) = &listener {
            log::warn!("`pillion status` cannot find this process: {error}");
        }
        Self {
            shared: Arc::new(Shared::new(Role::Attach, bundling, handover.collect())),
            listener: listener.ok(),
            is_out_of_date: Cell::new(false),
        }
    }

    /// Stores whether the last reload succeeded.
    pub fn set_reload_result(&self, succeeded: bool) {
        self.is_out_of_date.set(!succeeded);
    }

    /// Reports why it waits.
    pub fn set_waiting(&self, why: &str) {
        self.shared.set_notes(vec![format!("waiting: {why}")]);
        manager::notify_waiting(why);
    }

    /// Returns the descriptor that becomes readable on a status request.
    pub fn request_fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Answers one status request.
    pub fn answer(&self) {
        if let Some(listener) = &self.listener {
            listener.answer(&self.shared);
        }
    }

    /// Starts a thread that answers status requests.
    fn serve(self) -> Arc<Shared> {
        if let Some(listener) = self.listener {
            listener.serve(Arc::clone(&self.shared));
        }
        self.shared
    }
}
