//! Tests the adaptive level: the number of previous segments follows the observed losses.

use std::time::Duration;

use pillion_bpf::{Level, LossRule, Options, Reaction, ThinTest};
use pillion_tests::{Setup, Wire, limit_one, sysctl};

/// Targets at most one unrepaired segment in a thousand.
fn adaptive(max_packets: u32) -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        level: Some(Level::Adaptive),
        loss_rule: LossRule::Dsack,
        reaction: Some(Reaction::None),
        max_packets: Some(max_packets),
        ..limit_one()
    })
}

/// Sends two segments; the first is lost and repaired by the second.
fn lose_one(wire: &mut Wire, at: u32) -> u32 {
    wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
    wire.ack(at + 200);
    at + 200
}

/// Returns how many of four outstanding segments the next one carries. All of them arrive.
fn level(wire: &mut Wire, at: u32) -> u32 {
    for _ in 0..4 {
        wire.write(100);
        wire.read();
    }
    wire.write(100);
    let (start, end) = wire.read();
    assert_eq!(end, at + 500);
    wire.ack_duplicate(end, &format!("{start}:{}", end - 100), "");
    (end - 100 - start) / 100
}

#[test]
fn level_starts_at_one_previous_segment() {
    adaptive(0).run(|wire| wire.sends("1:101 1:201 101:301 201:401"));
}

#[test]
fn level_rises_with_losses_and_falls_back_to_one() {
    adaptive(0).run(|wire| {
        let mut at = 1;
        for _ in 0..20 {
            at = lose_one(wire, at);
        }
        let raised_level = level(wire, at);
        assert!(raised_level > 1, "{raised_level}");
        at += 500;
        // Counters are halved every 1,024 segments.
        for _ in 0..6 * 1024 {
            wire.write(100);
            wire.read();
            at += 100;
            wire.ack(at);
        }
        assert_eq!(level(wire, at), 1);
    });
}

/// Segments that bundles cannot repair count neither as lost nor as sent.
#[test]
fn losses_of_oversized_segments_do_not_raise_level() {
    Setup {
        rto_min: Duration::from_millis(250),
        timestamps: true,
        ..adaptive(0)
    }
    .run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        let mut at = 1;
        for _ in 0..4 {
            let end = at + wire.mss();
            wire.sends(&format!("{at}:{end}"));
            wire.expect(&format!("{at}:{end}"));
            wire.ack(end);
            at = end;
        }
        // By now TCP's window is small.
        for end in [at + 200, at + 400, at + 600, at + 800] {
            wire.sends(&format!("{at}:{} {at}:{end}", at + 100));
            wire.ack_duplicate(end, &format!("{at}:{}", at + 100), "");
            at = end;
        }
        let (second, third, end) = (at + 100, at + 200, at + 300);
        wire.sends(&format!("{at}:{second} {at}:{third} {second}:{end}"));
    });
}

#[test]
fn large_writes_between_losses_do_not_lower_level() {
    adaptive(0).run(|wire| {
        let mut at = 1;
        for _ in 0..40 {
            at = lose_one(wire, at);
        }
        let raised_level = level(wire, at);
        assert!(raised_level > 1, "{raised_level}");
        at += 500;
        for _ in 0..200 {
            let end = at + 20 * wire.mss();
            wire.write(end - at);
            while wire.read().1 != end {}
            wire.ack(end);
            at = end;
        }
        assert_eq!(level(wire, at), raised_level);
    });
}

#[test]
fn level_never_exceeds_ceiling() {
    adaptive(2).run(|wire| {
        let mut at = 1;
        for _ in 0..20 {
            at = lose_one(wire, at);
        }
        assert_eq!(level(wire, at), 2);
    });
}

/// A run of six losses at level three leaves three segments unrepaired, which is one in a hundred
/// sent. At any level the run alone would count as fewer.
#[test]
fn loss_run_counts_segments_left_unrepaired() {
    let options = Options {
        thin: ThinTest::Always,
        level: Some(Level::Adaptive),
        target: Some("1%".parse().expect("one per cent")),
        loss_rule: LossRule::Dsack,
        reaction: Some(Reaction::None),
        max_packets: Some(0),
        ..limit_one()
    };
    let setup = Setup {
        rto_min: Duration::from_millis(250),
        ..Setup::bundling(options)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        // All are lost, and TCP's own retransmission delivers them.
        wire.sends("1:11 1:21 11:31 21:41 31:51 41:61");
        wire.expect("1:61");
        wire.ack(61);
        let mut at = 61;
        // Full windows let the congestion window grow.
        for count in [2, 4, 8] {
            let mut last = (at, at);
            for _ in 0..count {
                wire.write(10);
                last = wire.read();
            }
            at = last.1;
            wire.ack_duplicate(at, &format!("{}:{}", last.0, at - 10), "");
        }
        while at < 3061 {
            wire.write(10);
            wire.read();
            at += 10;
            wire.ack(at);
        }
        for _ in 0..5 {
            wire.write(10);
            at += 10;
        }
        let ranges = (0..5).map(|_| wire.read());
        assert_eq!(ranges.last(), Some((at - 40, at)));
    });
}
