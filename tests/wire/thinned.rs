//! Bundling stops where too few ACKs arrive to show what bundles hide, and resumes.

use std::thread;
use std::time::Duration;

use pillion_bpf::{Level, LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Setup, Wire};

const RTT: Duration = Duration::from_millis(10);

fn options() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(1),
        loss_rule: LossRule::Dsack,
        ..Options::default()
    }
}

fn setup() -> Setup {
    Setup::bundling(options())
}

/// Segments of which none is lost, and one ACK for each `every`; the report is of the last one's
/// bundle, if it had any.
fn acknowledged(wire: &mut Wire, segments: u32, every: u32) {
    acknowledged_after(wire, segments, every, Duration::ZERO);
}

fn acknowledged_after(wire: &mut Wire, segments: u32, every: u32, delay: Duration) {
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
fn bundling_stops_where_one_ack_of_five_arrives() {
    setup().run_everywhere(|wire| {
        acknowledged(wire, 80, 5);
        let before = [Outcome::Bundled, Outcome::AcksThinned].map(|it| counted(wire, it));
        assert_eq!(before, [48, 16], "48 of 60 ends are without an ACK");
        acknowledged(wire, 40, 5);
        // The first of each five has nothing before it to take along.
        let after = [Outcome::Bundled, Outcome::AcksThinned].map(|it| counted(wire, it));
        assert_eq!(after, [48, 48]);
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (0, 0));
    });
}

#[test]
fn bundling_resumes_once_acks_are_dense_again() {
    setup().run(|wire| {
        acknowledged(wire, 80, 5);
        acknowledged(wire, 32, 1);
        let bundled = counted(wire, Outcome::Bundled);
        acknowledged(wire, 10, 2);
        assert_eq!(counted(wire, Outcome::Bundled), bundled + 5);
    });
}

/// As those of Linux may, to half of the segments.
#[test]
fn bundling_goes_on_where_the_receiver_delays_acks() {
    for every in [2, 3] {
        setup().run(|wire| {
            acknowledged(wire, 300, every);
            assert_eq!(counted(wire, Outcome::AcksThinned), 0);
        });
    }
}

/// No ACK ends with a segment that was lost, or that came behind a gap.
#[test]
fn losses_are_no_thinned_acks() {
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

/// Every second ACK is missing, and with it the report of every second loss.
#[test]
fn the_allowed_rate_counts_losses_that_no_ack_could_show() {
    let rate_allowed = |every: u32| {
        let setup = Setup {
            rtt: RTT,
            ..Setup::bundling(Options {
                reaction: Reaction::TfrcSp,
                ..options()
            })
        };
        let mut rate = 0;
        setup.run(|wire| {
            acknowledged_after(wire, 64, every, RTT);
            let at = wire.written() + 1;
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            thread::sleep(RTT);
            wire.ack(at + 200);
            thread::sleep(2 * RTT);
            wire.sends(&format!("{}:{}", at + 200, at + 300));
            rate = wire.totals().decision.expect("a decision").rate_allowed;
        });
        f64::from(rate)
    };
    // By RFC 5348 1.6 times as much for half of one loss of 65; the RTT varies a little.
    let ratio = rate_allowed(1) / rate_allowed(2);
    assert!((1.2..3.0).contains(&ratio), "{ratio}");
}

/// The same losses, one of a hundred, and a target between one of 10,000 and four times that, call for more redundancy where half of them is unseen.
#[test]
fn the_level_counts_losses_that_no_ack_could_show() {
    let level = |every: u32| {
        let setup = Setup::bundling(Options {
            level: Level::Adaptive,
            reaction: Reaction::None,
            max_packets: Some(0),
            target: Some("0.02".parse().expect("a target")),
            ..options()
        });
        let mut level = 0;
        setup.run(|wire| {
            for _ in 0..8 {
                acknowledged(wire, 96, every);
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
