//! TCP probes the tail with the segment of a bundle, alone, before the bundle's ACK is there
//! (RFC 8985, section 7): where messages come a little later than the time-out less the round-trip
//! time, it does so each time.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::{LossRule, Options};
use pillion_tests::{Setup, Wire, sysctl};

const RTT: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 6;

/// Its ACK, which comes later, answers what came before it.
fn probe(wire: &mut Wire, at: u32) {
    wire.hold_echo(true);
    wire.expect(&format!("{}:{}", at + 100, at + 200));
}

/// The probe brought nothing new.
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
        ..Setup::bundling(Options::default())
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        // The receiver is known to report.
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
fn the_loss_that_a_bundle_repaired_is_found_though_its_segment_was_probed() {
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
fn what_the_bundles_ack_reports_was_not_lost_though_its_segment_was_probed() {
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

/// The first one's ACK was lost, and so was the bundle.
#[test]
fn timestamps_tell_a_probes_ack_from_the_bundles() {
    let round = |wire: &mut Wire, at: u32| {
        wire.expect(&format!("{}:{}", at + 100, at + 200));
        sleep(RTT);
        wire.ack(at + 200);
    };
    // Three bundles lost in a row would be too large for the path.
    probed(2, true, round, |wire| {
        assert_eq!(wire.totals().counters.hidden_losses, 0);
    });
}

/// The receiver had not acknowledged yet, and had room for one report: that of the probe took the place
/// of the bundle's.
#[test]
fn a_report_of_the_probe_tells_nothing_of_what_the_bundle_brought() {
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

/// The first one's ACK is delayed, the bundle lost: what is echoed is older than the bundle.
#[test]
fn an_echo_from_before_the_bundle_is_no_sign_of_it() {
    let setup = Setup {
        rtt: RTT,
        timestamps: true,
        rto_min: Duration::ZERO,
        initial_window: 10,
        ..Setup::bundling(Options {
            loss_rule: LossRule::Dsack,
            published: true, // no reordering window
            ..Options::default()
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
fn a_probe_does_not_make_the_bundle_too_large_for_the_path() {
    for timestamps in [true, false] {
        let round = |wire: &mut Wire, at: u32| {
            probe(wire, at);
            wire.ack(at + 200);
            report_probe(wire, at);
        };
        // In probed(), a bundle that does not leave fails.
        probed(ROUNDS, timestamps, round, |_| {});
    }
}

/// TCP finds within the ACK that its probe was needed, and reduces the window there and then.
#[test]
fn a_reduction_for_a_probe_answers_what_its_ack_tells_of() {
    let setup = Setup {
        rtt: RTT,
        rto_min: Duration::ZERO,
        initial_window: 10,
        ..Setup::bundling(Options {
            max_packets: Some(0),
            loss_rule: LossRule::Dsack,
            published: true, // no reordering window
            ..Options::default()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        wire.sends("1:101 1:201");
        wire.expect("101:201");
        // All before it was lost, the probe as well.
        wire.sends("1:301");
        wire.ack(301);
        wire.sends("301:401");
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (1, 0));
        assert_eq!(wire.tcp_info().tcpi_snd_ssthresh, 5);
        // What is lost behind that is not answered yet.
        wire.sends("301:501");
        sleep(RTT);
        wire.ack(501);
        wire.sends("501:601");
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (2, 1));
    });
}
