use std::time::Duration;

use super::*;
use crate::traffic::distribution::Distribution;
use crate::traffic::replay::Write;

const MS: u64 = 1_000_000;

fn thin(itt: &str, size: &str) -> Group {
    let [itt, size] = [itt, size].map(|text| Distribution::parse(text).unwrap());
    Group::new("thin", Kind::Thin { itt, size })
}

/// Times and sizes of all messages of a source that depends on nothing else.
fn all(mut source: Source) -> Vec<(u64, u32)> {
    let planned = source.planned();
    let mut all = Vec::new();
    while let Next::At(due) = source.next(0, true) {
        all.push((due, source.take()));
    }
    assert_eq!(source.next(0, true), Next::Over);
    assert_eq!(planned, Some(all.len() as u64));
    all
}

#[test]
fn same_seed_gives_the_same_messages_and_another_gives_others() {
    let group = thin("30:3", "exponential:100");
    let of = |seed, stream| all(Source::new(&group, seed, stream, (MS, 3000 * MS)));
    assert_eq!(of(1, 2), of(1, 2));
    assert_ne!(of(1, 2), of(1, 3));
    assert_ne!(of(1, 2), of(2, 2));
}

#[test]
fn no_deviation_is_a_fixed_beat_from_the_start_to_before_the_end() {
    let beat = [(10 * MS, 120), (40 * MS, 120), (70 * MS, 120)];
    let group = thin("30", "120");
    assert_eq!(all(Source::new(&group, 1, 0, (10 * MS, 100 * MS))), beat);
    let itt = Duration::from_millis(30);
    let isochronous = Group::new("beat", Kind::Isochronous { itt, size: 120 });
    assert_eq!(
        all(Source::new(&isochronous, 1, 0, (10 * MS, 100 * MS))),
        beat
    );
}

#[test]
fn a_number_of_messages_ends_a_stream_without_a_duration() {
    let group = Group {
        messages: Some(5),
        ..thin("30:3", "120")
    };
    assert_eq!(all(Source::new(&group, 1, 0, (0, u64::MAX))).len(), 5);
}

#[test]
fn sizes_stay_within_the_format() {
    let group = thin("1", "pareto:1000:1.01");
    let sizes = all(Source::new(&group, 1, 0, (0, 20_000 * MS)));
    assert!(sizes.iter().all(|(_, size)| (1..=MAX_SIZE).contains(size)));
    let small = thin("1", "1:5");
    let sizes = all(Source::new(&small, 1, 0, (0, 1_000 * MS)));
    assert!(sizes.iter().all(|(_, size)| *size >= 1));
}

#[test]
fn a_replay_keeps_gaps_and_sizes_and_runs_at_its_speed() {
    let write = |ms, size| Write {
        gap: Duration::from_millis(ms),
        size,
    };
    let group = |speed| {
        let writes = [write(4, 10), write(20, 1000), write(0, 7)].into();
        Group::new("replay", Kind::Replay { writes, speed })
    };
    let (original, doubled) = (group(1.0), group(2.0));
    let of = |group| all(Source::new(group, 1, 0, (MS, u64::MAX)));
    assert_eq!(of(&original), [(5 * MS, 10), (25 * MS, 1000), (25 * MS, 7)]);
    assert_eq!(of(&doubled), [(3 * MS, 10), (13 * MS, 1000), (13 * MS, 7)]);
}

#[test]
fn a_greedy_stream_sends_whenever_the_kernel_has_taken_all() {
    let group = Group::new("greedy", Kind::Greedy { write: 65_536 });
    let mut source = Source::new(&group, 1, 0, (5 * MS, 100 * MS));
    assert_eq!(source.next(0, true), Next::At(5 * MS));
    assert_eq!(source.next(50 * MS, true), Next::At(50 * MS));
    assert_eq!(source.take(), 65_536);
    assert_eq!(source.next(50 * MS, false), Next::Waiting);
    assert_eq!(source.next(100 * MS, true), Next::Over);
    assert_eq!(source.planned(), None);
}

#[test]
fn a_request_waits_for_the_answer_to_the_one_before_and_then_thinks() {
    let [think, size] = ["50", "120"].map(|text| Distribution::parse(text).unwrap());
    let kind = Kind::RequestResponse {
        think,
        size,
        answer: 400,
    };
    let group = Group::new("requests", kind);
    let mut source = Source::new(&group, 1, 0, (0, 1000 * MS));
    assert_eq!(source.wants_answers(), Some(400));
    assert_eq!(source.next(0, true), Next::At(0));
    source.take();
    assert_eq!(source.next(10 * MS, true), Next::Waiting);
    source.answered(170 * MS);
    assert_eq!(source.next(170 * MS, true), Next::At(220 * MS));
    source.take();
    assert_eq!(source.next(1000 * MS, true), Next::Over);
}
