//! Tests that congestion control decides the reaction to a hidden loss as for any other congestion
//! signal. Algorithms that set their window themselves, such as BBR, ignore CWR.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::Outcome::OverFairShare;
use pillion_bpf::{LossRule, Options, ThinTest, available_congestion_controls};
use pillion_tests::{Setup, Wire, limit_one};

/// Congestion signal that the sender receives after four segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CongestionSignal {
    /// From pillion, with the next segment.
    HiddenLoss,
    /// From selective acknowledgements, followed by a retransmission.
    FastRetransmit,
    /// From the echo of an ECN mark (RFC 3168).
    EcnEcho,
}

/// Window sizes in segments around one reduction.
struct Reduction {
    before: u32,
    ssthresh: u32,
    /// `TCP_CA_CWR` is 2, `TCP_CA_Recovery` is 3.
    state: u8,
    during: u32,
    after: u32,
}

const CWR: u8 = 2;
const RECOVERY: u8 = 3;

fn setup(signal: CongestionSignal, initial_window: u32) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        published: true, // no reordering window
        ..limit_one()
    };
    let mut setup = Setup {
        initial_window,
        ecn: signal == CongestionSignal::EcnEcho,
        ..Setup::bundling(options)
    };
    if signal != CongestionSignal::HiddenLoss {
        setup.bundlers.clear();
    }
    setup
}

/// Sends four segments, signals congestion, and continues until the reduction is complete.
fn trigger_congestion(wire: &mut Wire, signal: CongestionSignal) -> Reduction {
    let before = wire.tcp_info().tcpi_snd_cwnd;
    match signal {
        CongestionSignal::HiddenLoss => {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            // 201:301 is lost.
            wire.ack_duplicate(401, "1:201", "");
            wire.sends("401:501");
        }
        CongestionSignal::FastRetransmit => {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_sack(1, "101:401");
            wire.expect("1:101");
        }
        CongestionSignal::EcnEcho => {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_echo(101);
        }
    }
    let info = wire.tcp_info();
    let next = if signal == CongestionSignal::HiddenLoss {
        501
    } else {
        401
    };
    wire.ack(next);
    for start in [next, next + 100] {
        wire.sends(&format!("{start}:{}", start + 100));
        wire.ack(start + 100);
    }
    Reduction {
        before,
        ssthresh: info.tcpi_snd_ssthresh,
        state: info.tcpi_ca_state,
        during: info.tcpi_snd_cwnd,
        after: wire.tcp_info().tcpi_snd_cwnd,
    }
}

fn reduction(congestion: &str, initial_window: u32, signal: CongestionSignal) -> Option<Reduction> {
    let mut reduction = None;
    setup(signal, initial_window).run(|wire| {
        let option = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        wire.set_option(option, congestion.as_bytes());
        reduction = Some(trigger_congestion(wire, signal));
    });
    reduction
}

/// Compares only the start and the end of the reduction. In between, proportional rate reduction
/// (RFC 6937) sets the window with each ACK, by the data in flight and the data delivered. The ECN
/// echo and the selective acknowledgements are such ACKs themselves; after a hidden loss it is the
/// next ACK. Recovery from a loss may be undone, CWR never is.
fn assert_same_reduction(congestion: &str) {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = available.unwrap_or_default();
    if !available.split_whitespace().any(|name| name == congestion) {
        println!("left out: this kernel has no {congestion}");
        return;
    }
    for initial_window in [10, 24] {
        let signals = [
            CongestionSignal::HiddenLoss,
            CongestionSignal::FastRetransmit,
            CongestionSignal::EcnEcho,
        ];
        let reduction = signals.map(|signal| reduction(congestion, initial_window, signal));
        let [Some(hidden), Some(loss), Some(mark)] = &reduction else {
            return; // without root
        };
        println!("{congestion}          window ssthresh in between after");
        for (signal, reduction) in signals.iter().zip([hidden, loss, mark]) {
            let signal = format!("{signal:?}");
            let (before, ssthresh) = (reduction.before, reduction.ssthresh);
            let (during, after) = (reduction.during, reduction.after);
            println!("{signal:14} {before:6} {ssthresh:8} {during:10} {after:5}");
        }
        assert_eq!([hidden.state, loss.state, mark.state], [CWR, RECOVERY, CWR]);
        let result =
            |reduction: &Reduction| (reduction.before, reduction.ssthresh, reduction.after);
        assert_eq!(result(hidden), result(loss));
        assert_eq!(result(hidden), result(mark));
        assert_eq!(hidden.before, initial_window);
        assert_eq!(hidden.after, hidden.ssthresh);
    }
}

#[test]
fn reno_reduces_window_as_for_loss_or_ecn_mark() {
    assert_same_reduction("reno");
}

#[test]
fn cubic_reduces_window_as_for_loss_or_ecn_mark() {
    assert_same_reduction("cubic");
}

/// Runs a test on a connection with this RTT that has hidden a loss. Skipped if the kernel lacks
/// the congestion control.
fn after_hidden_loss(congestion: &str, rtt_ms: u64, test: impl FnOnce(&mut Wire) + Send) {
    if !available_congestion_controls().contains(&congestion.to_owned()) {
        println!("left out without {congestion}");
        return;
    }
    let setup = Setup {
        rtt: Duration::from_millis(rtt_ms),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            loss_rule: LossRule::Dsack,
            ..limit_one()
        })
    };
    setup.run(|wire| {
        let option = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        wire.set_option(option, congestion.as_bytes());
        wire.sends("1:101 1:201");
        wire.ack(201);
        // A reaction waits for a quarter of the RTT.
        sleep(Duration::from_millis(100));
        test(wire);
    });
}

fn over_fair_share(wire: &Wire) -> u64 {
    wire.totals().counters.of(OverFairShare)
}

#[test]
fn reaction_ignored_by_bbr_is_not_counted() {
    for (congestion, expected) in [("bbr", 0), ("reno", 1)] {
        after_hidden_loss(congestion, 20, |wire| {
            wire.sends("201:301 201:401");
            let counters = wire.totals().counters;
            assert_eq!((counters.hidden_losses, counters.reactions), (1, expected));
            assert_eq!(wire.flow().ignores_cwr, congestion == "bbr");
        });
    }
}

#[test]
fn bbr_stream_above_fair_share_is_not_bundled() {
    after_hidden_loss("bbr", 300, |wire| {
        wire.sends("201:301 301:401");
        assert_eq!(over_fair_share(wire), 1);
    });
}

#[test]
fn reno_stream_above_fair_share_reduces_window() {
    after_hidden_loss("reno", 300, |wire| {
        wire.sends("201:301 201:401");
        assert_eq!(over_fair_share(wire), 0);
    });
}
