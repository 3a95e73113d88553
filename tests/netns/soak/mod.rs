//! The soak: connections and pillions that come and go for a long time.
//!
//! On two hosts with a lossy path, clients and a server hold connections of every kind and verify
//! each byte by its position. Meanwhile pillions start, bundle and exit, a third of them by `kill
//! -9`, and devices appear, change and vanish. No byte may be wrong, no connection lost, nothing
//! left behind, and memory may not grow.
//!
//! `make soak` takes an hour. `make storm` takes ten minutes with far more events. Both accept a
//! number of minutes. `cargo test` runs one minute of storm.

mod books;
mod crowd;
mod ends;
mod field;
mod flat;
mod ground;
mod harm;
mod memory;
mod pattern;
mod plan;
mod remains;
mod ride;
mod rider;
mod said;
mod talk;
mod tally;
mod watch;
mod weather;

use std::env;
use std::time::Duration;

use crate::common::needs_root;
use watch::Length;

/// Environment variables: minutes of real time (default: one minute of storm).
const SOAK: &str = "PILLION_SOAK_MINUTES";
const STORM: &str = "PILLION_STORM_MINUTES";
/// Environment variable: seed for everything except the kernel's own scheduling.
const SEED: &str = "PILLION_SOAK_SEED";

/// An hour has 10,000 connections and 1,000 attachments.
fn soak(minutes: u64) -> Length {
    Length {
        time: Duration::from_secs(60 * minutes),
        connections_hourly: 4_500,
        pillions_hourly: 1_200,
        gusts_hourly: 1_200,
    }
}

fn storm(minutes: u64) -> Length {
    Length {
        time: Duration::from_secs(60 * minutes),
        connections_hourly: 9_000,
        pillions_hourly: 4_000,
        gusts_hourly: 7_200,
    }
}

fn number(variable: &str) -> Option<u64> {
    let given = env::var(variable).ok()?;
    Some(given.parse().expect(variable))
}

#[test]
fn no_byte_is_wrong_no_connection_lost_memory_flat_and_nothing_left() {
    needs_root!();
    let seed = number(SEED).unwrap_or(1);
    let (length, again) = match (number(SOAK), number(STORM)) {
        (Some(minutes), _) => (soak(minutes), format!("make soak MINUTES={minutes}")),
        (None, minutes) => {
            let minutes = minutes.unwrap_or(1);
            (storm(minutes), format!("make storm MINUTES={minutes}"))
        }
    };
    if let Err(broken) = watch::soak(length, seed) {
        panic!("{violation}\nrepeat with: {repeat} SEED={seed}");
    }
}
