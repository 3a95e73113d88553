//! Tests losses that TCP's own reduction covers until TCP undoes it: then a reaction is due.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::{LossRule, Options, Outcome, ThinTest};
use pillion_tests::{Bundler, Setup, Wire, limit_one, netstat, sysctl};

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
            ..limit_one()
        })
    }
}

/// Returns the slow-start threshold, in segments.
fn threshold(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_ssthresh
}

/// Returns hidden losses and reactions.
fn counted(wire: &Wire) -> (u64, u64) {
    let counters = wire.totals().counters;
    (counters.hidden_losses, counters.reactions)
}

/// Sends two more segments, so that every pending reaction takes place.
fn react_to_pending(wire: &mut Wire, at: u32) {
    for start in [at, at + 100] {
        wire.sends(&format!("{start}:{}", start + 100));
        wire.ack(start + 100);
    }
}

#[test]
fn loss_next_to_needless_rto_causes_reaction() {
    // With a shorter RTT, TCP would not wait for the second ACK (RACK).
    let setup = Setup {
        rtt: RTT,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        // The second segment is lost, and everything else is late.
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.expect("1:101");
        wire.ack(101);
        wire.ack_duplicate(301, "1:101", "");
        wire.hold_echo(false);
        wire.ack_duplicate(301, "1:101", "");
        react_to_pending(wire, 301);
        assert_eq!(counted(wire), (1, 1));
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn loss_found_before_needless_rto_causes_reaction() {
    setup(LossRule::Dsack).run(|wire| {
        // The first segment is lost. Before TCP can know, it retransmits the last.
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.ack(201);
        wire.expect("201:301");
        wire.ack_duplicate(301, "1:201", "");
        wire.hold_echo(false);
        wire.ack_duplicate(301, "201:301", "");
        react_to_pending(wire, 301);
        assert_eq!(counted(wire), (1, 1));
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn loss_next_to_late_segment_causes_reaction() {
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
        react_to_pending(wire, 501);
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn new_data_after_rto_does_not_make_it_needless() {
    bundling(1, LossRule::Dsack).run(|wire| {
        // Both are lost, and the retransmission has room for one. With new data TCP detects whether
        // the timeout was needless (F-RTO); the bundle carries the other.
        wire.sends("1:1401");
        wire.write(200);
        wire.expect("1401:1601 1:1401");
        wire.write(200);
        wire.ack(1401);
        wire.expect("1401:1801");
        wire.ack(1801);
        react_to_pending(wire, 1801);
        assert_eq!(counted(wire), (1, 1));
        assert!(threshold(wire) < 10, "{}", threshold(wire));
    });
}

/// With CUBIC the threshold after a reduction may equal the threshold after its undo.
#[test]
fn undone_cubic_reduction_is_recognised() {
    let setup = Setup {
        initial_window: 5,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        wire.set_option((libc::IPPROTO_TCP, libc::TCP_CONGESTION), b"cubic");
        wire.sends("1:101 1:201");
        wire.ack(201);
        react_to_pending(wire, 201);
        let (_, reactions) = counted(wire);
        wire.sends("401:501 401:601");
        wire.hold_echo(true);
        wire.expect("401:601");
        wire.ack(601);
        wire.hold_echo(false);
        react_to_pending(wire, 601);
        assert_eq!(counted(wire).1 - reactions, 1);
    });
}

#[test]
fn reduction_undone_after_next_segment_is_recognised() {
    let mut setup = setup(LossRule::Dsack);
    setup.timestamps = false;
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        wire.sends("201:301");
        assert_eq!(counted(wire).1, 0);
        // The retransmission was needless, because the bundle had arrived.
        wire.ack_duplicate(201, "1:201", "");
        wire.ack(301);
        react_to_pending(wire, 301);
        assert_eq!(counted(wire).1, 1);
        assert_eq!(threshold(wire), 5);
    });
}

#[test]
fn lasting_reduction_answers_losses_once() {
    setup(LossRule::Dsack).run(|wire| {
        // Both are lost, and the retransmission delivers them.
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        let reduced = threshold(wire);
        react_to_pending(wire, 201);
        assert_eq!(counted(wire).1, 0);
        assert_eq!(threshold(wire), reduced);
    });
}

#[test]
fn lasting_reduction_answers_although_next_is_undone() {
    let mut setup = setup(LossRule::Dsack);
    setup.timestamps = false;
    setup.run(|wire| {
        // Both are lost, and the retransmission delivers them.
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        // Nothing is lost, and the retransmission was needless.
        wire.sends("201:301");
        wire.expect("201:301");
        wire.ack(301);
        wire.ack_duplicate(301, "201:301", "");
        react_to_pending(wire, 301);
        assert_eq!(counted(wire), (0, 0));
    });
}

/// Without SACK, TCP stays in the loss state until data sent later is acknowledged.
#[test]
fn immediately_undone_reduction_is_recognised_without_sack() {
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
            ..limit_one()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        // The second segment is lost, and everything else is late.
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.expect("1:101");
        wire.ack(101);
        wire.ack(301);
        wire.hold_echo(false);
        react_to_pending(wire, 301);
        assert_eq!(counted(wire), (1, 1));
    });
}

/// TCP retransmits each whole bundle before its ACK arrives.
#[test]
fn loss_rule_is_learnt_while_every_bundle_is_retransmitted() {
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

/// The data of a bundle beyond the gap would appear to have arrived before the timeout.
#[test]
fn bundle_beyond_gap_does_not_make_rto_look_needless() {
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
fn plain_segment_keeps_own_outcome_during_doubtful_rto() {
    let options = Options {
        thin: ThinTest::Always,
        loss_rule: LossRule::Dsack,
        ..limit_one()
    };
    let unpublished = Setup {
        bundlers: vec![Bundler::with(options)],
        ..bundling(1, LossRule::Dsack)
    };
    unpublished.run(|wire| {
        wire.sends("1:1401");
        wire.write(200);
        wire.expect("1401:1601");
        wire.write(200);
        wire.expect("1401:1801 1:1401");
        wire.write(1400);
        wire.ack(1401);
        wire.expect("1801:3201");
        let counters = wire.totals().counters;
        assert_eq!(counters.of(Outcome::ExceedsPathSize), 2);
        assert_eq!(counters.of(Outcome::LossDetectionUnavailable), 0);
    });
}

/// The threshold equals the one before the needless timeout.
#[test]
fn probe_reduction_after_needless_rto_answers_its_ack() {
    let setup = Setup {
        initial_window: 6,
        rtt: RTT,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        react_to_pending(wire, 201);
        assert_eq!((counted(wire), threshold(wire)), ((1, 1), 3));
        wire.sends("401:501");
        wire.hold_echo(true);
        wire.expect("401:501");
        wire.ack(501);
        wire.hold_echo(false);
        wire.ack_duplicate(501, "401:501", "");
        // The window grows by one segment each time it is full.
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
        // Everything before it was lost, including the probe.
        wire.sends("1701:2001");
        wire.ack(2001);
        react_to_pending(wire, 2001);
        assert_eq!(counted(wire), (2, 1));
    });
}
