//! Truncated or inconsistent files: earlier packets are returned, and the end is reported. Also
//! runs the fuzz targets on their corpus and on deterministic mutations of it.

use std::fs;
use std::io::Write;
use std::path::Path;

use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64;

use crate::common::{ETHERNET, ORDERS, Order, Pcap, PcapNg, one, read, segment, warnings};
use crate::targets;

/// Reads the first `len` bytes of a file, for every `len` from `first`. Its records end at `ends`;
/// each has one packet, except those before the first packet.
fn cut_everywhere(file: &[u8], first: usize, ends: &[usize], packets_before: usize) {
    for len in first..=file.len() {
        let (packets, input) = read(&file[..len]);
        let whole = ends.iter().filter(|end| **end <= len).count();
        let start = ends.iter().rev().find(|end| **end <= len);
        let start = *start.expect("the first record");
        assert_eq!(packets.len(), whole.saturating_sub(packets_before), "{len}");
        if start == len {
            assert_eq!(input.warnings(), [], "{len}");
        } else {
            let warning = format!(
                "at byte {start}: the trace ends within a record; all earlier records were read"
            );
            assert_eq!(warnings(&input), [warning], "{len}");
        }
    }
}

#[test]
fn truncated_pcap_gives_all_earlier_packets() {
    for order in ORDERS {
        let frame = segment(b"hello");
        let file = Pcap::microseconds(order, ETHERNET);
        let file = file.frame(1, &frame).frame(2, &frame).bytes;
        let record = 16 + frame.len();
        cut_everywhere(&file, 24, &[24, 24 + record, 24 + 2 * record], 1);
    }
}

#[test]
fn truncated_pcapng_gives_all_earlier_packets() {
    for order in ORDERS {
        let frame = segment(b"hello");
        let mut ends = vec![0, 28];
        let mut file = PcapNg::new(order).interface(ETHERNET, 0);
        ends.push(file.bytes.len());
        for ticks in 1..4 {
            file = file.enhanced(0, ticks, &frame, frame.len());
            ends.push(file.bytes.len());
        }
        cut_everywhere(&file.bytes, 12, &ends, 3);
    }
}

#[test]
fn truncated_compressed_file_gives_readable_packets() {
    let frame = segment(&[7; 1400]);
    let file = (0..200).fold(
        Pcap::microseconds(Order::Little, ETHERNET),
        |file, at_ns| {
            let mut frame = frame.clone();
            // Otherwise 200 packets compress to a few bytes.
            frame[54..]
                .iter_mut()
                .zip(at_ns..)
                .for_each(|(byte, n)| *byte = ((n * n * 31) >> 3) as u8);
            file.frame(at_ns, &frame)
        },
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&file.bytes).unwrap();
    let gzip = gzip.finish().unwrap();
    for len in [gzip.len() / 2, gzip.len() - 1] {
        let (packets, input) = read(&gzip[..len]);
        assert!(!packets.is_empty(), "{len} of {}", gzip.len());
        let [warning] = &warnings(&input)[..] else {
            panic!("one warning, not {:?}", input.warnings());
        };
        assert!(
            warning.ends_with("all earlier records were read"),
            "{warning}"
        );
    }
    let after = [&gzip[..], b"behind"].concat();
    let (packets, input) = read(&after);
    assert_eq!(packets.len(), 200);
    assert_eq!(input.warnings().len(), 1);
}

