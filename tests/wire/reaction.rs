//! Tests the reaction to a hidden loss: the kernel reduces the window once per window of data.

use std::time::Duration;

use pillion_bpf::{LossRule, Options, Reaction, ThinTest};
use pillion_tests::{Ip, Setup, Wire, limit_one, nft, sysctl};

const OPEN: u8 = 0; // TCP_CA_Open
const CWR: u8 = 2; // TCP_CA_CWR

/// Uses the published mechanism, in which the reaction leaves with the next packet.
/// `misleading_dsacks` tests the reordering window.
fn setup(loss_rule: LossRule) -> Setup {
    bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule,
        published: true,
        ..limit_one()
    })
}

fn bundling(options: Options) -> Setup {
    Setup {
        initial_window: 10,
        ..Setup::bundling(options)
    }
}

/// Returns congestion window and slow-start threshold, in segments.
fn windows(wire: &Wire) -> (u32, u32) {
    let info = wire.tcp_info();
    (info.tcpi_snd_cwnd, info.tcpi_snd_ssthresh)
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

#[test]
fn hidden_loss_halves_reno_window_with_next_segment() {
    setup(LossRule::Dsack).run_on_ip_variants(|wire| {
        assert_eq!(windows(wire).0, 10);
        wire.sends("1:101 1:201");
        wire.ack(201);
        assert_eq!(reactions(wire), 0, "nothing has left since");
        wire.sends("201:301");
        assert_eq!(reactions(wire), 1);
        assert_eq!(wire.tcp_info().tcpi_ca_state, CWR);
        assert_eq!(windows(wire).1, 5);
        wire.ack(301);
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(windows(wire).0, 5);
    });
}

#[test]
fn losses_of_one_window_reduce_it_once() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack(201);
        wire.sends("201:601");
        assert_eq!(reactions(wire), 1);
        // 201:301 and 401:501 were in flight at the reduction.
        wire.ack_duplicate(401, "1:201", "");
        wire.ack_duplicate(601, "201:401", "");
        wire.sends("601:701");
        let counters = wire.totals().counters;
        assert!(counters.hidden_losses >= 3, "{counters:?}");
        assert_eq!(reactions(wire), 1);
        assert_eq!(windows(wire).1, 5);
    });
}

#[test]
fn loss_in_next_window_reduces_it_again() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
        wire.ack(301);
        wire.sends("301:401 301:501");
        wire.ack(501);
        wire.sends("501:601");
        assert_eq!(reactions(wire), 2);
        assert_eq!(windows(wire).1, 2);
    });
}

/// Until the receiver is known to send DSACKs, a missing one may mean a loss or not.
#[test]
fn suspected_loss_causes_reaction_once_confirmed() {
    setup(LossRule::Auto).run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        wire.ack(301);
        wire.ack_duplicate(401, "201:301", "");
        wire.sends("401:501");
        assert_eq!(wire.totals().counters.hidden_losses, 1);
        assert_eq!(reactions(wire), 1);
    });
}

/// The queued ACK completes the kernel's reduction, but the kernel has not processed it yet.
#[test]
fn loss_in_next_window_counts_while_its_ack_is_queued() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        assert_eq!(reactions(wire), 1);
        if !wire.write_while_held(50, |wire| wire.ack_without_waiting(401, "")) {
            println!("left out: this kernel has no userfaultfd");
            return;
        }
        wire.expect("201:451");
        wire.ack_duplicate(451, "201:401", "");
        wire.sends("451:551");
        assert_eq!(wire.totals().counters.hidden_losses, 2);
        assert_eq!(reactions(wire), 2);
    });
}

/// TCP sees the error, which hides the congestion signal.
#[test]
fn reaction_moves_to_next_packet_after_send_error() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        if !wire.refuse_at_route(true) {
            println!("left out: this kernel has no programs at routes");
            return;
        }
        wire.write(100);
        assert_eq!((reactions(wire), wire.tcp_info().tcpi_ca_state), (1, OPEN));
        wire.refuse_at_route(false);
        wire.write(100);
        wire.expect("201:401");
        assert_eq!(wire.tcp_info().tcpi_ca_state, CWR);
        wire.ack(401);
        // The signal was received: the same loss causes no further reaction.
        wire.sends("401:501");
        wire.ack(501);
        wire.sends("501:601");
        assert_eq!((reactions(wire), windows(wire)), (1, (5, 5)));
    });
}

#[test]
fn window_stays_without_loss() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.sends("201:301");
        assert_eq!((reactions(wire), windows(wire).0), (0, 10));
    });
}

