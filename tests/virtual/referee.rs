//! The referee's games, each batch in a lab kernel of its own, so that it can be played again.
//!
//! `make referee` plays for as long as it is told, and `cargo test` for a minute.

use std::env;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pillion_lab::engine::cores;
use pillion_tests::referee::{Tally, play};

use crate::common::*;

/// Games of a batch.
const BATCH: u64 = 10;

/// Seed of the first game, if it is not to be 1.
const FIRST: &str = "PILLION_REFEREE_SEED";
/// Minutes of real time; with 0, a single batch.
const MINUTES: &str = "PILLION_REFEREE_MINUTES";

fn number(variable: &str) -> Option<u64> {
    let given = env::var(variable).ok()?;
    Some(given.parse().expect(variable))
}

/// Inside the lab kernel.
#[test]
#[ignore = "runs in the lab kernel"]
fn a_batch() {
    let first = number(FIRST).expect("a seed");
    let mut all = Tally::default();
    for seed in first..first + BATCH {
        all.add(&play(seed));
    }
    println!("\ntally {all}");
}

fn play_batch(first: u64) -> Output {
    let this = env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let (kernel, game) = (first.to_string(), format!("{FIRST}={first}"));
    // Games compute for long, where sanitizers watch, while no virtual time passes.
    let options = ["--patience", "600", "--seed", &kernel, "--env", &game];
    let test = ["--ignored", "--exact", "--nocapture", "referee::a_batch"];
    boot(&options, &[&[this], &test[..]].concat())
        .output()
        .unwrap()
}

#[test]
fn finds_no_broken_promise() {
    needs_kernel!();
    let minutes = number(MINUTES).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let first = number(FIRST).unwrap_or(1);
    let batches = AtomicU64::new(0);
    let played = || {
        let mut all = Tally::default();
        loop {
            let batch = batches.fetch_add(1, Ordering::Relaxed);
            if batch > 0 && Instant::now() > end {
                return all;
            }
            let seed = first + BATCH * batch;
            let output = play_batch(seed);
            let (said, complained) = (stdout(&output), stderr(&output));
            let tally = said.lines().find_map(|line| line.strip_prefix("tally "));
            let tally = tally.filter(|_| output.status.success());
            let Some(tally) = tally.and_then(|tally| tally.parse().ok()) else {
                panic!(
                    "{said}{complained}\nthe same games again: make referee SEED={seed} MINUTES=0"
                );
            };
            all.add(&tally);
        }
    };
    let all = thread::scope(|scope| {
        let players: Vec<_> = cores()
            .unwrap()
            .into_iter()
            .map(|_| scope.spawn(played))
            .collect();
        let mut all = Tally::default();
        for player in players {
            all.add(&player.join().expect("no promise is broken"));
        }
        all
    });
    println!("{all:#}");
    // Ten games (MINUTES=0) may have no loss to find.
    if minutes > 0 {
        assert!(all.found > 0 && all.reactions > 0, "{all:#}");
    }
}
