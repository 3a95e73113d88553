use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use pillion_bpf::host::clock;
use pillion_bpf::{ActiveConnections, Attachment, Change, Totals, TotalsReader};
use pillion_cli::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::status_socket::is_trial_running;
use crate::trial::RuleComparison;

/// The command of a process with a health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    #[default]
    Attach,
    Trial,
}

/// Health of a running `pillion attach` or `pillion trial`, as in `status --json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Health {
    pub pid: u32,
    /// The command; older versions are all `attach`.
    #[serde(default)]
    pub command: Role,
    pub version: String,
    /// False while it waits, or loads its programs.
    pub ready: bool,
    /// Start time, in seconds since 1970.
    pub started_at_s: u64,
    /// Description of the covered connections.
    pub bundling: String,
    /// Attached devices.
    pub devices: Vec<String>,
    /// Cookies of the other network namespaces that it serves.
    #[serde(default)]
    pub namespaces: Vec<u64>,
    /// Current conditions.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// Devices that were attached before, for metrics.
    #[serde(skip)]
    pub detached_devices: Vec<String>,
    /// Current failures, which are retried.
    pub failures: Vec<String>,
    /// Rules and objects that are not covered now, with the reasons.
    pub notes: Vec<String>,
    pub last_error: Option<LastError>,
    /// Rules with a holdback.
    #[serde(default)]
    pub holdbacks: Vec<RuleComparison>,
    /// Connections covered now.
    pub active_connections: u64,
    pub totals: Value,
}

/// The last failure, which may be resolved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LastError {
    /// In seconds since 1970.
    pub at_s: u64,
    pub text: String,
}

/// Maximum number of detached devices that metrics show. Container hosts create devices without end.
const MAX_DETACHED: usize = 64;

/// Time without an update after which a process is stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Updates in a minute, usually 60, below which a process is stalled. Then its governor decides late,
/// too, and the kernel bundles at most one eligible segment in eight.
const MIN_UPDATES: u32 = 30;

/// Health for the threads that serve it, at most a second old.
#[derive(Debug)]
pub struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    health: Health,
    started: Moment,
    failed: Moment,
    /// The last update, once there was one.
    updated: Option<Instant>,
    /// Start of the current minute, and the updates in it.
    minute_start: Instant,
    minute_updates: u32,
    /// True if the last minute had fewer than [`MIN_UPDATES`].
    has_few_updates: bool,
    readings: Option<TotalsReader>,
}

/// Returns the host's time in seconds since 1970.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

/// A point in time that follows changes of the host's clock, which can be years at boot.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// In seconds since 1970, by the host's clock at that time.
    at: u64,
    since_start: Duration,
}

impl Moment {
    fn now() -> Self {
        Self {
            at: now(),
            since_start: clock::since_start(),
        }
    }

    /// Returns the seconds since 1970, by the host's clock now.
    fn as_of(&mut self, now: Self) -> u64 {
        let passed = now.since_start.saturating_sub(self.since_start);
        let at = now.at.saturating_sub(passed.as_secs());
        // Rounding must not change the value unless the clock was set.
        if at.abs_diff(self.at) > 1 {
            self.at = at;
        }
        self.at
    }
}

impl Shared {
    /// `conditions`: those until the first update.
    pub fn new(command: Role, bundling: String, conditions: Vec<Condition>) -> Self {
        let now = Moment::now();
        let health = Health {
            pid: std::process::id(),
            command,
            version: VERSION.to_owned(),
            ready: false,
            started_at_s: now.at,
            bundling,
            devices: Vec::new(),
            namespaces: Vec::new(),
            conditions,
            detached_devices: Vec::new(),
            failures: Vec::new(),
            notes: Vec::new(),
            last_error: None,
            holdbacks: Vec::new(),
            active_connections: 0,
            totals: Value::Null,
        };
        Self(Mutex::new(State {
            health,
            started: now,
            failed: now,
            updated: None,
            minute_start: Instant::now(),
            minute_updates: 0,
            has_few_updates: false,
            readings: None,
        }))
    }

