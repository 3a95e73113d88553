//! Losses that are left to a reduction of TCP's own, and TCP takes that back: then one is due.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::{LossRule, Options, Outcome, ThinTest};
use pillion_tests::{Bundler, Setup, Wire, netstat, sysctl};

const RTT: Duration = Duration::from_millis(100);

fn setup(loss_rule: LossRule) -> Setup {
    bundling(0, loss_rule)
}

fn bundling(max_packets: u32, loss_rule: LossRule) -> Setup {
    Setup {
        initial_window: 10,
        timestamps: true,
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(max_packets),
            loss_rule,
            published: true, // no reordering window
            ..Options::default()
        })
    }
}

/// Slow-start threshold, in segments.
fn threshold(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_ssthresh
}

/// Losses found, reactions.
fn counted(wire: &Wire) -> (u64, u64) {
    let counters = wire.totals().counters;
    (counters.hidden_losses, counters.reactions)
}

/// So that whatever is due takes place.
fn go_on(wire: &mut Wire, at: u32) {
    for start in [at, at + 100] {
        wire.sends(&format!("{start}:{}", start + 100));
        wire.ack(start + 100);
    }
}

#[test]
fn a_loss_beside_a_needless_time_out_is_answered() {
    // Of a shorter round trip, TCP would not wait for the second ACK (RACK).
    let setup = Setup {
        rtt: RTT,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        // The second is lost, and all else late.
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.expect("1:101");
        wire.ack(101);
        wire.ack_duplicate(301, "1:101", "");
        wire.hold_echo(false);
        wire.ack_duplicate(301, "1:101", "");
        go_on(wire, 301);
        assert_eq!(counted(wire), (1, 1));
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn a_loss_found_before_a_needless_time_out_is_answered() {
    setup(LossRule::Dsack).run(|wire| {
        // The first is lost. Before anything can tell TCP, it retransmits the last.
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.ack(201);
        wire.expect("201:301");
        wire.ack_duplicate(301, "1:201", "");
        wire.hold_echo(false);
        wire.ack_duplicate(301, "201:301", "");
        go_on(wire, 301);
        assert_eq!(counted(wire), (1, 1));
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn a_loss_beside_one_that_was_late_is_answered() {
    let setup = Setup {
        rtt: Duration::from_millis(20),
        ..bundling(1, LossRule::Dsack)
    };
    setup.run(|wire| {
        // The first two are late, and 301:401 is lost.
        wire.sends("1:101 1:201");
        wire.hold_echo(true);
        wire.sends("101:301 201:401 301:501");
        sleep(Duration::from_millis(20));
        wire.ack_sack(1, "101:301");
        wire.expect("1:101");
        wire.ack(301);
        wire.ack(501);
        wire.hold_echo(false);
        wire.ack_duplicate(501, "1:101", "");
        go_on(wire, 501);
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn what_new_data_brings_after_a_time_out_does_not_make_it_needless() {
    bundling(1, LossRule::Dsack).run(|wire| {
        // Both are lost, and the retransmission has room for one. With new data TCP finds out
        // whether the time-out was needless (F-RTO), and the bundle has the other.
        wire.sends("1:1401");
        wire.write(200);
        wire.expect("1401:1601 1:1401");
        wire.write(200);
        wire.ack(1401);
        wire.expect("1401:1801");
        wire.ack(1801);
        go_on(wire, 1801);
        assert_eq!(counted(wire), (1, 1));
        assert!(threshold(wire) < 10, "{}", threshold(wire));
    });
}

/// With CUBIC the threshold after a reduction may be what it is when that is taken back.
#[test]
fn cubics_reduction_that_is_taken_back_is_seen_as_such() {
    let setup = Setup {
        initial_window: 5,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        wire.set_option((libc::IPPROTO_TCP, libc::TCP_CONGESTION), b"cubic");
        wire.sends("1:101 1:201");
        wire.ack(201);
        go_on(wire, 201);
        let (_, reactions) = counted(wire);
        wire.sends("401:501 401:601");
        wire.hold_echo(true);
        wire.expect("401:601");
        wire.ack(601);
        wire.hold_echo(false);
        go_on(wire, 601);
        assert_eq!(counted(wire).1 - reactions, 1);
    });
}

#[test]
fn a_reduction_that_is_taken_back_when_the_next_segment_has_left_is_seen_as_such() {
    let mut setup = setup(LossRule::Dsack);
    setup.timestamps = false;
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        wire.sends("201:301");
        assert_eq!(counted(wire).1, 0);
        // The retransmission was needless: the bundle had come.
        wire.ack_duplicate(201, "1:201", "");
        wire.ack(301);
        go_on(wire, 301);
        assert_eq!(counted(wire).1, 1);
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn a_reduction_that_stands_answers_once() {
    setup(LossRule::Dsack).run(|wire| {
        // Both are lost, and the retransmission brings them.
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        let reduced = threshold(wire);
        go_on(wire, 201);
        assert_eq!(counted(wire).1, 0);
        assert_eq!(threshold(wire), reduced);
    });
}

#[test]
fn a_reduction_that_stands_answers_though_the_next_one_is_taken_back() {
    let mut setup = setup(LossRule::Dsack);
    setup.timestamps = false;
    setup.run(|wire| {
        // Both are lost, and the retransmission brings them.
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        // Nothing is, and the retransmission was needless.
        wire.sends("201:301");
        wire.expect("201:301");
        wire.ack(301);
        wire.ack_duplicate(301, "201:301", "");
        go_on(wire, 301);
        assert_eq!(counted(wire), (0, 0));
    });
}

/// There TCP stays in its state of loss until something is acknowledged that it sent later.
#[test]
fn without_sack_what_is_taken_back_at_once_is_seen_as_such() {
    let setup = Setup {
        initial_window: 10,
        timestamps: true,
        sack: false,
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(0),
            loss_rule: LossRule::Ack,
            without_sack: true,
            published: true, // no reordering window
            ..Options::default()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        // The second is lost, and all else late.
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.expect("1:101");
        wire.ack(101);
        wire.ack(301);
        wire.hold_echo(false);
        go_on(wire, 301);
        assert_eq!(counted(wire), (1, 1));
    });
}

/// Each time that a bundle leaves, TCP retransmits all of it before the bundle's ACK.
#[test]
fn while_every_bundle_is_retransmitted_the_receivers_rule_is_learnt() {
    for loss_rule in [LossRule::Dsack, LossRule::Auto] {
        let setup = Setup {
            rtt: RTT,
            rto_min: Duration::ZERO,
            ..setup(loss_rule)
        };
        setup.run(|wire| {
            for round in 0..3 {
                let at = 1 + 300 * round;
                wire.sends(&format!("{at}:{}", at + 100));
                sleep(Duration::from_millis(200));
                wire.sends(&format!("{at}:{}", at + 200));
                wire.hold_echo(true);
                wire.expect(&format!("{at}:{}", at + 200));
                wire.ack(at + 200);
                wire.hold_echo(false);
                wire.ack_duplicate(at + 200, &format!("{at}:{}", at + 200), "");
                wire.sends(&format!("{}:{}", at + 200, at + 300));
                sleep(RTT);
                wire.ack(at + 300);
            }
            assert!(counted(wire).1 > 0, "{loss_rule:?}");
        });
    }
}

/// The bundle behind the gap would look as if what it brings had come before the time-out.
#[test]
fn no_bundle_behind_a_gap_makes_a_time_out_look_needless() {
    bundling(1, LossRule::Dsack).run(|wire| {
        // All three are lost, and the retransmission has room for one.
        wire.sends("1:1401");
        wire.write(200);
        wire.expect("1401:1601");
        wire.write(200);
        wire.expect("1401:1801 1:1401");
        wire.write(200);
        wire.ack(1401);
        wire.expect("1801:2001");
        wire.ack_sack(1401, "1801:2001");
        assert_eq!(netstat("TCPSpuriousRTOs"), 0);
    });
}

#[test]
fn what_has_no_bundle_anyway_is_counted_by_its_own_reason_while_a_time_out_is_doubted() {
    let options = Options {
        thin: ThinTest::Always,
        loss_rule: LossRule::Dsack,
        ..Options::default()
    };
    let guarded = Setup {
        bundlers: vec![Bundler::with(options)],
        ..bundling(1, LossRule::Dsack)
    };
    guarded.run(|wire| {
        wire.sends("1:1401");
        wire.write(200);
        wire.expect("1401:1601");
        wire.write(200);
        wire.expect("1401:1801 1:1401");
        wire.write(1400);
        wire.ack(1401);
        wire.expect("1801:3201");
        let counters = wire.totals().counters;
        assert_eq!(counters.of(Outcome::PathSize), 2);
        assert_eq!(counters.of(Outcome::Unwatched), 0);
    });
}

/// The threshold is what it was before the time-out that was needless.
#[test]
fn a_reduction_for_a_probe_after_a_needless_time_out_answers_what_its_ack_tells_of() {
    let setup = Setup {
        initial_window: 6,
        rtt: RTT,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        go_on(wire, 201);
        assert_eq!((counted(wire), threshold(wire)), ((1, 1), 3));
        wire.sends("401:501");
        wire.hold_echo(true);
        wire.expect("401:501");
        wire.ack(501);
        wire.hold_echo(false);
        wire.ack_duplicate(501, "401:501", "");
        // The window grows by a segment each time that it is full.
        for window in 3..6 {
            let from = wire.written() + 1;
            let ends = (1..=window).map(|count| from + 100 * count);
            let ranges: Vec<_> = ends.map(|end| format!("{from}:{end}")).collect();
            wire.sends(&ranges.join(" "));
            let end = from + 100 * window;
            wire.ack_duplicate(end, &format!("{from}:{}", end - 100), "");
        }
        sysctl("net.ipv4.tcp_early_retrans", "3");
        wire.sends("1701:1801 1701:1901");
        wire.expect("1801:1901");
        // All before it was lost, the probe as well.
        wire.sends("1701:2001");
        wire.ack(2001);
        go_on(wire, 2001);
        assert_eq!(counted(wire), (2, 1));
    });
}