#[test]
fn later_reordering_does_not_repeat_reaction() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
        wire.ack_duplicate(201, "1:101", "");
        wire.ack(301);
        wire.sends("301:401");
        assert_eq!((reactions(wire), wire.totals().counters.reordered), (1, 1));
    });
}

#[test]
fn reaction_none_leaves_window() {
    let options = Options {
        thin: ThinTest::Always,
        loss_rule: LossRule::Dsack,
        reaction: Some(Reaction::None),
        published: true,
        ..limit_one()
    };
    bundling(options).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reactions), (1, 0));
        assert_eq!(windows(wire).0, 10);
    });
}

#[test]
fn cubic_reduces_window_by_its_own_factor() {
    setup(LossRule::Dsack).run(|wire| {
        wire.set_option((libc::IPPROTO_TCP, libc::TCP_CONGESTION), b"cubic");
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
        assert_eq!(windows(wire).1, 7, "717/1024 of 10");
    });
}

/// Half of the sequence space is 2 GiB.
#[test]
fn connection_reacts_after_2_gib() {
    let mss = 65_000;
    Setup {
        mss,
        ..setup(LossRule::Dsack)
    }
    .run(|wire| {
        wire.transfer((1 << 31) + (1 << 27));
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
        assert_eq!(wire.totals().counters.hidden_losses, 1);
        assert_eq!(reactions(wire), 1);
    });
}

#[test]
fn tcp_reduction_causes_no_reaction_after_2_gib_unparsed() {
    Setup {
        ip: Ip::V6,
        mss: 65_000,
        ecn: true,
        ..setup(LossRule::Dsack)
    }
    .run(|wire| {
        let padding = [0, 0, 1, 4, 0, 0, 0, 0];
        wire.set_option((libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS), &padding);
        wire.transfer((1 << 31) + (1 << 27));
        wire.sends("1:101 101:201");
        wire.ack_echo(101);
        wire.sends("201:301");
        wire.ack(301);
        wire.sends("301:401 401:501");
        wire.ack(501);
        wire.sends("501:601");
        assert_eq!(reactions(wire), 0);
    });
}

#[test]
fn loss_outstanding_at_tcp_reduction_causes_no_reaction() {
    let ecn = true;
    Setup {
        ecn,
        ..setup(LossRule::Dsack)
    }
    .run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack_echo(101);
        wire.sends("101:301 101:401");
        wire.ack(301);
        wire.sends("301:501");
        assert_eq!(wire.totals().counters.hidden_losses, 1);
        assert_eq!(reactions(wire), 0);
    });
}

/// Tests of the published RDB. Its reaction came within the ACK, so a window of 10 became 5. Here
/// it comes with the next segment, after the ACK of six segments grew the window to 16.
#[test]
fn ack_of_many_segments_reduces_window_under_ack_rule() {
    for (segments, acked, half) in [(4, 4, 5), (7, 6, 8)] {
        setup(LossRule::Ack).run(|wire| {
            let end = |segments: u32| segments * 50 + 1;
            for segment in 1..=segments {
                wire.sends(&format!("1:{}", end(segment)));
            }
            wire.ack(end(acked));
            let start = end(acked);
            wire.sends(&format!("{start}:{}", end(segments + 1)));
            assert_eq!((reactions(wire), windows(wire).1), (1, half));
            wire.ack(end(segments + 1));
            wire.sends(&format!("{}:{}", end(segments + 1), end(segments + 2)));
            wire.ack(end(segments + 2));
            assert_eq!(windows(wire).0, half);
        });
    }
}

#[test]
fn connection_older_than_bundler_reacts() {
    let bundlers = setup(LossRule::Dsack).bundlers;
    let none = Setup {
        bundlers: Vec::new(),
        ..setup(LossRule::Dsack)
    };
    none.run(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.attach(&bundlers[0]);
        wire.adopt();
        wire.sends("101:201 101:301");
        wire.ack(301);
        wire.sends("301:401");
        assert_eq!((reactions(wire), windows(wire).1), (1, 5));
    });
}

/// The path stalls for longer than a timeout. TCP deems its retransmission needless, because the
/// ACK answers an earlier packet. But the first segment was lost, and a bundle repaired it.
#[test]
fn undone_tcp_reduction_for_repaired_loss_causes_reaction() {
    for (merged, original_first) in [(true, true), (true, false), (false, true)] {
        after_rto(merged, original_first, |wire| {
            wire.ack(201);
            let (window, threshold) = windows(wire);
            let undone = window == 10 && threshold > 10;
            assert_eq!(undone, original_first, "{window}, {threshold}");
            wire.sends("201:301");
            assert_eq!(reactions(wire), u64::from(original_first), "{merged}");
            assert_eq!(windows(wire).1, 5);
            assert_eq!(wire.totals().counters.hidden_losses, 0);
            wire.ack(301);
            wire.sends("301:401");
            assert_eq!(reactions(wire), u64::from(original_first), "once");
        });
    }
}