    /// Returns the current health, connections and totals; both are `None` before it is ready.
    pub fn read(&self) -> Result<(Health, Option<(ActiveConnections, Totals)>)> {
        let has_trial = self.is_disturbed_by_trial();
        let mut state = self.lock();
        let mut health = state.health.clone();
        let is_late = |updated: Instant| updated.elapsed() > STALL_TIMEOUT;
        if state.has_few_updates || state.updated.is_some_and(is_late) {
            health.conditions.push(Condition::Stalled);
        }
        if has_trial {
            health.conditions.push(Condition::Trial);
        }
        let now = Moment::now();
        health.started_at_s = state.started.as_of(now);
        if let Some(error) = &mut health.last_error {
            error.at_s = state.failed.as_of(now);
        }
        let Some(readings) = &state.readings else {
            return Ok((health, None));
        };
        let connections = readings.connections()?;
        health.active_connections = connections.count;
        let totals = readings.totals()?;
        health.totals = serde_json::to_value(&totals)?;
        Ok((health, Some((connections, totals))))
    }

    /// Returns true if a trial runs next to this service. A trial does not look for trials: it would
    /// find itself, and its answer would look again, without end.
    fn is_disturbed_by_trial(&self) -> bool {
        let command = self.lock().health.command;
        command == Role::Attach && is_trial_running()
    }

    /// Describes the covered connections and the devices.
    pub fn description(&self) -> String {
        let State { health, .. } = &*self.lock();
        match &health.devices[..] {
            [] => format!("bundling {} when a device is up", health.bundling),
            devices => format!("bundling {} on {}", health.bundling, devices.join(", ")),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
    }

    pub fn set_bundling(&self, description: String) {
        self.change(|state| state.health.bundling = description);
    }

    pub fn set_ready(&self, readings: TotalsReader) {
        self.change(|state| {
            state.health.ready = true;
            state.readings = Some(readings);
        });
    }

    /// Stores the attached devices and the current failures and conditions.
    pub fn update(
        &self,
        attachment: &Attachment,
        failures: Vec<String>,
        conditions: Vec<Condition>,
    ) {
        let devices: Vec<_> = attachment.devices().map(ToString::to_string).collect();
        let namespaces = attachment.other_namespaces().collect();
        self.change(|state| {
            state.count_update(Instant::now());
            state.health.update(devices, failures);
            (state.health.namespaces, state.health.conditions) = (namespaces, conditions);
        });
    }

    /// Stores the error of a failed step.
    pub fn record(&self, change: &Change) {
        if let Change::Failed(error) = change {
            self.record_failure(&error.to_string());
        }
    }

    pub fn set_holdbacks(&self, holdbacks: Vec<RuleComparison>) {
        self.change(|state| state.health.holdbacks = holdbacks);
    }

    pub fn set_notes(&self, notes: Vec<String>) {
        self.change(|state| state.health.notes = notes);
    }

    /// Stores a failure, whose text may have several lines, as the last error.
    pub fn record_failure(&self, text: &str) {
        let now = Moment::now();
        let error = LastError {
            at_s: now.at,
            text: join_lines(text),
        };
        self.change(|state| {
            state.failed = now;
            state.health.last_error = Some(error);
        });
    }
}

impl State {
    fn count_update(&mut self, now: Instant) {
        // The first minute starts with the first update.
        if self.updated.replace(now).is_none() {
            self.minute_start = now;
        }
        self.minute_updates += 1;
        if now.duration_since(self.minute_start) >= Duration::from_secs(60) {
            self.has_few_updates = self.minute_updates < MIN_UPDATES;
            (self.minute_start, self.minute_updates) = (now, 0);
        }
    }
}

impl Health {
    fn update(&mut self, devices: Vec<String>, failures: Vec<String>) {
        let gone = self.devices.drain(..).filter(|it| !devices.contains(it));
        self.detached_devices.extend(gone);
        self.detached_devices.retain(|it| !devices.contains(it));
        let surplus = self.detached_devices.len().saturating_sub(MAX_DETACHED);
        self.detached_devices.drain(..surplus);
        (self.devices, self.failures) = (devices, failures);
    }
}

/// Joins lines by semicolons.
fn join_lines(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::Uid;

    use super::super::status_socket;
    use super::*;

    #[test]
    fn last_error_is_one_line() {
        for (text, line) in [
            ("write --stats", "write --stats"),
            (
                "rules:1:1: a\nrules:2:1: b\nrules not reloaded",
                "rules:1:1: a; rules:2:1: b; rules not reloaded",
            ),
        ] {
            let shared = Shared::new(Role::Attach, String::new(), Vec::new());
            shared.record_failure(text);
            let (health, _) = shared.read().unwrap();
            assert_eq!(health.last_error.unwrap().text, line);
        }
    }

    #[test]
    fn trial_does_not_ask_itself_for_its_status() {
        if !Uid::effective().is_root() {
            return;
        }
        // Other tests read a status as well, and would ask this one's socket.
        let alone = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let listener = status_socket::listen(Role::Trial).unwrap();
            listener.set_nonblocking(true).unwrap();
            for (role, asks) in [(Role::Trial, false), (Role::Attach, true)] {
                let shared = Shared::new(role, String::new(), Vec::new());
                let (health, _) = shared.read().unwrap();
                assert_eq!(health.conditions.contains(&Condition::Trial), asks);
                assert_eq!(listener.accept().is_ok(), asks, "{role:?}");
            }
        };
        thread::scope(|scope| scope.spawn(alone).join().unwrap());
    }

