use super::*;
use crate::path::{Disorder, Loss, PortOverride};

const MS: Duration = Duration::from_millis(1);

fn forward(direction: Direction) -> DirectionState {
    let [forward, _] = DirectionState::pair(&PathConfig {
        forward: direction.clone(),
        backward: direction,
        seed: 1,
    });
    forward
}

fn direction(rate_bps: Option<u64>, queue_packets: usize, loss: f64) -> DirectionState {
    with_disorder(rate_bps, queue_packets, loss, None)
}

fn with_disorder(
    rate_bps: Option<u64>,
    queue_packets: usize,
    loss: f64,
    disorder: Option<Disorder>,
) -> DirectionState {
    forward(Direction {
        rate_bps,
        queue_packets,
        loss: Loss::Uniform(loss),
        disorder,
        ..Direction::delayed(75 * MS)
    })
}

/// Returns an IPv4 frame of `bytes` bytes, filled with a number.
fn frame(number: u8, bytes: usize) -> Vec<u8> {
    let mut frame = vec![number; bytes];
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame
}

/// Removes every frame due by `now`.
fn departures(direction: &mut DirectionState, now: Instant) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while direction.depart(now, |frame| {
        frames.push(frame.to_vec());
        true
    }) {}
    frames
}

fn balanced(counts: &DirectionStats) -> bool {
    let ends = [
        counts.delivered,
        counts.lost,
        counts.queue_full,
        counts.overflowed,
        counts.device_refused,
        counts.inside,
    ];
    let (received, copies) = (counts.received, counts.duplicated);
    received.packets + copies.packets == ends.iter().map(|v| v.packets).sum::<u64>()
        && received.bytes + copies.bytes == ends.iter().map(|v| v.bytes).sum::<u64>()
}

#[test]
fn frame_departs_after_delay_not_earlier() {
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
fn delay_follows_serialisation() {
    let now = Instant::now();
    let mut direction = direction(Some(1_000_000), 10, 0.0);
    direction.arrive(now, &frame(1, 125));
    direction.arrive(now, &frame(2, 250));
    assert_eq!(departures(&mut direction, now + 76 * MS), [frame(1, 125)]);
    assert_eq!(direction.due(), Some(now + 78 * MS));
    assert_eq!(departures(&mut direction, now + 78 * MS), [frame(2, 250)]);
}

#[test]
fn lost_packet_uses_link() {
    let now = Instant::now();
    let mut direction = direction(Some(1_000_000), 10, 1.0);
    direction.arrive(now, &frame(1, 125));
    let arp = vec![0; 125];
    direction.arrive(now, &arp);
    assert_eq!(direction.due(), Some(now + 77 * MS));
    assert_eq!(direction.counts().lost.packets, 1);
}

#[test]
fn full_queue_does_not_shift_losses() {
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
fn reordered_packet_and_copy_arrive_after_extra_delay() {
    let now = Instant::now();
    let disorder = |reorder, duplicate| Disorder {
        reorder,
        duplicate,
        late: 10 * MS,
    };
    let mut direction = with_disorder(None, 1, 0.0, Some(disorder(1.0, 0.0)));
    direction.arrive(now, &frame(1, 100));
    let arp = vec![0; 60];
    direction.arrive(now + 9 * MS, &arp);
    assert_eq!(direction.due(), Some(now + 84 * MS));
    let order = departures(&mut direction, now + 85 * MS);
    assert_eq!(order, [arp, frame(1, 100)]);
    assert_eq!(direction.counts().reordered.packets, 1);
    assert_eq!(direction.counts().duplicated.packets, 0);

    let mut direction = with_disorder(None, 1, 0.0, Some(disorder(0.0, 1.0)));
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
    assert_eq!((counts.delivered.packets, counts.reordered.packets), (2, 0));
}

#[test]
fn disorder_does_not_change_losses() {
    let now = Instant::now();
    let survivors = |disorder| {
        let mut direction = with_disorder(None, 1, 0.3, disorder);
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
fn jitter_and_port_delays_do_not_change_losses() {
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
    let own = vec![PortOverride::delayed(7, MS)];
    let plain = survivors(Duration::ZERO, Vec::new());
    assert!(plain.len() < 200);
    assert_eq!(survivors(5 * MS, own), plain);
}

#[test]
fn every_frame_is_counted_once() {
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
fn delay_error_is_lateness_of_departures() {
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
fn frames_beyond_line_capacity_are_dropped_and_counted() {
    let now = Instant::now();
    let mut direction = direction(None, 1, 0.0);
    for _ in 0..70_000 {
        direction.arrive(now, &frame(0, 60));
    }
    let counts = direction.counts();
    assert_eq!(counts.inside.packets, 65_536);
    assert_eq!(counts.overflowed.packets, 70_000 - 65_536);
}

fn decisions(seed: u64, reorder: f64, duplicate: f64) -> Vec<OrderDecision> {
    let disorder = Disorder {
        reorder,
        duplicate,
        late: Duration::ZERO,
    };
    let mut decisions = OrderModel::new(&mut Pcg64::seed_from_u64(seed), Some(disorder));
    let mut frame = [0; 54];
    frame[12] = 8;
    (0..20_000).map(|_| decisions.of(&frame)).collect()
}

#[test]
fn reordering_shares_match_probabilities() {
    let decisions = decisions(1, 0.05, 0.02);
    let share = |decision| decisions.iter().filter(|other| **other == decision).count();
    // Expected 1000 and 400, standard deviations 31 and 20.
    assert!((850..1150).contains(&share(OrderDecision::Delayed)));
    assert!((300..500).contains(&share(OrderDecision::Duplicated)));
}

#[test]
fn same_seed_gives_same_order_decisions() {
    assert_eq!(decisions(7, 0.05, 0.05), decisions(7, 0.05, 0.05));
    assert_ne!(decisions(7, 0.05, 0.05), decisions(8, 0.05, 0.05));
}

#[test]
fn probability_bounds_affect_all_or_none() {
    assert!(
        decisions(1, 0.0, 0.0)
            .iter()
            .all(|decision| *decision == OrderDecision::InOrder)
    );
    assert!(
        decisions(1, 1.0, 0.0)
            .iter()
            .all(|decision| *decision == OrderDecision::Delayed)
    );
    assert!(
        decisions(1, 0.0, 1.0)
            .iter()
            .all(|decision| *decision == OrderDecision::Duplicated)
    );
}
