//! A hidden loss reduces the window only if the stream sends more than TFRC-SP allows.

use std::thread;
use std::time::Duration;

use pillion_bpf::{LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Setup, Wire};

/// A connection whose handshake took so long.
fn setup(rtt: Duration) -> Setup {
    reacting(Reaction::TfrcSp, rtt)
}

fn reacting(reaction: Reaction, rtt: Duration) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        reaction,
        loss_rule: LossRule::Dsack,
        published: true, // no reordering window
        ..Options::default()
    };
    Setup {
        initial_window: 10,
        rtt,
        ..Setup::bundling(options)
    }
}

/// Reactions, and those that were spared.
fn reactions(wire: &Wire) -> (u64, u64) {
    let counters = wire.totals().counters;
    (counters.reactions, counters.reactions_spared)
}

fn window(wire: &Wire) -> u32 {
    wire.tcp_info().tcpi_snd_cwnd
}

/// Sends a segment that is lost and one that repairs it; returns the position behind.
fn hides_a_loss(wire: &mut Wire, at: u32) -> u32 {
    wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
    wire.ack(at + 200);
    at + 200
}

/// Sends segments that arrive; returns the position behind.
fn sends_well(wire: &mut Wire, at: u32, segments: u32) -> u32 {
    for start in (at..).step_by(100).take(segments as usize) {
        wire.sends(&format!("{start}:{}", start + 100));
        wire.ack(start + 100);
    }
    at + segments * 100
}

#[test]
fn a_thin_stream_below_its_allowance_keeps_its_window() {
    setup(Duration::from_millis(20)).run_everywhere(|wire| {
        let at = sends_well(wire, 1, 20);
        let at = hides_a_loss(wire, at);
        let before = window(wire);
        sends_well(wire, at, 2);
        assert_eq!(reactions(wire), (0, 1));
        assert!(window(wire) >= before);
        assert_eq!(wire.totals().counters.hidden_losses, 1);
    });
}

#[test]
fn what_was_sent_counts_with_redundant_bytes() {
    setup(Duration::from_millis(20)).run(|wire| {
        let at = hides_a_loss(wire, 1);
        wire.sends(&format!("{at}:{}", at + 100));
        let decision = wire.totals().decision.expect("a decision");
        assert_eq!(decision.rate_sent, 100 + 200);
    });
}

#[test]
fn at_a_long_rtt_many_hidden_losses_reduce_the_window() {
    setup(Duration::from_millis(300)).run(|wire| {
        // Every other packet is lost, and the smoothed RTT falls slowly from the handshake's.
        let mut at = 1;
        for _ in 0..4 {
            at = hides_a_loss(wire, at);
            thread::sleep(Duration::from_millis(20));
        }
        sends_well(wire, at, 1);
        let (reactions, _) = reactions(wire);
        let decision = wire.totals().decision.expect("a decision");
        assert!(reactions >= 1, "{decision:?}");
        assert!(decision.rate_sent > decision.rate_allowed, "{decision:?}");
        assert!(wire.tcp_info().tcpi_snd_ssthresh <= 10);
    });
}

#[test]
fn more_than_a_hundred_packets_a_second_are_too_many_whatever_their_bytes() {
    setup(Duration::from_millis(2)).run(|wire| {
        let at = sends_well(wire, 1, 120);
        let at = hides_a_loss(wire, at);
        sends_well(wire, at, 1);
        let decision = wire.totals().decision.expect("a decision");
        assert_eq!(reactions(wire), (1, 0), "{decision:?}");
        assert!(decision.rate_sent < decision.rate_allowed, "{decision:?}");
    });
}

#[test]
fn a_loss_after_a_spared_one_is_judged_anew() {
    setup(Duration::from_millis(20)).run(|wire| {
        let mut at = sends_well(wire, 1, 20);
        for _ in 0..3 {
            at = hides_a_loss(wire, at);
        }
        sends_well(wire, at, 1);
        assert_eq!(reactions(wire), (0, 3));
    });
}

/// The rate allowed after eleven segments and a hidden loss; the first of all was retransmitted
/// by TCP, or arrived.
fn allowed_after(retransmitted: bool) -> u32 {
    let mut allowed = 0;
    // Long enough for the smoothed RTT to be much the same in both cases.
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
        let at = sends_well(wire, 101, 10);
        let at = hides_a_loss(wire, at);
        sends_well(wire, at, 1);
        let totals = wire.totals();
        assert_eq!(
            totals.counters.of(Outcome::OldData),
            u64::from(retransmitted)
        );
        assert_eq!(totals.counters.hidden_losses, 1);
        allowed = totals.decision.expect("a decision").rate_allowed;
    });
    allowed
}

#[test]
fn what_tcp_sends_again_raises_the_loss_event_rate() {
    let (with, without) = (allowed_after(true), allowed_after(false));
    assert!(with < without / 3, "{with} of {without} bytes/s");
}

#[test]
fn other_reactions_decide_nothing() {
    for reaction in [Reaction::Cwr, Reaction::None] {
        reacting(reaction, Duration::ZERO).run(|wire| {
            let at = hides_a_loss(wire, 1);
            sends_well(wire, at, 1);
            let expected = u64::from(reaction == Reaction::Cwr);
            assert_eq!(reactions(wire), (expected, 0));
            assert_eq!(wire.totals().decision, None);
        });
    }
}
