//! Compares random writes and ACKs with a model of the rules in a few lines of Rust.

use pillion_bpf::{LossRule, Options, Reaction, ThinTest};
use pillion_tests::{Checksums, Ip, Setup, Wire, limit_one, segment_overhead};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64;

const SEEDS: u64 = 24;
const STEPS: u32 = 120;

/// Model of the bundler's history.
#[derive(Default)]
struct Record {
    starts: Vec<u32>,
    acknowledged: u32,
    end: u32,
}

impl Record {
    /// Returns the expected start of the next segment with this number of new bytes.
    fn next(&self, bytes: u32, limits: (usize, u32), overhead: u32) -> u32 {
        let end = self.end + bytes;
        let (packets, limit) = (limits.0, limits.1.min(bytes + overhead - 1));
        let fits = |start: &&u32| **start >= self.acknowledged && end - **start <= limit;
        let bundle = self.starts.iter().rev().take(packets).take_while(fits);
        bundle.last().copied().unwrap_or(self.end)
    }
}

/// Returns the maximum number of bundled segments, and the maximum payload of a segment.
pub fn limits(options: &Options, mss: u32) -> (usize, u32) {
    let packets = match options.max_packets.unwrap_or(1) {
        0 => 126,
        packets => packets as usize,
    };
    let bytes = match options.max_bytes {
        0 => mss.min(2047),
        bytes => mss.min(2047).min(bytes),
    };
    (packets, bytes)
}

fn setup(random: &mut impl Rng) -> (Setup, Options) {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some([0, 0, 1, 2, 5][random.random_range(0..5)]),
        max_bytes: [0, 0, 450, 1000][random.random_range(0..4)],
        // Few ACKs end at a segment boundary, which would stop bundling under the other rules.
        loss_rule: LossRule::Ack,
        reaction: Some(Reaction::None),
        ..limit_one()
    };
    let setup = Setup {
        ip: [Ip::V4, Ip::V6, Ip::Mapped][random.random_range(0..3)],
        isn: Some(random.random()),
        mss: [1220, 1460, 1460, 8960][random.random_range(0..4)],
        timestamps: random.random(),
        checksums: [Checksums::Kernel, Checksums::Device, Checksums::Bridge]
            [random.random_range(0..3)],
        ..Setup::bundling(options)
    };
    (setup, options)
}

fn write_randomly(wire: &mut Wire, options: &Options, random: &mut impl Rng) {
    wire.prove_path();
    let (limits, overhead) = (limits(options, wire.mss()), segment_overhead());
    let mut record = Record {
        end: 1,
        acknowledged: 1,
        ..Record::default()
    };
    for _ in 0..STEPS {
        if record.end > record.acknowledged && random.random_bool(0.25) {
            record.acknowledged = random.random_range(record.acknowledged + 1..=record.end);
            wire.ack(record.acknowledged);
            continue;
        }
        let max_new_bytes = [10, 100, 400, wire.mss().min(2047)][random.random_range(0..4)];
        let bytes = random.random_range(1..=max_new_bytes);
        let start = record.next(bytes, limits, overhead);
        record.starts.push(record.end);
        record.end += bytes;
        wire.sends(&format!("{start}:{}", record.end));
    }
}

#[test]
fn random_writes_and_acks_are_bundled_as_modelled() {
    for seed in 0..SEEDS {
        let mut random = Pcg64::seed_from_u64(seed);
        let (setup, options) = setup(&mut random);
        setup.run(|wire| write_randomly(wire, &options, &mut random));
    }
}
