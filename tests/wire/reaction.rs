//! What follows from a hidden loss: the kernel reduces the window, once a window of data.

use std::time::Duration;

use pillion_bpf::{LossRule, Options, Reaction, ThinTest};
use pillion_tests::{Ip, Setup, Wire, sysctl};

const OPEN: u8 = 0; // TCP_CA_Open
const CWR: u8 = 2; // TCP_CA_CWR

/// As published, a reaction leaves with the next packet; the reordering window is tested in `misread`.
fn setup(loss_rule: LossRule) -> Setup {
    bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule,
        published: true,
        ..Options::default()
    })
}

fn bundling(options: Options) -> Setup {
    Setup {
        initial_window: 10,
        ..Setup::bundling(options)
    }
}

/// Congestion window and slow-start threshold, in segments.
fn windows(wire: &Wire) -> (u32, u32) {
    let info = wire.tcp_info();
    (info.tcpi_snd_cwnd, info.tcpi_snd_ssthresh)
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

#[test]
fn a_hidden_loss_halves_renos_window_with_the_next_segment() {
    setup(LossRule::Dsack).run_everywhere(|wire| {
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
        // 201:301 and 401:501 were in flight then.
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
fn a_loss_in_the_next_window_reduces_it_again() {
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

/// As long as it is not known whether the receiver reports duplicates, its silence may mean either.
#[test]
fn a_loss_that_was_in_doubt_is_answered_once_it_is_none_any_more() {
    setup(LossRule::Auto).run_everywhere(|wire| {
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

/// The kernel's reduction is over with the ACK that waits, but it does not know yet.
#[test]
fn a_loss_in_the_next_window_counts_while_its_ack_waits_for_the_application() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        assert_eq!(reactions(wire), 1);
        if !wire.held(50, |wire| wire.acks_late(401, "")) {
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

/// TCP sees the error, and nothing of the congestion beside it.
#[test]
fn a_reaction_whose_packet_is_refused_with_an_error_goes_with_the_next() {
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
        // It was heard: no further one follows from the same loss.
        wire.sends("401:501");
        wire.ack(501);
        wire.sends("501:601");
        assert_eq!((reactions(wire), windows(wire)), (1, (5, 5)));
    });
}

#[test]
fn without_a_loss_the_window_stays() {
    setup(LossRule::Dsack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.sends("201:301");
        assert_eq!((reactions(wire), windows(wire).0), (0, 10));
    });
}

#[test]
fn reordering_seen_later_does_not_repeat_the_reaction() {
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
fn the_reaction_can_be_none() {
    let options = Options {
        thin: ThinTest::Always,
        loss_rule: LossRule::Dsack,
        reaction: Reaction::None,
        published: true,
        ..Options::default()
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
fn cubic_reduces_as_cubic_does() {
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
fn a_connection_reacts_after_any_number_of_bytes() {
    let mss = 65_000;
    Setup {
        mss,
        ..setup(LossRule::Dsack)
    }
    .run(|wire| {
        wire.pass((1 << 31) + (1 << 27));
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
        assert_eq!(wire.totals().counters.hidden_losses, 1);
        assert_eq!(reactions(wire), 1);
    });
}

#[test]
fn tcps_own_reduction_is_no_reason_after_any_number_of_bytes_whose_headers_cannot_be_read() {
    Setup {
        ip: Ip::V6,
        mss: 65_000,
        ecn: true,
        ..setup(LossRule::Dsack)
    }
    .run(|wire| {
        let padding = [0, 0, 1, 4, 0, 0, 0, 0];
        wire.set_option((libc::IPPROTO_IPV6, libc::IPV6_DSTOPTS), &padding);
        wire.pass((1 << 31) + (1 << 27));
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
fn what_was_outstanding_when_tcp_reduced_its_window_reduces_it_no_more() {
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

/// The published RDB's own tests. Its reaction came within the ACK, so that a window of 10
/// became 5; ours comes with the next segment, after the ACK of six segments has let slow
/// start grow the window to 16.
#[test]
fn under_the_published_rule_an_ack_of_many_segments_reduces_the_window() {
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
fn a_connection_older_than_the_bundler_reacts_too() {
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

/// The path stands still for longer than a time-out. What TCP retransmits, it takes for needless, as
/// the ACK answers what left before: but the first segment was lost, and a bundle repaired it.
#[test]
fn where_tcp_takes_back_its_reduction_for_what_a_bundle_repaired_a_reaction_is_due() {
    for (merged, came_first) in [(true, true), (true, false), (false, true)] {
        after_a_time_out(merged, came_first, |wire| {
            wire.ack(201);
            let (window, threshold) = windows(wire);
            let undone = window == 10 && threshold > 10;
            assert_eq!(undone, came_first, "{window}, {threshold}");
            wire.sends("201:301");
            assert_eq!(reactions(wire), u64::from(came_first), "{merged}");
            assert_eq!(windows(wire).1, 5);
            assert_eq!(wire.totals().counters.hidden_losses, 0);
            wire.ack(301);
            wire.sends("301:401");
            assert_eq!(reactions(wire), u64::from(came_first), "once");
        });
    }
}

#[test]
fn where_tcp_takes_back_its_reduction_and_nothing_was_lost_none_is_due() {
    for merged in [true, false] {
        after_a_time_out(merged, true, |wire| {
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            assert_eq!(windows(wire).0, 10);
            wire.sends("201:301");
            assert_eq!(reactions(wire), 0, "{merged}");
        });
    }
}

/// A segment and a bundle with it, of which TCP has retransmitted both in one packet, or the first.
/// The ACK is to answer what left before, if that `came_first`.
fn after_a_time_out(merged: bool, came_first: bool, test: impl FnOnce(&mut Wire) + Send) {
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
        wire.hold_echo(came_first);
        wire.expect(["1:101", "1:201"][usize::from(merged)]);
        test(wire);
    });
}

/// TCP takes note of the gap, and of where it stands, but reduces nothing yet.
#[test]
fn a_loss_whose_ack_shows_a_gap_is_answered() {
    let rtt = Duration::from_secs(1);
    let setup = Setup {
        rtt,
        ..setup(LossRule::Dsack)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.expect_nothing(rtt);
        wire.ack(101);
        wire.acks_late(101, "401:501");
        wire.ack_sack(301, "401:501");
        wire.sends("401:601");
        assert_eq!(reactions(wire), 1);
    });
}

#[test]
fn a_loss_that_is_found_at_the_end_is_answered_while_others_are_on_their_way() {
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
fn a_reaction_for_what_tcp_took_back_goes_with_the_next_packet_where_the_first_is_refused() {
    after_a_time_out(true, true, |wire| {
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

fn nft(command: &str) {
    let status = std::process::Command::new("nft").arg(command).status();
    assert!(status.expect("nft").success(), "{command}");
}

/// A filter of this host refuses a probe of the tail (RFC 8985): nothing was retransmitted, and TCP
/// knows of no loss.
#[test]
fn a_loss_beside_a_probe_that_never_left_is_answered() {
    for refused in [false, true] {
        let setup = Setup {
            // The probe is due after two of them, in which the rule must be there.
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

/// A SYN-ACK that goes out once more counts as a retransmission of the connection's (TCP Fast Open).
#[test]
fn a_loss_beside_a_syn_ack_that_was_repeated_is_answered() {
    setup(LossRule::Dsack).run(|wire| {
        wire.reaccept_with_data(7778, 10);
        wire.sends("1:101 1:201");
        assert_eq!(wire.read(), (0, 0), "the SYN-ACK");
        wire.sends("1:301");
        wire.ack(301);
        wire.sends("301:401");
        let losses = wire.totals().counters.hidden_losses;
        assert_eq!((losses, reactions(wire), windows(wire).1), (2, 1, 5));
    });
}
