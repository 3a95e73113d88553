use super::*;
use crate::path::{Disorder, Loss, Own};

const MS: Duration = Duration::from_millis(1);

fn forward(direction: Direction) -> LiveDirection {
    let [forward, _] = LiveDirection::pair(&PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    });
    forward
}

fn direction(rate_bps: Option<u64>, queue_packets: usize, loss: f64) -> LiveDirection {
    disturbed(rate_bps, queue_packets, loss, None)
}

fn disturbed(
    rate_bps: Option<u64>,
    queue_packets: usize,
    loss: f64,
    disorder: Option<Disorder>,
) -> LiveDirection {
    forward(Direction {
        rate_bps,
        queue_packets,
        loss: Loss::Uniform(loss),
        disorder,
        ..Direction::delayed(75 * MS)
    })
}

/// An IPv4 frame of `bytes` bytes that carries a number.
fn frame(number: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![number; bytes];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame
}

/// Takes out every frame due by `now`.
fn departures(direction: &mut LiveDirection, now: Instant) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while direction.depart(now, |frame| {
        frames.push(frame.to_vec());
        true
    }) {}
    frames
}

fn balanced(counts: &Counts) -> bool {
    let ends = [
        counts.delivered,
        counts.lost,
        counts.queue_full,
        counts.device_refused,
        counts.inside,
    ];
    let (received, copies) = (counts.received, counts.duplicated);
    received.packets + copies.packets == ends.iter().map(|v| v.packets).sum::<u64>()
        && received.bytes + copies.bytes == ends.iter().map(|v| v.bytes).sum::<u64>()
}

#[test]
fn a_frame_departs_after_the_delay_and_never_before() {
    let now = Instant::now();
    let mut direction = direction(None, 1, 0.0);
    assert_eq!(direction.due(), None);
    direction.arrive(now, &frame(1, 100));
    assert_eq!(direction.due(), Some(now + 75 * MS));
    let early = now + 75 * MS - Duration::from_nanos(1);
    assert!(departures(&mut direction, early).is_empty());
    assert_eq!(departures(&mut direction, now + 75 * MS), [frame(1, 100)]);
    assert_eq!(direction.due(), None);
}

#[test]
fn the_delay_follows_the_serialisation() {
    let now = Instant::now();
    let mut direction = direction(Some(1_000_000), 10, 0.0);
    direction.arrive(now, &frame(1, 125));
    direction.arrive(now, &frame(2, 250));
    assert_eq!(departures(&mut direction, now + 76 * MS), [frame(1, 125)]);
    assert_eq!(direction.due(), Some(now + 78 * MS));
    assert_eq!(departures(&mut direction, now + 78 * MS), [frame(2, 250)]);
}

#[test]
fn a_lost_packet_has_used_the_link() {
    let now = Instant::now();
    let mut direction = direction(Some(1_000_000), 10, 1.0);
    direction.arrive(now, &frame(1, 125));
    let arp = vec![0; 125];
    direction.arrive(now, &arp);
    assert_eq!(direction.due(), Some(now + 77 * MS));
    assert_eq!(direction.counts().lost.packets, 1);
}

#[test]
fn a_full_queue_does_not_shift_the_fates_behind_it() {
    let now = Instant::now();
    let survivors = |rate_bps, spacing: Duration| {
        let mut direction = direction(rate_bps, 1, 0.3);
        for n in 0..200 {
            direction.arrive(now + spacing * u32::from(n), &frame(n, 125));
        }
        departures(&mut direction, now + 10_000 * MS)
    };
    let free = survivors(None, MS);
    let queued = survivors(Some(1_000_000), MS / 2);
    assert!(queued.len() < free.len());
    assert!(queued.iter().all(|frame| free.contains(frame)));
}

#[test]
fn a_packet_held_back_is_overtaken_and_a_copy_comes_as_late() {
    let now = Instant::now();
    let disorder = |reorder, duplicate| Disorder {
        reorder,
        duplicate,
        late: 10 * MS,
    };
    let mut direction = disturbed(None, 1, 0.0, Some(disorder(1.0, 0.0)));
    direction.arrive(now, &frame(1, 100));
    let arp = vec![0; 60];
    direction.arrive(now + 9 * MS, &arp);
    assert_eq!(direction.due(), Some(now + 84 * MS));
    let order = departures(&mut direction, now + 85 * MS);
    assert_eq!(order, [arp, frame(1, 100)]);
    assert_eq!(direction.counts().held_back.packets, 1);
    assert_eq!(direction.counts().duplicated.packets, 0);

    let mut direction = disturbed(None, 1, 0.0, Some(disorder(0.0, 1.0)));
    direction.arrive(now, &frame(1, 100));
    assert!(balanced(&direction.counts()));
    assert_eq!(departures(&mut direction, now + 84 * MS), [frame(1, 100)]);
    assert_eq!(departures(&mut direction, now + 85 * MS), [frame(1, 100)]);
    let counts = direction.counts();
    assert!(balanced(&counts));
    assert_eq!(
        (counts.duplicated.packets, counts.duplicated.bytes),
        (1, 100)
    );
    assert_eq!((counts.delivered.packets, counts.held_back.packets), (2, 0));
}

