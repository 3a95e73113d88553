//! The fuzz targets on their corpus, and on what mutation makes of it, always in the same way.

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

use std::{fs, path::Path};

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64;

const MUTANTS: usize = 30_000;
/// Each starts the threads that read two traces.
const MUTANTS_OF_FLOWS: usize = 3_000;
/// Numbers at which lengths and counters tend to go wrong.
const EDGES: [u32; 9] = [
    0,
    1,
    11,
    12,
    0xffff,
    1 << 24,
    0x7fff_ffff,
    1 << 31,
    u32::MAX,
];

#[test]
fn no_mutant_of_a_file_breaks_the_container_target() {
    fuzz("container", MUTANTS, targets::container);
}

#[test]
fn no_mutant_of_a_frame_breaks_the_headers_target() {
    fuzz("headers", MUTANTS, targets::headers);
}

#[test]
fn no_mutant_of_a_conversation_breaks_the_flows_target() {
    fuzz("flows", MUTANTS_OF_FLOWS, targets::flows);
}

fn fuzz(target: &str, mutants: usize, run: fn(&[u8])) {
    let seeds = corpus(target);
    for seed in &seeds {
        run(seed);
    }
    let mut random = Pcg64::seed_from_u64(1);
    for _ in 0..mutants {
        let mut mutant = seeds.choose(&mut random).expect("a seed").clone();
        for _ in 0..random.random_range(1..6) {
            mutate(&mut mutant, &seeds, &mut random);
        }
        run(&mutant);
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let entries = fs::read_dir(directory.join(target)).expect("a corpus");
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Pcg64) {
    if bytes.is_empty() {
        return;
    }
    let at = random.random_range(0..bytes.len());
    let end = random.random_range(at..=bytes.len()).min(at + 64);
    match random.random_range(0..6) {
        0 => bytes[at] ^= 1 << random.random_range(0..8),
        1 => bytes[at] = random.random(),
        2 => {
            let edge = *EDGES.choose(random).expect("one");
            let field = if random.random() {
                edge.to_be_bytes()
            } else {
                edge.to_le_bytes()
            };
            let at = at & !3;
            for (byte, new) in bytes[at..].iter_mut().zip(field) {
                *byte = new;
            }
        }
        3 => drop(bytes.drain(at..end)),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        _ => {
            let other = seeds.choose(random).expect("a seed");
            bytes.truncate(at);
            bytes.extend(other.iter().skip(at));
        }
    }
}
