use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use pillion_bundler::{Attachment, Change, Readings, Totals};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::VERSION;

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
    readings: Option<Readings>,
}

pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

impl Shared {
    pub fn new(bundling: String) -> Self {
        let health = Health {
            pid: std::process::id(),
            version: VERSION.to_owned(),
            at_work: false,
            since: now(),
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
            readings: None,
        }))
    }

    /// Its health as of now, and what it did so far; no totals before it has begun.
    pub fn read(&self) -> Result<(Health, Option<Totals>)> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut health = state.health.clone();
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
            self.failed(error.to_string());
        }
    }

    pub fn notes(&self, notes: Vec<String>) {
        self.change(|state| state.health.notes = notes);
    }

    pub fn failed(&self, text: String) {
        let error = LastError { at: now(), text };
        self.change(|state| state.health.last_error = Some(error));
    }
}
