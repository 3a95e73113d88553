//! The reaction to a hidden loss is what congestion control decides for any other sign of
//! congestion. One that sets its window itself, as BBR does, ignores CWR.

use std::thread::sleep;
use std::time::Duration;

use pillion_bpf::Outcome::OverShare;
use pillion_bpf::{LossRule, Options, ThinTest, offered_congestion_controls};
use pillion_tests::{Setup, Wire};

/// How a sender learns of congestion, four segments having left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// By pillion, with the next segment.
    HiddenLoss,
    /// By selective acknowledgements, and so retransmits.
    FastRetransmit,
    /// By the echo of a mark on a packet (RFC 3168).
    EchoedMark,
}

/// Windows are in segments.
struct Reduction {
    before: u32,
    ssthresh: u32,
    /// `TCP_CA_CWR` is 2, `TCP_CA_Recovery` 3.
    state: u8,
    during: u32,
    after: u32,
}

const CWR: u8 = 2;
const RECOVERY: u8 = 3;

fn setup(sign: Sign, initial_window: u32) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        published: true, // no reordering window
        ..Options::default()
    };
    let mut setup = Setup {
        initial_window,
        ecn: sign == Sign::EchoedMark,
        ..Setup::bundling(options)
    };
    if sign != Sign::HiddenLoss {
        setup.bundlers.clear();
    }
    setup
}

/// Sends four segments, tells of congestion, and goes on until it is over.
fn meets(wire: &mut Wire, sign: Sign) -> Reduction {
    let before = wire.tcp_info().tcpi_snd_cwnd;
    match sign {
        Sign::HiddenLoss => {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            // 201:301 is lost.
            wire.ack_duplicate(401, "1:201", "");
            wire.sends("401:501");
        }
        Sign::FastRetransmit => {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_sack(1, "101:401");
            wire.expect("1:101");
        }
        Sign::EchoedMark => {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_echo(101);
        }
    }
    let info = wire.tcp_info();
    let next = if sign == Sign::HiddenLoss { 501 } else { 401 };
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

fn reduction(congestion: &str, initial_window: u32, sign: Sign) -> Option<Reduction> {
    let mut seen = None;
    setup(sign, initial_window).run(|wire| {
        let option = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
        wire.set_option(option, congestion.as_bytes());
        seen = Some(meets(wire, sign));
    });
    seen
}

/// They differ on the way there: proportional rate reduction (RFC 6937) sets the window
/// anew with each ACK, by what is in flight and what arrived. The echo and the selective
/// acknowledgements are such ACKs themselves; after a hidden loss the next one is. And what
/// began as recovery from a loss may be undone, while CWR never is.
fn assert_the_same(congestion: &str) {
    let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = available.unwrap_or_default();
    if !available.split_whitespace().any(|name| name == congestion) {
        println!("left out, for the kernel has no {congestion}");
        return;
    }
    for initial_window in [10, 24] {
        let signs = [Sign::HiddenLoss, Sign::FastRetransmit, Sign::EchoedMark];
        let seen = signs.map(|sign| reduction(congestion, initial_window, sign));
        let [Some(hidden), Some(loss), Some(mark)] = &seen else {
            return; // without root
        };
        println!("{congestion}          window ssthresh in between after");
        for (sign, seen) in signs.iter().zip([hidden, loss, mark]) {
            let sign = format!("{sign:?}");
            let (before, ssthresh) = (seen.before, seen.ssthresh);
            let (during, after) = (seen.during, seen.after);
            println!("{sign:14} {before:6} {ssthresh:8} {during:10} {after:5}");
        }
        assert_eq!([hidden.state, loss.state, mark.state], [CWR, RECOVERY, CWR]);
        let decided = |seen: &Reduction| (seen.before, seen.ssthresh, seen.after);
        assert_eq!(decided(hidden), decided(loss));
        assert_eq!(decided(hidden), decided(mark));
        assert_eq!(hidden.before, initial_window);
        assert_eq!(hidden.after, hidden.ssthresh);
    }
}

#[test]
fn renos_window_is_reduced_as_for_a_loss_or_a_mark() {
    assert_the_same("reno");
}

#[test]
fn cubics_window_is_reduced_as_for_a_loss_or_a_mark() {
    assert_the_same("cubic");
}

/// A connection with this RTT that has hidden a loss, if the kernel has its congestion control.
fn after_a_hidden_loss(congestion: &str, rtt_ms: u64, test: impl FnOnce(&mut Wire) + Send) {
    if !offered_congestion_controls().contains(&congestion.to_owned()) {
        println!("left out without {congestion}");
        return;
    }
    let setup = Setup {
        rtt: Duration::from_millis(rtt_ms),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            loss_rule: LossRule::Dsack,
            ..Options::default()
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

fn over_share(wire: &Wire) -> u64 {
    wire.totals().counters.of(OverShare)
}

#[test]
fn no_reaction_is_counted_that_bbr_ignores() {
    for (congestion, expected) in [("bbr", 0), ("reno", 1)] {
        after_a_hidden_loss(congestion, 20, |wire| {
            wire.sends("201:301 201:401");
            let counters = wire.totals().counters;
            assert_eq!((counters.hidden_losses, counters.reactions), (1, expected));
            assert_eq!(wire.flow().ignores_cwr, congestion == "bbr");
        });
    }
}

#[test]
fn under_bbr_nothing_is_bundled_above_the_fair_share() {
    after_a_hidden_loss("bbr", 300, |wire| {
        wire.sends("201:301 301:401");
        assert_eq!(over_share(wire), 1);
    });
}

#[test]
fn under_reno_a_reduction_follows_instead() {
    after_a_hidden_loss("reno", 300, |wire| {
        wire.sends("201:301 201:401");
        assert_eq!(over_share(wire), 0);
    });
}
