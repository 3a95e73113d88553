//! Tests that only thin streams are bundled. A delayed handshake makes the RTT long; margins are
//! large so that a busy machine does not matter.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NoLoss, NoRtt, NotThin, NothingOutstanding, Retransmission};
use pillion_bpf::{Options, ThinRtt, ThinTest};
use pillion_tests::{Opening, Setup, limit_one};

const RTT: Duration = Duration::from_millis(600);

fn thin(thin: ThinTest) -> Setup {
    Setup::bundling(Options {
        thin,
        max_packets: Some(1),
        max_bytes: 0,
        ..limit_one()
    })
}

fn dpifl(itt_min_ms: u64) -> Setup {
    let itt_min = Duration::from_millis(itt_min_ms);
    thin(ThinTest::Dpifl { itt_min })
}

fn spifl(limit: u32) -> Setup {
    thin(ThinTest::Spifl { limit })
}

#[test]
fn dpifl_stops_bundling_at_limit_and_resumes_after_acks() {
    for opening in [Opening::Active, Opening::Passive] {
        let setup = Setup {
            rtt: RTT,
            opening,
            ..dpifl(250)
        };
        setup.run(|wire| {
            wire.sends("1:101 1:201 101:301 301:401");
            sleep(RTT);
            wire.ack(201);
            wire.sends("301:501 501:601");
            sleep(RTT);
            wire.ack(601);
            wire.sends("601:701 601:801");
            wire.assert_outcomes(&[(Bundled, 4), (NothingOutstanding, 2), (NotThin, 2)]);
        });
    }
}

#[test]
fn dpifl_defaults_to_10_ms() {
    let rtt = Duration::from_millis(100);
    let setup = Setup {
        rtt,
        ..Setup::bundling(limit_one())
    };
    setup.run(|wire| wire.sends("1:101 1:201 101:301 201:401"));
}

#[test]
fn shorter_minimum_rtt_makes_stream_less_thin() {
    let setup = Setup {
        rtt: RTT,
        ..dpifl(300)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 301:401");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 2), (NotThin, 1)]);
    });
}

#[test]
fn stream_without_rtt_sample_is_not_thin() {
    // The kernel repeats its SYN-ACK after one second, so the answer gives no RTT sample.
    let setup = Setup {
        opening: Opening::Passive,
        rtt: Duration::from_millis(1500),
        ..dpifl(10)
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201 201:301");
        wire.assert_outcomes(&[(NothingOutstanding, 1), (NoRtt, 2)]);
        sleep(RTT);
        wire.ack(301);
        wire.sends("301:401 301:501");
    });
}

#[test]
fn spifl_allows_exactly_its_limit_in_flight() {
    spifl(2).run(|wire| {
        wire.sends("1:101 1:201 101:301 301:401");
        wire.ack(201);
        wire.sends("301:501 501:601");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 1), (NotThin, 2)]);
    });
    spifl(0).run(|wire| wire.sends("1:101 101:201"));
}

#[test]
fn in_flight_counts_retransmitted_but_not_lost_or_sacked() {
    spifl(2).run(|wire| {
        wire.sends("1:101 1:201 101:301 301:401 401:501");
        wire.ack_sack(1, "101:501");
        wire.expect("1:101");
        wire.sends("401:601 501:701 701:801");
    });
}

#[test]
fn bundling_can_wait_for_first_loss() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            wait_for_loss: true,
            ..limit_one()
        })
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        wire.expect("1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        wire.assert_outcomes(&[
            (Bundled, 1),
            (NothingOutstanding, 2),
            (NoLoss, 1),
            (Retransmission, 1),
        ]);
    });
}

/// The handshake's RTT is short and that of the data long: the minimum stays, the smoothed RTT
/// grows.
#[test]
fn dpifl_can_use_smoothed_rtt() {
    for (rtt, third) in [(ThinRtt::Min, "401:501"), (ThinRtt::Smoothed, "301:501")] {
        let options = Options {
            thin: ThinTest::Dpifl {
                itt_min: Duration::from_millis(60),
            },
            thin_rtt: rtt,
            ..limit_one()
        };
        Setup::bundling(options).run(|wire| {
            for (start, end) in [(1, 101), (101, 201), (201, 301)] {
                wire.sends(&format!("{start}:{end}"));
                sleep(RTT);
                wire.ack(end);
            }
            wire.sends("301:401");
            wire.write(100);
            wire.expect(third);
        });
    }
}
