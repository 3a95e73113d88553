//! Tests that a hidden loss reduces the window only if the stream exceeds its TFRC-SP rate.

use std::thread;
use std::time::Duration;

use pillion_bpf::{LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Setup, Wire, limit_one};

/// Returns a connection with this handshake RTT.
fn setup(rtt: Duration) -> Setup {
    reacting(Reaction::TfrcSp, rtt)
}

fn reacting(reaction: Reaction, rtt: Duration) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        reaction: Some(reaction),
        loss_rule: LossRule::Dsack,
        published: true, // no reordering window
        ..limit_one()
    };
    Setup {
        initial_window: 10,
        rtt,
        ..Setup::bundling(options)
    }
}

/// Returns reactions and suppressed reactions.
fn reactions(wire: &Wire) -> (u64, u64) {
    let counters = wire.totals().counters;
    (counters.reactions, counters.reactions_suppressed)
}

fn window(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_cwnd
}

/// Sends a segment that is lost and one that repairs it. Returns the position after both.
fn hide_loss(wire: &mut Wire, at: u32) -> u32 {
    wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
    wire.ack(at + 200);
    at + 200
}

/// Sends segments that arrive. Returns the position after the last.
fn send_delivered(wire: &mut Wire, at: u32, segments: u32) -> u32 {
    for start in (at..).step_by(100).take(segments as usize) {
        wire.sends(&format!("{start}:{}", start + 100));
        wire.ack(start + 100);
    }
    at + segments * 100
}

#[test]
fn thin_stream_below_allowance_keeps_window() {
    setup(Duration::from_millis(20)).run_on_ip_variants(|wire| {
        let at = send_delivered(wire, 1, 20);
        let at = hide_loss(wire, at);
        let before = window(wire);
        send_delivered(wire, at, 2);
        assert_eq!(reactions(wire), (0, 1));
        assert!(window(wire) >= before);
        assert_eq!(wire.totals().counters.hidden_losses, 1);
    });
}

#[test]
fn sent_rate_includes_redundant_bytes() {
    setup(Duration::from_millis(20)).run(|wire| {
        let at = hide_loss(wire, 1);
        wire.sends(&format!("{at}:{}", at + 100));
        let tfrc_decision = wire.totals().tfrc_decision.expect("a decision");
        assert_eq!(tfrc_decision.tfrc_sent_bytes_per_s, 100 + 200);
    });
}

#[test]
fn many_hidden_losses_at_long_rtt_reduce_window() {
    setup(Duration::from_millis(300)).run(|wire| {
        // Every other packet is lost, and the smoothed RTT falls slowly from the handshake's value.
        let mut at = 1;
        for _ in 0..4 {
            at = hide_loss(wire, at);
            thread::sleep(Duration::from_millis(20));
        }
        send_delivered(wire, at, 1);
        let (reactions, _) = reactions(wire);
        let tfrc_decision = wire.totals().tfrc_decision.expect("a decision");
        assert!(reactions >= 1, "{tfrc_decision:?}");
        assert!(
            tfrc_decision.tfrc_sent_bytes_per_s > tfrc_decision.tfrc_allowed_bytes_per_s,
            "{tfrc_decision:?}"
        );
        assert!(wire.tcp_info().tcpi_snd_ssthresh <= 10);
    });
}

#[test]
fn over_100_packets_per_second_reduce_window() {
    setup(Duration::from_millis(2)).run(|wire| {
        let at = send_delivered(wire, 1, 120);
        let at = hide_loss(wire, at);
        send_delivered(wire, at, 1);
        let tfrc_decision = wire.totals().tfrc_decision.expect("a decision");
        assert_eq!(reactions(wire), (1, 0), "{tfrc_decision:?}");
        assert!(
            tfrc_decision.tfrc_sent_bytes_per_s < tfrc_decision.tfrc_allowed_bytes_per_s,
            "{tfrc_decision:?}"
        );
    });
}

#[test]
fn loss_after_suppressed_reaction_is_evaluated_again() {
    setup(Duration::from_millis(20)).run(|wire| {
        let mut at = send_delivered(wire, 1, 20);
        for _ in 0..3 {
            at = hide_loss(wire, at);
        }
        send_delivered(wire, at, 1);
        assert_eq!(reactions(wire), (0, 3));
    });
}

/// Returns the allowed rate after eleven segments and a hidden loss. TCP retransmitted the very
/// first segment if `retransmitted`.
fn allowed_after(retransmitted: bool) -> u32 {
    let mut allowed = 0;
    // Long enough for a similar smoothed RTT in both cases.
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..setup(Duration::from_millis(500))
    };
    setup.run(|wire| {
        wire.sends("1:101");
        if retransmitted {
            wire.expect("1:101");
        }
        wire.ack(101);
        let at = send_delivered(wire, 101, 10);
        let at = hide_loss(wire, at);
        send_delivered(wire, at, 1);
        let totals = wire.totals();
        assert_eq!(
            totals.counters.of(Outcome::Retransmission),
            u64::from(retransmitted)
        );
        assert_eq!(totals.counters.hidden_losses, 1);
        allowed = totals
            .tfrc_decision
            .expect("a decision")
            .tfrc_allowed_bytes_per_s;
    });
    allowed
}

#[test]
fn retransmission_raises_loss_event_rate() {
    let (with, without) = (allowed_after(true), allowed_after(false));
    assert!(with < without / 3, "{with} of {without} bytes/s");
}

#[test]
fn other_reactions_ignore_tfrc_allowance() {
    for reaction in [Reaction::Cwr, Reaction::None] {
        reacting(reaction, Duration::ZERO).run(|wire| {
            let at = hide_loss(wire, 1);
            send_delivered(wire, at, 1);
            let expected = u64::from(reaction == Reaction::Cwr);
            assert_eq!(reactions(wire), (expected, 0));
            assert_eq!(wire.totals().tfrc_decision, None);
        });
    }
}
