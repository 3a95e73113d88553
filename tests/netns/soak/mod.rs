//! The soak: connections that come and go while pillions do, for a long time.
//!
//! On two hosts with a lossy path between them, clients and a server hold connections of every
//! kind, and verify each byte by its position. All the while pillions begin, bundle them and end, a
//! third of them by `kill -9`. Nothing may be wrong, lost or left behind, and memory may not grow.
//!
//! `make soak` takes an hour, or as many minutes as told; `cargo test` some seconds.

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

use std::env;
use std::time::Duration;

use crate::common::needs_root;
use watch::Length;

/// Minutes of real time; without, the short form of it.
const MINUTES: &str = "PILLION_SOAK_MINUTES";
/// Decides about everything but the kernel's own doings.
const SEED: &str = "PILLION_SOAK_SEED";

/// An hour of it has 10,000 connections and 1,000 attachments.
const LENGTH: Length = Length {
    time: Duration::from_secs(3600),
    connections_hourly: 4_500,
    pillions_hourly: 1_200,
};

const SHORT: Length = Length {
    time: Duration::from_secs(15),
    connections_hourly: 9_000,
    pillions_hourly: 4_000,
};

fn number(variable: &str) -> Option<u64> {
    let given = env::var(variable).ok()?;
    Some(given.parse().expect(variable))
}

#[test]
fn no_byte_is_wrong_no_connection_lost_memory_flat_and_nothing_left() {
    needs_root!();
    let minutes = number(MINUTES);
    let seed = number(SEED).unwrap_or(1);
    let length = minutes.map_or(SHORT, |minutes| Length {
        time: Duration::from_secs(60 * minutes),
        ..LENGTH
    });
    if let Err(broken) = watch::soak(length, seed) {
        let again = match minutes {
            Some(minutes) => format!("make soak MINUTES={minutes} SEED={seed}"),
            None => format!("{SEED}={seed} cargo test -p pillion --test netns soak::"),
        };
        panic!("{broken}\nthe same again: {again}");
    }
}
