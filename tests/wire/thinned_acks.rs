//! Tests that bundling stops when too few ACKs arrive to show hidden losses, and that it resumes.

use std::thread;
use std::time::Duration;

use pillion_bpf::{Level, LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Setup, Wire, limit_one};

const RTT: Duration = Duration::from_millis(10);

fn options() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(1),
        loss_rule: LossRule::Dsack,
        ..limit_one()
    }
}

fn setup() -> Setup {
    Setup::bundling(options())
}

/// Sends segments without loss and one ACK per `every` segments. Each DSACK is that of the last
/// segment's bundle, if it has one.
fn send_acknowledged(wire: &mut Wire, segments: u32, every: u32) {
    send_acknowledged_after(wire, segments, every, Duration::ZERO);
}

fn send_acknowledged_after(wire: &mut Wire, segments: u32, every: u32, delay: Duration) {
    for segment in 1..=segments {
        wire.write(100);
        let (start, end) = wire.read();
        if segment % every != 0 {
            continue;
        }
        thread::sleep(delay);
        let own = end - 100;
        if start == own {
            wire.ack(end);
        } else {
            wire.ack_duplicate(end, &format!("{start}:{own}"), "");
        }
    }
}

fn counted(wire: &Wire, outcome: Outcome) -> u64 {
    wire.totals().counters.of(outcome)
}

#[test]
fn bundling_stops_when_one_of_five_acks_arrives() {
    setup().run_on_ip_variants(|wire| {
        send_acknowledged(wire, 80, 5);
        let before = [Outcome::Bundled, Outcome::AcksThinned].map(|it| counted(wire, it));
        assert_eq!(before, [48, 16], "48 of 60 segment ends have no ACK");
        send_acknowledged(wire, 40, 5);
        // The first of each five segments has no outstanding segment to bundle.
        let after = [Outcome::Bundled, Outcome::AcksThinned].map(|it| counted(wire, it));
        assert_eq!(after, [48, 48]);
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (0, 0));
    });
}

#[test]
fn bundling_resumes_when_acks_are_dense_again() {
    setup().run(|wire| {
        send_acknowledged(wire, 80, 5);
        send_acknowledged(wire, 32, 1);
        let bundled = counted(wire, Outcome::Bundled);
        send_acknowledged(wire, 10, 2);
        assert_eq!(counted(wire, Outcome::Bundled), bundled + 5);
    });
}

/// Linux may reduce its ACKs to half of the segments.
#[test]
fn bundling_continues_with_delayed_acks() {
    for every in [2, 3] {
        setup().run(|wire| {
            send_acknowledged(wire, 300, every);
            assert_eq!(counted(wire, Outcome::AcksThinned), 0);
        });
    }
}

/// No ACK ends with a lost segment or one received out of order.
#[test]
fn losses_do_not_count_as_thinned_acks() {
    setup().run(|wire| {
        for _ in 0..80 {
            let at = wire.written() + 1;
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            wire.ack(at + 200);
        }
        assert_eq!(counted(wire, Outcome::AcksThinned), 0);
        assert_eq!(wire.totals().counters.hidden_losses, 80);
    });
}

/// Every second ACK is missing, and with it the evidence of every second loss.
#[test]
fn allowed_rate_counts_losses_hidden_by_thinned_acks() {
    let tfrc_allowed_bytes_per_s = |every: u32| {
        let setup = Setup {
            rtt: RTT,
            ..Setup::bundling(Options {
                reaction: Some(Reaction::TfrcSp),
                ..options()
            })
        };
        let mut rate = 0;
        setup.run(|wire| {
            send_acknowledged_after(wire, 64, every, RTT);
            let at = wire.written() + 1;
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            thread::sleep(RTT);
            wire.ack(at + 200);
            thread::sleep(2 * RTT);
            wire.sends(&format!("{}:{}", at + 200, at + 300));
            rate = wire
                .totals()
                .tfrc_decision
                .expect("a decision")
                .tfrc_allowed_bytes_per_s;
        });
        f64::from(rate)
    };
    // RFC 5348 gives a factor of 1.6 for half of one loss in 65; the RTT varies slightly.
    let ratio = tfrc_allowed_bytes_per_s(1) / tfrc_allowed_bytes_per_s(2);
    assert!((1.2..3.0).contains(&ratio), "{ratio}");
}

/// The loss rate is one in a hundred, and the target is between one in 10,000 and four times that.
/// With half of the losses unseen, the same losses call for more redundancy.
#[test]
fn level_counts_losses_hidden_by_thinned_acks() {
    let level = |every: u32| {
        let setup = Setup::bundling(Options {
            level: Some(Level::Adaptive),
            reaction: Some(Reaction::None),
            max_packets: Some(0),
            target: Some("0.02%".parse().expect("a target")),
            ..options()
        });
        let mut level = 0;
        setup.run(|wire| {
            for _ in 0..8 {
                send_acknowledged(wire, 96, every);
                let at = wire.written() + 1;
                wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
                wire.ack(at + 200);
            }
            level = wire.flow().level;
        });
        level
    };
    assert_eq!([1, 2].map(level), [1, 2]);
}
