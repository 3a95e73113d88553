//! The time that bundles saved is never put too high, and only where they repaired.

use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Setup, Wire};

const RTT: Duration = Duration::from_millis(50);

/// The handshake takes an RTT, so that the kernel has a sample of it.
fn setup(loss_rule: LossRule) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule,
        ..Options::default()
    };
    Setup {
        rtt: RTT,
        ..Setup::bundling(options)
    }
}

fn dsack() -> Setup {
    setup(LossRule::Dsack)
}

/// Hidden losses, and the time saved.
fn saved(wire: &Wire) -> (u64, Duration) {
    let counters = wire.totals().counters;
    (
        counters.hidden_losses,
        Duration::from_micros(counters.saved_us),
    )
}

#[test]
fn a_repaired_segment_saves_the_minimum_rtt() {
    let begun = Instant::now();
    dsack().run(|wire| {
        let handshake = begun.elapsed();
        wire.sends("1:101 1:201");
        thread::sleep(8 * RTT);
        wire.ack(201);
        let (losses, saved) = saved(wire);
        assert_eq!(losses, 1);
        // However late its ACK.
        assert!(RTT <= saved && saved <= handshake, "{saved:?}");
    });
}

#[test]
fn each_segment_of_a_run_saves_as_much() {
    dsack().run_everywhere(|wire| {
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
fn no_more_is_saved_than_passed_until_the_ack() {
    let rtt = 10 * RTT;
    Setup { rtt, ..dsack() }.run(|wire| {
        wire.sends("1:101");
        let begun = Instant::now();
        wire.sends("1:201");
        thread::sleep(Duration::from_millis(1));
        wire.ack(201);
        let (losses, saved) = saved(wire);
        assert_eq!(losses, 1);
        assert!(
            Duration::ZERO < saved && saved <= begun.elapsed(),
            "{saved:?}"
        );
    });
}

#[test]
fn without_a_loss_nothing_is_saved() {
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
fn what_tcp_retransmitted_was_not_hidden_and_saved_nothing() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..dsack() }.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        assert_eq!(saved(wire), (0, Duration::ZERO));
    });
}

#[test]
fn what_tcp_knew_from_a_selective_acknowledgement_saved_nothing() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        thread::sleep(RTT);
        wire.ack_sack(1, "201:301");
        wire.ack(301);
        assert_eq!(saved(wire), (2, Duration::ZERO));
    });
}

#[test]
fn a_segment_that_comes_late_takes_back_what_was_counted_for_it() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        thread::sleep(RTT);
        wire.ack(201);
        let (_, of_one) = saved(wire);
        // The first loss is answered: it is none that may still come late.
        thread::sleep(RTT);
        wire.sends("201:301 201:401");
        thread::sleep(RTT);
        wire.ack(401);
        assert!(saved(wire).1 > of_one);
        // Twice: it is taken back once.
        for start in [401, 501] {
            wire.ack_duplicate(start, "201:301", "");
            wire.sends(&format!("{start}:{}", start + 100));
            wire.ack(start + 100);
        }
        assert_eq!(wire.totals().counters.reordered, 1);
        assert_eq!(saved(wire), (2, of_one));
    });
}

#[test]
fn the_published_rule_does_not_tell_losses_well_enough() {
    setup(LossRule::Ack).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        thread::sleep(RTT);
        wire.ack(301);
        assert_eq!(saved(wire), (2, Duration::ZERO));
    });
}