#[test]
fn impossible_length_is_damage_without_allocation() {
    let mut file = one(ETHERNET, &segment(b"x"));
    file[32..36].copy_from_slice(&Order::Little.u32(1 << 31));
    let (packets, input) = read(&file);
    assert_eq!(packets, []);
    assert_eq!(
        warnings(&input),
        [
            "at byte 24: impossible record length 2147483648: this record and all later ones were not read"
        ]
    );

    let frame = segment(b"x");
    for len in [0, 8, 13, 1 << 31] {
        let file = PcapNg::new(Order::Big).interface(ETHERNET, 0);
        let file = file.enhanced(0, 1, &frame, frame.len());
        let at = file.bytes.len();
        let mut file = file.enhanced(0, 1, &frame, frame.len()).bytes;
        file[at + 4..at + 8].copy_from_slice(&Order::Big.u32(len));
        let (packets, input) = read(&file);
        assert_eq!(packets.len(), 1);
        assert_eq!(
            warnings(&input),
            [format!(
                "at byte {at}: impossible record length {len}: this record and all later ones were not read"
            )]
        );
    }
}

#[test]
fn block_with_unequal_lengths_ends_reading() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Little).interface(ETHERNET, 0);
    let mut file = file.enhanced(0, 1, &frame, frame.len()).bytes;
    let at = file.len() - 4;
    file[at..].fill(1);
    let (packets, input) = read(&file);
    assert_eq!(packets, []);
    assert_eq!(
        warnings(&input),
        [
            "at byte 48: a block's two lengths differ (96 and 16843009 bytes): this block and all later ones were not read"
        ]
    );
}

#[test]
fn unreadable_packet_is_skipped() {
    let frame = segment(b"x");
    let file = PcapNg::new(Order::Little)
        .enhanced(0, 1, &frame, frame.len())
        .interface(ETHERNET, 0)
        .enhanced(3, 1, &frame, frame.len())
        .simple(&frame[..40], frame.len())
        .enhanced(0, 1, &frame, frame.len());
    let (packets, input) = read(&file.bytes);
    assert_eq!(packets.len(), 1);
    assert_eq!(packets[0].number, 4);
    assert_eq!(input.counts().damaged, 3);
    let problems: Vec<_> = input
        .warnings()
        .iter()
        .map(|w| w.problem.to_string())
        .collect();
    assert_eq!(
        problems,
        [
            "a packet was captured on interface 0, which the trace does not describe: it was skipped",
            "a packet was captured on interface 3, which the trace does not describe: it was skipped",
            "packets were recorded without times: 1970 was used",
            "a packet is longer than its block: it was skipped",
        ]
    );
}

#[test]
fn damaged_trace_gives_at_most_hundred_warnings() {
    let frame = segment(b"x");
    let file = (0..150).fold(PcapNg::new(Order::Little), |file, ticks| {
        file.enhanced(0, ticks, &frame, frame.len())
    });
    let (_, input) = read(&file.bytes);
    assert_eq!(input.counts().damaged, 150);
    assert_eq!(input.warnings().len(), 100);
}

#[test]
fn clock_set_back_gives_warning_with_position() {
    let frame = segment(b"hello");
    let at_s = [100, 101, 98, 99, 98].into_iter();
    let file = at_s.fold(Pcap::microseconds(Order::Little, ETHERNET), |file, at_s| {
        file.frame(at_s * 1_000_000_000 + 999_000, &frame)
    });
    let (packets, input) = read(&file.bytes);
    assert_eq!(packets.len(), 5);
    let [first, second] = warnings(&input).try_into().unwrap();
    let offset = 24 + 2 * (16 + frame.len());
    let expected = format!("at byte {offset}: packet 3 is 3 s older than the one before it");
    assert!(first.starts_with(&expected), "{first}");
    assert!(second.contains("packet 5 is 1 s older"), "{second}");
}

const MUTANTS: usize = 30_000;
/// Each flow mutant starts two reader threads.
const MUTANTS_OF_FLOWS: usize = 3_000;
/// Numbers at which lengths and counters tend to overflow.
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
fn container_target_survives_mutated_files() {
    fuzz("container", MUTANTS, targets::container);
}

#[test]
fn headers_target_survives_mutated_frames() {
    fuzz("headers", MUTANTS, targets::headers);
}

#[test]
fn flows_target_survives_mutated_conversations() {
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
