//! The analysis of two traces held against a reference of another shape: slow, simple, all packets
//! in memory, from the definitions; over conversations of which the truth is known.
//!
//! `make truth MINUTES=60 SEED=1` goes on from a seed; with `MINUTES=0` it shows one in full. What it
//! found is kept among the seeds that are always looked at.

mod hold;
mod host;
mod reference;
mod world;

use std::env;
use std::time::{Duration, Instant};

use world::{Plan, World};

const MINUTES: &str = "PILLION_TRUTH_MINUTES";
const SEED: &str = "PILLION_TRUTH_SEED";
/// Some seconds of a debug build.
const FEW: u64 = 40;
/// Those that showed something wrong once: bytes that arrived unseen (1, 10, 44), what the path
/// doubled (16, 53), ACKs after a FIN (295), a SACK block over one (17), round-trip times of what was
/// retransmitted (18, 24), packets that only SACK shows (239), late arrivals of what had arrived
/// (45, 184), ends that were mistaken for each other where a trace began with a retransmission
/// (201130, 205266), an arrival that became clear only after a silence (204532),
/// bytes that arrived before the trace at the sender shows them (604540, 608066), an ACK that came
/// long after its packet was taken for lost (616412), one that left before its packet came, by clocks
/// that were not known yet (808942).
const FOUND: [u64; 19] = [
    1, 10, 16, 17, 18, 24, 44, 45, 53, 184, 239, 295, 201_130, 204_532, 205_266, 604_540, 608_066,
    616_412, 808_942,
];

#[test]
fn the_analysis_agrees_with_the_reference() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (first, minutes) = (number(SEED).unwrap_or(1), number(MINUTES));
    if minutes == Some(0) {
        let world = World::of(Plan::of(first));
        println!("{:#?}\n{}", world.plan, world.text());
        assert_eq!(hold::differences(&world), [""; 0]);
        return;
    }
    let begin = Instant::now();
    let all = Duration::from_secs(60 * minutes.unwrap_or_default());
    let goes_on = |seed: &u64| match minutes {
        None => *seed < first + FEW,
        Some(_) => begin.elapsed() < all,
    };
    let (mut pairs, mut wrong) = (0, 0);
    for seed in FOUND.into_iter().chain((first..).take_while(goes_on)) {
        pairs += 1;
        let found = hold::differences(&World::of(Plan::of(seed)));
        if let Some(one) = found.first() {
            wrong += 1;
            println!("{SEED}={seed}: {one} ({} in all)", found.len());
        }
    }
    println!("{pairs} pairs of traces, with seeds from {first} on");
    assert_eq!(
        wrong, 0,
        "of {pairs} pairs of traces; their seeds are above"
    );
}