#[test]
fn disorder_does_not_change_what_is_lost() {
    let now = Instant::now();
    let survivors = |disorder| {
        let mut direction = disturbed(None, 1, 0.3, disorder);
        (0..200).for_each(|n| direction.arrive(now, &frame(n, 125)));
        let mut frames = departures(&mut direction, now + 10_000 * MS);
        frames.sort();
        frames.dedup();
        frames
    };
    let disorder = Disorder {
        reorder: 0.2,
        duplicate: 0.2,
        late: 5 * MS,
    };
    assert_eq!(survivors(Some(disorder)), survivors(None));
}

#[test]
fn neither_jitter_nor_delays_of_single_ports_change_what_is_lost() {
    let now = Instant::now();
    let survivors = |jitter, own| {
        let mut direction = forward(Direction {
            jitter,
            own,
            loss: Loss::Uniform(0.3),
            ..Direction::delayed(75 * MS)
        });
        (0..200).for_each(|n| direction.arrive(now, &frame(n, 125)));
        departures(&mut direction, now + 10_000 * MS)
    };
    let own = vec![Own::delayed(7, MS)];
    let plain = survivors(Duration::ZERO, Vec::new());
    assert!(plain.len() < 200);
    assert_eq!(survivors(5 * MS, own), plain);
}

#[test]
fn every_frame_is_accounted_for() {
    let now = Instant::now();
    let mut direction = direction(Some(1_000_000), 5, 0.2);
    for n in 0..100u8 {
        direction.arrive(now + MS / 2 * u32::from(n), &frame(n, 100 + usize::from(n)));
        assert!(balanced(&direction.counts()));
    }
    direction.depart(now + 80 * MS, |_| false);
    departures(&mut direction, now + 100 * MS);
    let counts = direction.counts();
    assert!(balanced(&counts));
    assert_eq!(counts.received.packets, 100);
    assert_eq!(counts.received.bytes, (100..200).sum::<u64>());
    assert_eq!(counts.device_refused.packets, 1);
    for volume in [
        counts.delivered,
        counts.lost,
        counts.queue_full,
        counts.inside,
    ] {
        assert!(volume.packets > 0);
    }
    departures(&mut direction, now + 10_000 * MS);
    assert!(balanced(&direction.counts()));
    assert_eq!(direction.counts().inside.packets, 0);
}

#[test]
fn the_delay_error_is_the_lateness_of_departures() {
    let now = Instant::now();
    let mut direction = direction(None, 1, 0.0);
    for late_us in 1..=100 {
        direction.arrive(now, &frame(0, 60));
        departures(
            &mut direction,
            now + 75 * MS + Duration::from_micros(late_us),
        );
    }
    let error = direction.counts().delay_error;
    assert_eq!((error.p50_us, error.p99_us, error.max_us), (50, 99, 100));
}

#[test]
fn more_than_the_line_can_hold_is_refused_and_counted() {
    let now = Instant::now();
    let mut direction = direction(None, 1, 0.0);
    for _ in 0..70_000 {
        direction.arrive(now, &frame(0, 60));
    }
    let counts = direction.counts();
    assert_eq!(counts.inside.packets, 65_536);
    assert_eq!(counts.queue_full.packets, 70_000 - 65_536);
}

fn turns(seed: u64, reorder: f64, duplicate: f64) -> Vec<Turn> {
    let disorder = Disorder {
        reorder,
        duplicate,
        late: Duration::ZERO,
    };
    let mut turns = Turns::new(&mut Pcg64::seed_from_u64(seed), Some(disorder));
    let mut frame = [0; 54];
    frame[12] = 8;
    (0..20_000).map(|_| turns.of(&frame)).collect()
}

#[test]
fn the_shares_are_the_probabilities() {
    let turns = turns(1, 0.05, 0.02);
    let share = |turn| turns.iter().filter(|other| **other == turn).count();
    // 1000 and 400 expected, standard deviations 31 and 20.
    assert!((850..1150).contains(&share(Turn::HeldBack)));
    assert!((300..500).contains(&share(Turn::Duplicated)));
}

#[test]
fn the_same_seed_draws_the_same_turns() {
    assert_eq!(turns(7, 0.05, 0.05), turns(7, 0.05, 0.05));
    assert_ne!(turns(7, 0.05, 0.05), turns(8, 0.05, 0.05));
}

#[test]
fn the_bounds_are_all_or_nothing() {
    assert!(turns(1, 0.0, 0.0).iter().all(|turn| *turn == Turn::Kept));
    assert!(
        turns(1, 1.0, 0.0)
            .iter()
            .all(|turn| *turn == Turn::HeldBack)
    );
    assert!(
        turns(1, 0.0, 1.0)
            .iter()
            .all(|turn| *turn == Turn::Duplicated)
    );
}
