use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use pillion_bpf::host::clock;
use pillion_bpf::{Attachment, Change, Readings, Totals};
use pillion_cli::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a pillion at work is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Health {
    pub pid: u32,
    pub version: String,
    /// False while it waits, or its programs are loaded.
    #[serde(default = "at_work")]
    pub at_work: bool,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// What it bundles, in words.
    pub bundling: String,
    /// The devices that it is attached to.
    pub devices: Vec<String>,
    /// What fails at present, and is tried again.
    pub failing: Vec<String>,
    /// What it does not cover now, and why.
    #[serde(default)]
    pub notes: Vec<String>,
    pub last_error: Option<LastError>,
    /// Connections that are covered at this moment.
    pub connections: u64,
    pub totals: Value,
}

/// Earlier versions told of themselves when they were at work alone.
fn at_work() -> bool {
    true
}

/// What failed last, perhaps no more.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LastError {
    /// In seconds since 1970.
    pub at: u64,
    pub text: String,
}

/// What the threads that tell of a pillion's health know, as of the last second.
#[derive(Debug)]
pub struct Shared(Mutex<State>);

#[derive(Debug)]
struct State {
    health: Health,
    began: Moment,
    failed: Moment,
    readings: Option<Readings>,
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

/// When something was. The host's clock may be set meanwhile, at boot by years.
#[derive(Debug, Clone, Copy)]
struct Moment {
    /// In seconds since 1970, by the host's clock then.
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

    /// In seconds since 1970, by the host's clock now.
    fn as_of(&mut self, now: Self) -> u64 {
        let passed = now.since_start.saturating_sub(self.since_start);
        let at = now.at.saturating_sub(passed.as_secs());
        // It is told in whole seconds, and is to stay the same as long as the clock is not set.
        if at.abs_diff(self.at) > 1 {
            self.at = at;
        }
        self.at
    }
}

impl Shared {
    pub fn new(bundling: String) -> Self {
        let now = Moment::now();
        let health = Health {
            pid: std::process::id(),
            version: VERSION.to_owned(),
            at_work: false,
            since: now.at,
            bundling,
            devices: Vec::new(),
            failing: Vec::new(),
            notes: Vec::new(),
            last_error: None,
            connections: 0,
            totals: Value::Null,
        };
        Self(Mutex::new(State {
            health,
            began: now,
            failed: now,
            readings: None,
        }))
    }

    /// Its health as of now, and what it did so far; no totals before it has begun.
    pub fn read(&self) -> Result<(Health, Option<Totals>)> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut health = state.health.clone();
        let now = Moment::now();
        health.since = state.began.as_of(now);
        if let Some(error) = &mut health.last_error {
            error.at = state.failed.as_of(now);
        }
        let Some(readings) = &state.readings else {
            return Ok((health, None));
        };
        health.connections = readings.connections()?;
        let totals = readings.totals()?;
        health.totals = serde_json::to_value(&totals)?;
        Ok((health, Some(totals)))
    }

    /// What is bundled, and where.
    pub fn words(&self) -> String {
        let State { health, .. } = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &health.devices[..] {
            [] => format!("bundling {}, once a device is up", health.bundling),
            devices => format!("bundling {} on {}", health.bundling, devices.join(", ")),
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn bundles(&self, what: String) {
        self.change(|state| state.health.bundling = what);
    }

    pub fn has_begun(&self, readings: Readings) {
        self.change(|state| {
            state.health.at_work = true;
            state.readings = Some(readings);
        });
    }

    pub fn follow(&self, attachment: &Attachment, failing: Vec<String>) {
        let devices = attachment.devices().map(ToString::to_string).collect();
        self.change(|State { health, .. }| (health.devices, health.failing) = (devices, failing));
    }

    pub fn tell(&self, change: &Change) {
        if let Change::Refused(error) = change {
            self.failed(&error.to_string());
        }
    }

    pub fn notes(&self, notes: Vec<String>) {
        self.change(|state| state.health.notes = notes);
    }

    /// Remembers what failed, of which the log may have many lines.
    pub fn failed(&self, text: &str) {
        let now = Moment::now();
        let error = LastError {
            at: now.at,
            text: in_one_line(text),
        };
        self.change(|state| {
            state.failed = now;
            state.health.last_error = Some(error);
        });
    }
}

/// Lines of the log as one that stands elsewhere.
fn in_one_line(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches("pillion: "));
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_one_line_whatever_the_log_has_of_it() {
        for (text, told) in [
            ("write --stats", "write --stats"),
            (
                "rules:1:1: a\nrules:2:1: b\npillion: rules not reloaded",
                "rules:1:1: a; rules:2:1: b; rules not reloaded",
            ),
        ] {
            let shared = Shared::new(String::new());
            shared.failed(text);
            let (health, _) = shared.read().unwrap();
            assert_eq!(health.last_error.unwrap().text, told);
        }
    }

    fn moment(at: u64, since_start: u64) -> Moment {
        Moment {
            at,
            since_start: Duration::from_millis(since_start),
        }
    }

    #[test]
    fn when_something_was_is_told_by_the_clock_as_it_is_now() {
        let mut began = moment(1_000, 5_500);
        assert_eq!(began.as_of(moment(1_010, 15_500)), 1_000);
        for rounded in [moment(1_009, 15_500), moment(1_010, 14_600)] {
            assert_eq!(began.as_of(rounded), 1_000);
        }
        let set_at_boot = moment(1_800_000_000, 65_500);
        assert_eq!(began.as_of(set_at_boot), 1_799_999_940);
        for rounded in [moment(1_800_000_009, 75_400), moment(1_800_000_010, 74_600)] {
            assert_eq!(began.as_of(rounded), 1_799_999_940);
        }
        assert_eq!(began.as_of(moment(500, 65_500)), 440);
    }
}
