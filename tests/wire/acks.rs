//! Tests which ACKs count, where a DSACK may be among the TCP options, and that sacked segments are
//! not lost.

use std::collections::VecDeque;
use std::time::Duration;

use pillion_bpf::{LossRule, Options, Outcome, ThinTest};
use pillion_tests::{Setup, Wire, limit_one, netstat};

use crate::hidden_loss::{dsack, hidden, options};

const NOP: u8 = 1;
const SACK: [u8; 2] = [5, 10];
/// Accurate ECN option (RFC 9768), which ACKs may carry.
const ACCECN: [u8; 11] = [172, 11, 0, 0, 1, 0, 0, 1, 0, 0, 1];

#[test]
fn dsack_at_any_option_offset_is_parsed() {
    let between = [&ACCECN[..], &[NOP, NOP, NOP], &SACK].concat();
    let unaligned = [&[NOP][..], &SACK].concat();
    let cases: [(&[u8], &[u8]); 4] = [
        (&between, &[]),
        (&unaligned, &[NOP]),
        (&SACK, &[NOP, NOP]),
        (&SACK, &[0, 0]),
    ];
    for (before, trailing) in cases {
        dsack().run_on_ip_variants(|wire| {
            wire.sends("1:101 1:201");
            wire.ack(101);
            wire.ack_options(201, before, "1:101", trailing);
            assert_eq!(hidden(wire), (0, 0, 0), "{before:?}");
            assert_eq!(netstat("TCPDSACKRecv"), 0, "{before:?}");
            assert_eq!(wire.totals().counters.dsacks_removed, 1);
        });
    }
}

#[test]
fn dsack_without_leading_nops_stays_with_its_blocks() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(101);
        wire.ack_options(201, &[5, 18], "1:101 301:401", &[NOP, NOP]);
        // The ACK stays unchanged: TCP sees the DSACK and the block beyond the gap.
        wire.wait_for_sacked(1);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// Linux places the end of its accurate ECN option where NOPs usually precede SACK.
#[test]
fn option_tail_that_looks_like_nops_stays_unchanged() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(101);
        wire.ack_options(201, &[174, 5, 0, NOP, NOP, 5, 18], "1:101 301:401", &[NOP]);
        wire.wait_for_sacked(1);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn unparsed_ack_pauses_bundling_and_reveals_no_loss() {
    let cases: [&[u8]; 3] = [&[NOP, NOP, 5, 40], &[NOP, NOP, 5, 1], &[NOP, NOP, NOP, 5]];
    for options in cases {
        dsack().run_on_ip_variants(|wire| {
            wire.sends("1:101 1:201 1:301");
            wire.ack(101);
            wire.ack_options(201, options, "", &[]);
            assert_eq!(hidden(wire), (0, 0, 0), "{options:?}");
            wire.sends("301:401");
            assert_eq!(
                wire.totals().counters.of(Outcome::LossDetectionUnavailable),
                1
            );
            assert_eq!(wire.totals().counters.acks_unparsed, 1);
            wire.ack(401);
            wire.sends("401:501 401:601");
        });
    }
}

fn one_previous_segment() -> Setup {
    Setup::bundling(Options {
        max_packets: Some(1),
        ..options(LossRule::Dsack)
    })
}

/// Sends data `gap` bytes after the peer's last byte. TCP refuses the segment and answers with an
/// ACK. An ACK outside the receive window is ignored, because a forger would have to guess that
/// window.
fn expect_refused_ack(wire: &mut Wire, acknowledging: u32, gap: u32, bytes: usize) {
    wire.peer_sends(acknowledging, gap, bytes);
    let at = wire.written() + 1;
    wire.expect(&format!("{at}:{at}"));
}

#[test]
fn ack_outside_receive_window_is_ignored() {
    const BEFORE: u32 = 0u32.wrapping_sub(1000);
    for (gap, bytes) in [(1 << 29, 0), (1 << 29, 10), (BEFORE, 0), (BEFORE, 999)] {
        one_previous_segment().run(|wire| {
            wire.sends("1:101 1:201");
            expect_refused_ack(wire, 201, gap, bytes);
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            assert_eq!(hidden(wire), (0, 0, 0), "{gap}, {bytes} bytes");
        });
    }
}

/// The peer repeats data that was received already.
#[test]
fn ack_with_repeated_data_is_accepted() {
    one_previous_segment().run(|wire| {
        wire.peer_sends(1, 0, 100);
        wire.expect("1:1");
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 0u32.wrapping_sub(100), 100);
        wire.expect("201:201");
        // Nothing was lost, but this DSACK arrives too late.
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 1));
    });
}