#[test]
fn undone_tcp_reduction_without_loss_causes_no_reaction() {
    for merged in [true, false] {
        after_rto(merged, true, |wire| {
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            assert_eq!(windows(wire).0, 10);
            wire.sends("201:301");
            assert_eq!(reactions(wire), 0, "{merged}");
        });
    }
}

/// Sends a segment and a bundle with it; TCP retransmits both in one packet, or only the first.
/// With `original_first`, the ACK answers the packet sent before the retransmission.
fn after_rto(merged: bool, original_first: bool, test: impl FnOnce(&mut Wire) + Send) {
    let setup = Setup {
        timestamps: true,
        rto_min: Duration::from_secs(1),
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        sysctl(
            "net.ipv4.tcp_retrans_collapse",
            ["0", "1"][usize::from(merged)],
        );
        wire.sends("1:101 1:201");
        wire.hold_echo(original_first);
        wire.expect(["1:101", "1:201"][usize::from(merged)]);
        test(wire);
    });
}

/// TCP records the gap and its position, but does not reduce the window yet.
#[test]
fn loss_with_gap_in_ack_causes_reaction() {
    let rtt = Duration::from_secs(1);
    let setup = Setup {
        rtt,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.expect_nothing(rtt);
        wire.ack(101);
        wire.ack_without_waiting(101, "401:501");
        wire.ack_sack(301, "401:501");
        wire.sends("401:601");
        assert_eq!(reactions(wire), 1);
    });
}

#[test]
fn loss_found_at_shutdown_causes_reaction() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.finish_while(|wire| {
            wire.ack(201);
            wire.sends("201:301");
            wire.ack(301);
        });
        assert_eq!(reactions(wire), 1);
        assert_eq!(windows(wire).1, 5);
    });
}

#[test]
fn refused_packet_defers_reaction_to_undone_reduction() {
    after_rto(true, true, |wire| {
        wire.ack(201);
        if !wire.refuse_at_route(true) {
            println!("left out: this kernel has no programs at routes");
            return;
        }
        wire.write(100);
        assert_eq!(wire.tcp_info().tcpi_ca_state, OPEN);
        wire.refuse_at_route(false);
        wire.write(100);
        wire.expect("201:401");
        assert_eq!((reactions(wire), wire.tcp_info().tcpi_ca_state), (1, CWR));
    });
}

/// A filter of this host drops a tail loss probe (RFC 8985): nothing was retransmitted, and TCP
/// knows of no loss.
#[test]
fn loss_with_unsent_probe_causes_reaction() {
    for refused in [false, true] {
        let setup = Setup {
            // The probe is due after two RTTs, which leaves time to add the rule.
            rtt: Duration::from_millis(500),
            rto_min: Duration::from_secs(5),
            ..setup(LossRule::Dsack)
        };
        setup.run(|wire| {
            sysctl("net.ipv4.tcp_early_retrans", "3");
            nft("add table ip t; add chain ip t o { type filter hook output priority 0; }");
            wire.sends("1:101 1:201");
            if refused {
                nft("add rule ip t o drop");
                std::thread::sleep(Duration::from_millis(1500));
                nft("delete table ip t");
            }
            wire.sends("1:301");
            wire.ack(301);
            wire.sends("301:401");
            let losses = wire.totals().counters.hidden_losses;
            assert_eq!(
                (losses, reactions(wire), windows(wire).1),
                (2, 1, 5),
                "{refused}"
            );
        });
    }
}

/// A repeated SYN-ACK counts as a retransmission of the connection (TCP Fast Open).
#[test]
fn loss_with_repeated_syn_ack_causes_reaction() {
    setup(LossRule::Dsack).run(|wire| {
        wire.accept_with_data(7778, 10);
        wire.sends("1:101 1:201");
        assert_eq!(wire.read(), (0, 0), "the SYN-ACK");
        wire.sends("1:301");
        wire.ack(301);
        wire.sends("301:401");
        let losses = wire.totals().counters.hidden_losses;
        assert_eq!((losses, reactions(wire), windows(wire).1), (2, 1, 5));
    });
}
