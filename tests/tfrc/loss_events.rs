//! RFC 5348, section 5, with the short intervals of RFC 4828, section 3.

use pillion_tests::tfrc::{LOSS_RATE_ONE, LossEvents};
use rand::RngExt;
use rand::SeedableRng;
use rand_pcg::Pcg64;

const WEIGHTS: [f64; 8] = [1.0, 1.0, 1.0, 1.0, 0.8, 0.6, 0.4, 0.2];

/// Packets sent before an event's start, its start time in microseconds, and its losses.
type Event = (u32, u64, u32);

/// Reference implementation of the RFCs' average, with the whole history of events.
#[derive(Default)]
struct Reference {
    events: Vec<Event>,
}

impl Reference {
    fn note(&mut self, losses: u32, packets: u32, now: u64, rtt: u64) {
        match self.events.last_mut() {
            Some((_, start, count)) if now <= *start + rtt => *count += losses,
            _ => self.events.push((packets, now, losses)),
        }
    }

    /// Returns the loss event rate, with one RTT for the whole history.
    fn rate(&self, packets: u32, now: u64, rtt: u64) -> f64 {
        let length = |(from, start, losses): Event, to: u32, end: u64| {
            let length = f64::from(to - from);
            let short = losses > 0 && end <= start + 2 * rtt;
            (if short {
                length / f64::from(losses)
            } else {
                length
            })
            .max(1.0)
        };
        let initial = (0, 0, 0);
        let starts = [initial].into_iter().chain(self.events.clone());
        let mut closed: Vec<f64> = starts
            .zip(&self.events)
            .map(|(event, next)| length(event, next.0, next.1))
            .collect();
        closed.reverse();
        closed.truncate(8);
        let mean = |intervals: &[f64]| {
            let weighted = intervals.iter().zip(WEIGHTS).map(|(i, w)| i * w);
            weighted.sum::<f64>() / WEIGHTS[..intervals.len()].iter().sum::<f64>()
        };
        let last = *self.events.last().expect("a loss");
        let mut with_open = closed.clone();
        with_open.insert(0, length(last, packets, now));
        with_open.truncate(closed.len());
        if now <= last.1 + 2 * rtt {
            return 1.0 / mean(&closed);
        }
        1.0 / mean(&closed).max(mean(&with_open))
    }
}

fn rate(events: &LossEvents, packets: u32, now: u64, rtt: u64) -> f64 {
    events.rate(packets, now, rtt) as f64 / LOSS_RATE_ONE as f64
}

#[track_caller]
fn assert_near(actual: f64, expected: f64) {
    // Lengths are kept to 1/256 of a packet, and the rate to 2^-31.
    let error = (actual - expected).abs();
    assert!(
        error <= 0.005 * expected + 1e-9,
        "a rate of {actual}, not {expected}"
    );
}

#[test]
fn random_histories_match_rfc_average() {
    for seed in 0..200 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let rtt = rng.random_range(100..2_000_000);
        let itt = rng.random_range(100..200_000);
        let loss = 10f64.powf(rng.random_range(-4.0..0.0));
        let (mut events, mut reference) = (LossEvents::default(), Reference::default());
        let (mut now, mut packets, mut known) = (1 << 40, 0, 0);
        for _ in 0..3000 {
            now += rng.random_range(0..=2 * itt);
            packets += 1;
            if rng.random_bool(loss) {
                let losses = rng.random_range(1..=3).min(packets - known);
                known += losses;
                events.note(known, packets, now, rtt);
                if losses > 0 {
                    reference.note(losses, packets, now, rtt);
                }
            }
            if known > 0 {
                let expected = reference.rate(packets, now, rtt);
                assert_near(rate(&events, packets, now, rtt), expected);
            }
        }
    }
}

#[test]
fn losses_within_one_rtt_are_one_event() {
    let mut events = LossEvents::default();
    events.note(1, 100, 1_000_000, 1000);
    events.note(2, 101, 1_000_500, 1000);
    events.note(5, 102, 1_001_000, 1000);
    assert_near(rate(&events, 102, 1_001_000, 1000), 1.0 / 100.0);
}

#[test]
fn short_interval_counts_its_actual_losses() {
    let mut events = LossEvents::default();
    events.note(1, 100, 1_000_000, 1000);
    events.note(4, 104, 1_000_500, 1000);
    events.note(5, 112, 1_002_000, 1000);
    // 12 packets and 4 losses in two RTTs, 100 packets before.
    assert_near(rate(&events, 112, 1_002_000, 1000), 2.0 / (3.0 + 100.0));
}

#[test]
fn open_interval_counts_once_it_lowers_rate() {
    let mut events = LossEvents::default();
    events.note(1, 10, 1_000_000, 1000);
    assert_near(rate(&events, 1000, 1_002_000, 1000), 1.0 / 10.0);
    assert_near(rate(&events, 15, 1_900_000, 1000), 1.0 / 10.0);
    assert_near(rate(&events, 1010, 1_900_000, 1000), 1.0 / 1000.0);
}

#[test]
fn packet_numbers_may_wrap() {
    let mut events = LossEvents::default();
    events.note(1, u32::MAX - 9, 1_000_000, 1000);
    events.note(2, 90, 2_000_000, 1000);
    for packets in [190, 290, 390, 490, 590, 690, 790, 890] {
        let event = u64::from(packets) / 100 + 2;
        let known = event as u32;
        events.note(known, packets, event * 1_000_000, 1000);
    }
    assert_near(rate(&events, 890, 10_000_000, 1000), 1.0 / 100.0);
}

#[test]
fn losing_every_packet_gives_rate_of_one() {
    let mut events = LossEvents::default();
    for packet in 1..=20 {
        events.note(packet, packet, u64::from(packet) * 1_000_000, 1000);
    }
    assert_eq!(events.rate(20, 20_000_000, 1000), LOSS_RATE_ONE);
    assert_eq!(LossEvents::default().rate(0, 0, 0), LOSS_RATE_ONE);
}
