//! The referee's games. Each batch has its own lab kernel and is therefore reproducible.
//!
//! `make referee` plays for the given number of minutes, `cargo test` for one minute.

use std::env;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pillion_lab::engine::cores;
use pillion_tests::referee::{Statistics, simulate};

use crate::common::*;

/// Games in a batch.
const BATCH: u64 = 10;

/// Environment variable with the seed of the first game (default 1).
const SEED_VARIABLE: &str = "PILLION_REFEREE_SEED";
/// Environment variable with the minutes of real time (default 1); 0 plays a single batch.
const MINUTES_VARIABLE: &str = "PILLION_REFEREE_MINUTES";

fn env_number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().expect(variable))
}

/// Runs inside the lab kernel; `games_break_no_promise` starts it.
#[test]
#[ignore = "runs in the lab kernel"]
fn plays_one_batch() {
    let first = env_number(SEED_VARIABLE).expect("a seed");
    let mut all = Statistics::default();
    for seed in first..first + BATCH {
        all.add(&simulate(seed));
    }
    println!("\ntally {all}");
}

fn play_batch(first: u64) -> Output {
    let this = env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let (kernel, game) = (first.to_string(), format!("{SEED_VARIABLE}={first}"));
    // With sanitizers, games compute for a long time while virtual time stands still.
    let options = ["--stall-timeout", "600s", "--seed", &kernel, "--env", &game];
    let test = [
        "--ignored",
        "--exact",
        "--nocapture",
        "referee::plays_one_batch",
    ];
    boot(&options, &[&[this], &test[..]].concat())
        .output()
        .unwrap()
}

#[test]
fn games_break_no_promise() {
    needs_kernel!();
    let minutes = env_number(MINUTES_VARIABLE).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    let first = env_number(SEED_VARIABLE).unwrap_or(1);
    let batches = AtomicU64::new(0);
    let play_batches = || {
        let mut all = Statistics::default();
        loop {
            let batch = batches.fetch_add(1, Ordering::Relaxed);
            if batch > 0 && Instant::now() > end {
                return all;
            }
            let seed = first + BATCH * batch;
            let output = play_batch(seed);
            let (printed, errors) = (stdout(&output), stderr(&output));
            let tally = printed.lines().find_map(|line| line.strip_prefix("tally "));
            let tally = tally.filter(|_| output.status.success());
            let Some(tally) = tally.and_then(|tally| tally.parse().ok()) else {
                panic!("{printed}{errors}\nreproduce with: make referee SEED={seed} MINUTES=0");
            };
            all.add(&tally);
        }
    };
    let all = thread::scope(|scope| {
        let players: Vec<_> = cores()
            .unwrap()
            .into_iter()
            .map(|_| scope.spawn(play_batches))
            .collect();
        let mut all = Statistics::default();
        for player in players {
            all.add(&player.join().expect("no promise is broken"));
        }
        all
    });
    println!("{all:#}");
    // Ten games (MINUTES=0) may have no loss.
    if minutes > 0 {
        assert!(
            all.found > 0 && all.reactions > 0 && all.copies > 0,
            "{all:#}"
        );
    }
}
