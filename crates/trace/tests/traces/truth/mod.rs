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

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use world::World;

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

pub const MS: i64 = 1_000_000;

/// What a seed decides.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub sack: bool,
    pub timestamps: bool,
    /// Whether IP packets are numbered.
    pub ids: bool,
    pub bundles: bool,
    pub delays_acks: bool,
    pub repacketises: bool,
    pub messages: u32,
    pub itt_ns: i64,
    pub largest: i64,
    pub answers: f64,
    /// Of connections one after the other with the same ports.
    pub uses: u32,
    pub initial: [u32; 2],
    /// There and back.
    pub one_way_ns: [i64; 2],
    pub loss: [f64; 2],
    /// The mean length of runs of losses.
    pub run: f64,
    pub duplication: f64,
    pub jitter_ns: i64,
    pub keeps_order: bool,
    pub taps: Taps,
}

/// How the traces show it.
#[derive(Debug, Clone)]
pub struct Taps {
    /// By how much the receiver's clock is ahead.
    pub ahead_ns: i64,
    pub drift_ppm: f64,
    /// Records that each trace misses, as a share.
    pub missing: [f64; 2],
    /// Each begins then, and ends then.
    pub begin_ns: [i64; 2],
    pub end_ns: [i64; 2],
    /// Segments are joined where they leave, where they arrive.
    pub joined: [bool; 2],
}

impl Plan {
    /// What a seed stands for.
    pub fn of(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let r = &mut random;
        let sometimes = |r: &mut Pcg64Mcg, share: f64| r.random_bool(share);
        let loss = |r: &mut Pcg64Mcg| match r.random_range(0..4) {
            0 => 0.0,
            1 => 0.02,
            _ => r.random_range(0.0..0.2),
        };
        let one_way = |r: &mut Pcg64Mcg| r.random_range(1..120) * MS;
        let (near, wrap): (u32, _) = (r.random(), r.random_range(0..3));
        let initial = |r: &mut Pcg64Mcg| match wrap {
            0 => u32::MAX - r.random_range(0..4000),
            _ => r.random::<u32>() ^ near,
        };
        let same_ways = sometimes(r, 0.5);
        let there = one_way(r);
        let missing = |r: &mut Pcg64Mcg| match r.random_range(0..4) {
            0 => 0.01,
            1 => 0.1,
            _ => 0.0,
        };
        let has_missing = sometimes(r, 0.4);
        let midway = sometimes(r, 0.25);
        let cut = sometimes(r, 0.25);
        let joins = sometimes(r, 0.15);
        let own_clocks = sometimes(r, 0.5);
        Self {
            seed,
            sack: sometimes(r, 0.7),
            timestamps: sometimes(r, 0.7),
            ids: sometimes(r, 0.8),
            bundles: sometimes(r, 0.4),
            delays_acks: sometimes(r, 0.5),
            repacketises: sometimes(r, 0.3),
            messages: r.random_range(1..150),
            itt_ns: r.random_range(1..60) * MS + r.random_range(0..MS),
            largest: [50, 300, 2500][r.random_range(0..3)],
            answers: [0.0, 0.3][r.random_range(0..2)],
            uses: if sometimes(r, 0.2) { 2 } else { 1 },
            initial: [initial(r), initial(r)],
            one_way_ns: [there, if same_ways { there } else { one_way(r) }],
            loss: [loss(r), loss(r)],
            run: [1.0, 1.0, 3.0][r.random_range(0..3)],
            duplication: [0.0, 0.0, 0.05][r.random_range(0..3)],
            jitter_ns: [0, 0, 1, 30][r.random_range(0..4)] * MS,
            keeps_order: sometimes(r, 0.6),
            taps: Taps {
                ahead_ns: if own_clocks {
                    r.random_range(-50_000..50_000) * MS
                } else {
                    0
                },
                drift_ppm: if own_clocks {
                    r.random_range(-200.0..200.0)
                } else {
                    0.0
                },
                missing: if has_missing {
                    [missing(r), missing(r)]
                } else {
                    [0.0; 2]
                },
                begin_ns: if midway {
                    [r.random_range(0..2000) * MS, r.random_range(0..2000) * MS]
                } else {
                    [0; 2]
                },
                end_ns: if cut {
                    [r.random_range(1..5000) * MS, r.random_range(1..5000) * MS]
                } else {
                    [i64::MAX; 2]
                },
                joined: [joins && sometimes(r, 0.5), joins],
            },
        }
    }
}

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