/// Earlier data of the peer is missing, together with its DSACKs. Nothing after it is missing.
#[test]
fn ack_at_window_edge_is_accepted() {
    one_previous_segment().run(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 20_000, 0);
        wire.sends("201:301 201:401");
        wire.peer_sends(401, 20_000, 50);
        wire.expect("401:401");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

const LONG_RTT: Duration = Duration::from_secs(2);

/// TCP waits for an eighth of the round trip before it retransmits data before a gap.
fn long_round_trip(options: Options) -> Setup {
    Setup {
        rtt: LONG_RTT,
        ..Setup::bundling(options)
    }
}

/// Sends segments, waits for a long round trip, and acknowledges only the first.
fn send_and_ack_first(wire: &mut Wire, ranges: &str, end: u32) {
    wire.sends(ranges);
    wire.expect_nothing(LONG_RTT);
    wire.ack(end);
}

#[test]
fn segment_sacked_between_two_losses_is_not_lost() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        send_and_ack_first(wire, "1:101 1:201 1:301 1:401 1:501", 101);
        wire.ack_without_waiting(101, "201:301");
        // The last bundle brought 101:201 and 301:401. The DSACK reports one of the duplicate
        // ranges.
        wire.ack_duplicate(501, "1:101", "");
        assert_eq!(hidden(wire), (2, 200, 0));
    });
}

#[test]
fn every_sack_block_marks_segments_as_received() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        send_and_ack_first(wire, "1:51 1:101 1:151 1:201 1:251 1:301 1:351", 51);
        // The ACKs that first reported 201:251 and 101:151 were lost.
        wire.ack_without_waiting(51, "201:251 101:151");
        wire.ack_duplicate(351, "1:51", "");
        assert_eq!(hidden(wire), (3, 150, 0));
    });
}

#[test]
fn partly_received_segment_is_lost() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        send_and_ack_first(wire, "1:101 1:201 1:301 1:401", 101);
        wire.ack_without_waiting(101, "151:301");
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn sacked_segment_implies_nothing_about_later_ones() {
    let options = Options {
        max_packets: Some(1),
        ..options(LossRule::Dsack)
    };
    long_round_trip(options).run(|wire| {
        let end = |segment: u32| 1 + 10 * segment;
        send_and_ack_first(wire, "1:11 1:21 11:31 21:41", end(1));
        wire.ack_without_waiting(end(1), "21:31");
        wire.ack_duplicate(end(4), "21:31", "");
        assert_eq!(hidden(wire), (0, 0, 0));
        // Enough segments to reuse every slot of the record twice.
        for lost in (5..300).step_by(2) {
            let (from, next) = (end(lost - 1), end(lost + 1));
            wire.sends(&format!("{from}:{} {from}:{next}", end(lost)));
            wire.ack(next);
        }
        assert_eq!(hidden(wire), (148, 1480, 0));
    });
}

/// The ACK answers the segment beyond the gap. The bundle's own ACK, with its DSACK, was delayed
/// until then. A receiver drops a pending DSACK when a segment arrives out of order.
#[test]
fn ack_of_out_of_order_segment_reveals_no_earlier_loss() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        send_and_ack_first(wire, "1:51 1:101 1:151 1:201 1:251", 51);
        wire.ack_without_waiting(151, "201:251");
        assert_eq!(hidden(wire), (0, 0, 0));
        // The block beyond the gap is known already, so the next bundle's ACK adds nothing.
        wire.ack_without_waiting(201, "201:251");
        assert_eq!(hidden(wire), (0, 0, 0));
        wire.ack(251);
    });
}

/// TCP knows of such a gap. If a bundle filled it without a retransmission, TCP would count
/// reordering and wait longer from then on.
#[test]
fn gap_before_sacked_segment_is_left_to_tcp() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        send_and_ack_first(wire, "1:101 1:201 1:301 1:401", 101);
        wire.ack_sack(101, "201:301");
        wire.sends("201:501");
    });
}

/// Three segments left in one packet and the first is late: the block of the others is new.
#[test]
fn out_of_order_part_of_large_packet_takes_dsack() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        wire.sends("1:51 1:101");
        wire.write(3 * wire.mss());
        wire.expect("101:1561 1561:3021 3021:4481");
        wire.ack_without_waiting(101, "1561:3021");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// Keeps `in_flight` segments of ten bytes in flight, and acknowledges each one individually.
fn assert_dsacks_removed(in_flight: u32, max_packets: u32) {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        loss_rule: LossRule::Dsack,
        ..limit_one()
    };
    Setup::bundling(options).run(|wire| {
        let mut in_flight_ranges = VecDeque::new();
        for _ in 0..4 * in_flight {
            wire.write(10);
            in_flight_ranges.push_back(wire.read());
            if in_flight_ranges.len() < in_flight as usize {
                continue;
            }
            let (start, end) = in_flight_ranges.pop_front().expect("one is there");
            match end - start {
                10 => wire.ack(end),
                _ => wire.ack_duplicate(end, &format!("{start}:{}", end - 10), ""),
            }
        }
        let counters = wire.totals().counters;
        let bundled = counters.of(Outcome::Bundled);
        println!("{in_flight} in flight, {max_packets}: {bundled} bundled, {counters:?}");
        assert!(bundled > u64::from(in_flight) / 2);
        assert_eq!((netstat("TCPDSACKRecv"), counters.hidden_losses), (0, 0));
    });
}

#[test]
fn dsacks_are_removed_with_over_100_segments_in_flight() {
    for in_flight in [100, 115, 120, 126, 150] {
        assert_dsacks_removed(in_flight, 1);
    }
}

#[test]
fn dsacks_of_long_bundles_are_removed_with_many_in_flight() {
    for in_flight in [40, 60, 90, 120] {
        assert_dsacks_removed(in_flight, 8);
        assert_dsacks_removed(in_flight, 0);
    }
}
