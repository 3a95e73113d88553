//! The analysis of two traces held against a reference of another shape: slow, simple, all packets
//! in memory, from the definitions; over conversations of which the truth is known.
//!
//! In `make test` for some seconds; `PILLION_TRUTH_MINUTES=60` for longer, `PILLION_TRUTH_SEED=7`
//! from that seed on.

mod hold;
mod host;
mod reference;
mod told;
mod world;

use std::env;
use std::time::{Duration, Instant};

use world::{Plan, World};

const MINUTES: &str = "PILLION_TRUTH_MINUTES";
const SEED: &str = "PILLION_TRUTH_SEED";
/// Some seconds of a debug build.
const FEW: u64 = 300;

#[test]
fn the_analysis_agrees_with_the_reference() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let first = number(SEED).unwrap_or(1);
    let (begin, minutes) = (Instant::now(), number(MINUTES));
    let all = Duration::from_secs(60 * minutes.unwrap_or_default());
    let mut wrong = 0;
    let mut seed = first;
    while minutes.map_or(seed < first + FEW, |minutes| {
        minutes == 0 || begin.elapsed() < all
    }) {
        let world = World::of(Plan::of(seed));
        let found = hold::differences(&world);
        if let Some(one) = found.first() {
            wrong += 1;
            if wrong <= 20 {
                println!("{SEED}={seed}: {one} ({} in all)", found.len());
            }
        }
        if minutes == Some(0) {
            println!("{:#?}", world.plan);
            found.iter().for_each(|one| println!("{one}"));
            println!("{}", world.text());
            break;
        }
        seed += 1;
    }
    println!("{} pairs of traces from seed {first} on", seed - first);
    assert_eq!(
        wrong,
        0,
        "of {} pairs of traces; see above for seeds",
        seed - first
    );
}
