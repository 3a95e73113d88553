//! Tests that the time saved is never overestimated, and that only repairs save time.

use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Setup, Wire, limit_one};

const RTT: Duration = Duration::from_millis(50);

/// The handshake takes an RTT, so that the kernel has an RTT sample.
fn setup(loss_rule: LossRule) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule,
        ..limit_one()
    };
    Setup {
        rtt: RTT,
        ..Setup::bundling(options)
    }
}

fn dsack() -> Setup {
    setup(LossRule::Dsack)
}

/// Returns hidden losses and the time saved.
fn saved(wire: &Wire) -> (u64, Duration) {
    let counters = wire.totals().counters;
    (
        counters.hidden_losses,
        Duration::from_micros(counters.time_saved_us),
    )
}

#[test]
fn repaired_segment_saves_minimum_rtt() {
    let started_at = Instant::now();
    dsack().run(|wire| {
        let handshake = started_at.elapsed();
        wire.sends("1:101 1:201");
        thread::sleep(8 * RTT);
        wire.ack(201);
        let (losses, saved) = saved(wire);
        assert_eq!(losses, 1);
        // The delay of its ACK does not matter.
        assert!(RTT <= saved && saved <= handshake, "{saved:?}");
    });
}

#[test]
fn every_segment_of_loss_run_saves_minimum_rtt() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        thread::sleep(2 * RTT);
        wire.ack(401);
        let (losses, saved) = saved(wire);
        assert_eq!(losses, 3);
        assert_eq!(saved.as_micros() % 3, 0);
        assert!(saved >= 3 * RTT, "{saved:?}");
    });
}

#[test]
fn time_saved_is_at_most_time_until_ack() {
    let rtt = 10 * RTT;
    Setup { rtt, ..dsack() }.run(|wire| {
        wire.sends("1:101");
        let started_at = Instant::now();
        wire.sends("1:201");
        thread::sleep(Duration::from_millis(1));
        wire.ack(201);
        let (losses, saved) = saved(wire);
        assert_eq!(losses, 1);
        assert!(
            Duration::ZERO < saved && saved <= started_at.elapsed(),
            "{saved:?}"
        );
    });
}

#[test]
fn nothing_is_saved_without_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        thread::sleep(RTT);
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.ack_duplicate(401, "1:301", "");
        assert_eq!(saved(wire), (0, Duration::ZERO));
    });
}

#[test]
fn segment_retransmitted_by_tcp_saves_nothing() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..dsack() }.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        assert_eq!(saved(wire), (0, Duration::ZERO));
    });
}

#[test]
fn segment_known_from_sack_saves_nothing() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        thread::sleep(RTT);
        wire.ack_sack(1, "201:301");
        wire.ack(301);
        assert_eq!(saved(wire), (2, Duration::ZERO));
    });
}

#[test]
fn late_segment_takes_back_its_time_saved() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        thread::sleep(RTT);
        wire.ack(201);
        let (_, saved_by_one) = saved(wire);
        // The first loss has caused its reaction and can no longer be refuted.
        thread::sleep(RTT);
        wire.sends("201:301 201:401");
        thread::sleep(RTT);
        wire.ack(401);
        assert!(saved(wire).1 > saved_by_one);
        // Two DSACKs, but the time is subtracted once.
        for start in [401, 501] {
            wire.ack_duplicate(start, "201:301", "");
            wire.sends(&format!("{start}:{}", start + 100));
            wire.ack(start + 100);
        }
        assert_eq!(wire.totals().counters.reordered, 1);
        assert_eq!(saved(wire), (2, saved_by_one));
    });
}

#[test]
fn ack_rule_counts_no_time_saved() {
    setup(LossRule::Ack).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        thread::sleep(RTT);
        wire.ack(301);
        assert_eq!(saved(wire), (2, Duration::ZERO));
    });
}
