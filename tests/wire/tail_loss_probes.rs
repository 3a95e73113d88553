//! Tests tail loss probes (RFC 8985, section 7) that repeat only the new segment of a bundle before
//! its ACK arrives. This happens each time that messages are slightly further apart than the
//! timeout minus the RTT.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::{LossRule, Options};
use pillion_tests::{Setup, Wire, limit_one, sysctl};

const RTT: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 6;

/// Expects the probe. The next ACK answers data sent before it.
fn probe(wire: &mut Wire, at: u32) {
    wire.hold_echo(true);
    wire.expect(&format!("{}:{}", at + 100, at + 200));
}

/// Reports the probe as a duplicate.
fn report_probe(wire: &mut Wire, at: u32) {
    wire.hold_echo(false);
    wire.ack_duplicate(at + 200, &format!("{}:{}", at + 100, at + 200), "");
}

fn probed(
    rounds: u32,
    timestamps: bool,
    round: impl Fn(&mut Wire, u32) + Sync,
    check: impl Fn(&mut Wire) + Sync,
) {
    let setup = Setup {
        rtt: RTT,
        timestamps,
        rto_min: Duration::ZERO,
        initial_window: 10,
        ..Setup::bundling(limit_one())
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        // The receiver is known to send DSACKs.
        wire.sends("1:101 1:201");
        sleep(RTT);
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        for number in 0..rounds {
            let at = 201 + 300 * number;
            wire.sends(&format!("{at}:{}", at + 100));
            sleep(Duration::from_millis(250));
            wire.sends(&format!("{at}:{}", at + 200));
            round(wire, at);
            wire.sends(&format!("{}:{}", at + 200, at + 300));
            sleep(RTT);
            wire.ack(at + 300);
        }
        check(wire);
    });
}

#[test]
fn repaired_loss_is_found_despite_probe() {
    for timestamps in [true, false] {
        let round = |wire: &mut Wire, at: u32| {
            probe(wire, at);
            wire.ack(at + 200);
            report_probe(wire, at);
        };
        probed(ROUNDS, timestamps, round, |wire| {
            let counters = wire.totals().counters;
            assert_eq!(counters.hidden_losses, u64::from(ROUNDS), "{timestamps}");
            assert!(counters.reactions > 0, "{timestamps}");
        });
    }
}

#[test]
fn dsack_in_bundle_ack_rules_out_loss_despite_probe() {
    for timestamps in [true, false] {
        let round = |wire: &mut Wire, at: u32| {
            probe(wire, at);
            wire.ack(at + 100);
            wire.ack_duplicate(at + 200, &format!("{at}:{}", at + 100), "");
            report_probe(wire, at);
        };
        probed(ROUNDS, timestamps, round, |wire| {
            assert_eq!(wire.totals().counters.hidden_losses, 0, "{timestamps}");
        });
    }
}

/// The ACK of the first segment was lost, and so was the bundle.
#[test]
fn timestamps_distinguish_ack_of_probe_from_bundle() {
    let round = |wire: &mut Wire, at: u32| {
        wire.expect(&format!("{}:{}", at + 100, at + 200));
        sleep(RTT);
        wire.ack(at + 200);
    };
    // Three lost bundles in a row would lower the path's size limit.
    probed(2, true, round, |wire| {
        assert_eq!(wire.totals().counters.hidden_losses, 0);
    });
}

/// The receiver had not acknowledged yet and can report one range: the DSACK of the probe replaced
/// that of the bundle.
#[test]
fn dsack_of_probe_reveals_nothing_about_bundle() {
    for timestamps in [true, false] {
        let round = |wire: &mut Wire, at: u32| {
            probe(wire, at);
            wire.hold_echo(false);
            wire.ack_duplicate(at + 200, &format!("{}:{}", at + 100, at + 200), "");
        };
        probed(ROUNDS, timestamps, round, |wire| {
            assert_eq!(wire.totals().counters.hidden_losses, 0, "{timestamps}");
        });
    }
}

/// The ACK of the first segment is delayed and the bundle is lost, so the echoed timestamp is older
/// than the bundle.
#[test]
fn older_timestamp_echo_does_not_prove_bundle() {
    let setup = Setup {
        rtt: RTT,
        timestamps: true,
        rto_min: Duration::ZERO,
        initial_window: 10,
        ..Setup::bundling(Options {
            loss_rule: LossRule::Dsack,
            published: true, // no reordering window
            ..limit_one()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        wire.sends("1:101");
        sleep(RTT);
        wire.ack(101);
        wire.sends("101:201");
        wire.hold_echo(true);
        sleep(Duration::from_millis(20));
        wire.sends("101:301");
        wire.expect("201:301");
        wire.ack(301);
        assert_eq!(wire.totals().counters.hidden_losses, 0);
    });
}

#[test]
fn probe_does_not_mark_bundle_as_too_large() {
    for timestamps in [true, false] {
        let round = |wire: &mut Wire, at: u32| {
            probe(wire, at);
            wire.ack(at + 200);
            report_probe(wire, at);
        };
        // probed() fails if a bundle is missing.
        probed(ROUNDS, timestamps, round, |_| {});
    }
}

/// While processing the ACK, TCP finds that its probe was needed and reduces the window.
#[test]
fn reduction_for_probe_answers_losses_in_its_ack() {
    let setup = Setup {
        rtt: RTT,
        rto_min: Duration::ZERO,
        initial_window: 10,
        ..Setup::bundling(Options {
            max_packets: Some(0),
            loss_rule: LossRule::Dsack,
            published: true, // no reordering window
            ..limit_one()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        wire.sends("1:101 1:201");
        wire.expect("101:201");
        // Everything before it was lost, including the probe.
        wire.sends("1:301");
        wire.ack(301);
        wire.sends("301:401");
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (1, 0));
        assert_eq!(wire.tcp_info().tcpi_snd_ssthresh, 5);
        // Later losses have not caused a reaction yet.
        wire.sends("301:501");
        sleep(RTT);
        wire.ack(501);
        wire.sends("501:601");
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (2, 1));
    });
}
