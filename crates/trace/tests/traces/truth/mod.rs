//! Compares the analysis of two traces with an independent reference: slow and simple, with all
//! packets in memory, from the definitions. The conversations are simulated, so the truth is known.
//!
//! `make truth MINUTES=60 SEED=1` continues from a seed; `MINUTES=0` shows one seed in full. Seeds
//! that revealed bugs are stored below and always tested.

mod compare;
mod host;
mod reference;
mod simulation;

use std::env;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use simulation::Simulation;

const MINUTES: &str = "PILLION_TRUTH_MINUTES";
const SEED: &str = "PILLION_TRUTH_SEED";
/// A few seconds in a debug build.
const FIRST_SEEDS: u64 = 40;
/// Seeds that revealed bugs: bytes that arrived unseen (1, 10, 44), path duplicates (16, 53), ACKs
/// after a FIN (295), a SACK block over one (17). RTT of retransmitted packets (18, 24), packets
/// that only SACK shows (239), late copies of received packets (45, 184). Ends confused in a trace
/// that started with a retransmission (201130, 205266), an arrival resolved only after a silence
/// (204532). Bytes that arrived before the sender's trace shows them (604540, 608066), an ACK long
/// after its packet was considered lost (616412). An ACK that left before its packet arrived, while
/// the clocks were still unknown (808942).
const REGRESSION_SEEDS: [u64; 19] = [
    1, 10, 16, 17, 18, 24, 44, 45, 53, 184, 239, 295, 201_130, 204_532, 205_266, 604_540, 608_066,
    616_412, 808_942,
];

pub const MS: i64 = 1_000_000;

/// Parameters chosen by a seed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub sack: bool,
    pub timestamps: bool,
    /// Whether IP packets have an identification.
    pub ids: bool,
    pub bundles: bool,
    pub delays_acks: bool,
    pub repacketises: bool,
    pub messages: u32,
    pub itt_ns: i64,
    pub largest: i64,
    pub answers: f64,
    /// Number of consecutive connections with the same ports.
    pub port_uses: u32,
    pub initial: [u32; 2],
    /// Towards the receiver and back.
    pub one_way_ns: [i64; 2],
    pub loss: [f64; 2],
    /// The mean length of runs of losses.
    pub run: f64,
    pub duplication: f64,
    pub jitter_ns: i64,
    pub keeps_order: bool,
    pub captures: CaptureParameters,
}

/// Parameters of the captures.
#[derive(Debug, Clone)]
pub struct CaptureParameters {
    /// Offset of the receiver's clock.
    pub ahead_ns: i64,
    pub drift_ppm: f64,
    /// Share of records missing in each trace.
    pub missing: [f64; 2],
    /// Start and end of each trace.
    pub start_ns: [i64; 2],
    pub end_ns: [i64; 2],
    /// Whether segments are joined at the sender, at the receiver.
    pub joined: [bool; 2],
}

impl Plan {
    /// The parameters of a seed.
    pub fn from_seed(seed: u64) -> Self {
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
            port_uses: if sometimes(r, 0.2) { 2 } else { 1 },
            initial: [initial(r), initial(r)],
            one_way_ns: [there, if same_ways { there } else { one_way(r) }],
            loss: [loss(r), loss(r)],
            run: [1.0, 1.0, 3.0][r.random_range(0..3)],
            duplication: [0.0, 0.0, 0.05][r.random_range(0..3)],
            jitter_ns: [0, 0, 1, 30][r.random_range(0..4)] * MS,
            keeps_order: sometimes(r, 0.6),
            captures: CaptureParameters {
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
                start_ns: if midway {
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
fn analysis_agrees_with_reference() {
    let number = |name| {
        env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let (first, minutes) = (number(SEED).unwrap_or(1), number(MINUTES));
    if minutes == Some(0) {
        let simulation = Simulation::run(Plan::from_seed(first));
        println!("{:#?}\n{}", simulation.plan, simulation.text());
        assert_eq!(compare::differences(&simulation), [""; 0]);
        return;
    }
    let start = Instant::now();
    let all = Duration::from_secs(60 * minutes.unwrap_or_default());
    let continues = |seed: &u64| match minutes {
        None => *seed < first + FIRST_SEEDS,
        Some(_) => start.elapsed() < all,
    };
    let (mut pairs, mut wrong) = (0, 0);
    for seed in REGRESSION_SEEDS
        .into_iter()
        .chain((first..).take_while(continues))
    {
        pairs += 1;
        let found = compare::differences(&Simulation::run(Plan::from_seed(seed)));
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