    #[test]
    fn detached_device_is_listed_until_it_is_attached_again() {
        let shared = Shared::new(Role::Attach, String::new(), Vec::new());
        let update = |devices: &[&str]| {
            let devices = devices.iter().map(ToString::to_string).collect();
            shared.change(|State { health, .. }| health.update(devices, Vec::new()));
            shared.read().unwrap().0.detached_devices
        };
        assert!(update(&["a", "b"]).is_empty());
        assert_eq!(update(&["b"]), ["a"]);
        assert!(update(&["a", "b"]).is_empty());
        for number in 0..2 * MAX_DETACHED {
            update(&[&number.to_string()]);
        }
        assert_eq!(update(&[]).len(), MAX_DETACHED);
    }

    #[test]
    fn process_without_updates_or_with_few_is_stalled() {
        let shared = Shared::new(Role::Attach, String::new(), Vec::new());
        let conditions_at = |now| {
            shared.change(|state| state.count_update(now));
            shared.read().unwrap().0.conditions
        };
        let mut now = Instant::now();
        for (interval, expected) in [(1, vec![]), (3, vec![Condition::Stalled]), (1, vec![])] {
            let mut conditions = Vec::new();
            for _ in 0..120 / interval {
                now += Duration::from_secs(interval);
                conditions = conditions_at(now);
            }
            assert_eq!(conditions, expected, "every {interval} s");
        }
        let before = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        assert_eq!(conditions_at(before(20).unwrap()), []);
        assert_eq!(conditions_at(before(31).unwrap()), [Condition::Stalled]);
    }

    fn moment(at: u64, since_start: u64) -> Moment {
        Moment {
            at,
            since_start: Duration::from_millis(since_start),
        }
    }

    #[test]
    fn moment_follows_changes_of_the_clock() {
        let mut started = moment(1_000, 5_500);
        assert_eq!(started.as_of(moment(1_010, 15_500)), 1_000);
        for rounded in [moment(1_009, 15_500), moment(1_010, 14_600)] {
            assert_eq!(started.as_of(rounded), 1_000);
        }
        let set_at_boot = moment(1_800_000_000, 65_500);
        assert_eq!(started.as_of(set_at_boot), 1_799_999_940);
        for rounded in [moment(1_800_000_009, 75_400), moment(1_800_000_010, 74_600)] {
            assert_eq!(started.as_of(rounded), 1_799_999_940);
        }
        assert_eq!(started.as_of(moment(500, 65_500)), 440);
    }
}
