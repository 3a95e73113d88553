//! ACKs: which of them count, where in its options one has its report, and what had come behind a gap
//! and so was not lost.

use std::collections::VecDeque;
use std::time::Duration;

use pillion_bpf::{LossRule, Options, Outcome, ThinTest};
use pillion_tests::{Setup, Wire, netstat};

use crate::hidden_loss::{dsack, hidden, options};

const NOP: u8 = 1;
const SACK: [u8; 2] = [5, 10];
/// Accurate ECN's option (RFC 9768), as it may come with ACKs.
const ACCECN: [u8; 11] = [172, 11, 0, 0, 1, 0, 0, 1, 0, 0, 1];

#[test]
fn a_report_is_read_wherever_it_stands() {
    let between = [&ACCECN[..], &[NOP, NOP, NOP], &SACK].concat();
    let unaligned = [&[NOP][..], &SACK].concat();
    let cases: [(&[u8], &[u8]); 4] = [
        (&between, &[]),
        (&unaligned, &[NOP]),
        (&SACK, &[NOP, NOP]),
        (&SACK, &[0, 0]),
    ];
    for (before, behind) in cases {
        dsack().run_everywhere(|wire| {
            wire.sends("1:101 1:201");
            wire.ack(101);
            wire.ack_options(201, before, "1:101", behind);
            assert_eq!(hidden(wire), (0, 0, 0), "{before:?}");
            assert_eq!(netstat("TCPDSACKRecv"), 0, "{before:?}");
            assert_eq!(wire.totals().counters.dsacks_hidden, 1);
        });
    }
}

#[test]
fn blocks_beside_a_report_stay_where_no_nops_precede_it() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(101);
        wire.ack_options(201, &[5, 18], "1:101 301:401", &[NOP, NOP]);
        // It stays as it is: TCP sees the report, and what is beyond the gap.
        wire.await_sacked(1);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// Linux has the end of its option for accurate ECN in the place of NOPs before SACK.
#[test]
fn the_end_of_an_option_that_looks_like_nops_is_left_alone() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(101);
        wire.ack_options(201, &[174, 5, 0, NOP, NOP, 5, 18], "1:101 301:401", &[NOP]);
        wire.await_sacked(1);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn an_ack_that_cannot_be_read_is_no_loss_and_ends_bundling_until_one_can() {
    let cases: [&[u8]; 3] = [&[NOP, NOP, 5, 40], &[NOP, NOP, 5, 1], &[NOP, NOP, NOP, 5]];
    for options in cases {
        dsack().run_everywhere(|wire| {
            wire.sends("1:101 1:201 1:301");
            wire.ack(101);
            wire.ack_options(201, options, "", &[]);
            assert_eq!(hidden(wire), (0, 0, 0), "{options:?}");
            wire.sends("301:401");
            assert_eq!(wire.totals().counters.of(Outcome::Unwatched), 1);
            assert_eq!(wire.totals().counters.acks_unread, 1);
            wire.ack(401);
            wire.sends("401:501 401:601");
        });
    }
}

fn one_along() -> Setup {
    Setup::bundling(Options {
        max_packets: Some(1),
        ..options(LossRule::Dsack)
    })
}

/// The peer acknowledges in a segment that begins so many bytes after its last one, and TCP, which
/// refuses it, says where it is. An ACK outside the receive window tells nothing: whoever forges one
/// has to guess where that is.
fn refused(wire: &mut Wire, acknowledging: u32, gap: u32, bytes: usize) {
    wire.peer_sends(acknowledging, gap, bytes);
    let at = wire.written() + 1;
    wire.expect(&format!("{at}:{at}"));
}

#[test]
fn an_ack_outside_the_window_is_none() {
    const BEFORE: u32 = 0u32.wrapping_sub(1000);
    for (gap, bytes) in [(1 << 29, 0), (1 << 29, 10), (BEFORE, 0), (BEFORE, 999)] {
        one_along().run(|wire| {
            wire.sends("1:101 1:201");
            refused(wire, 201, gap, bytes);
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            assert_eq!(hidden(wire), (0, 0, 0), "{gap}, {bytes} bytes");
        });
    }
}

/// The peer repeats what has come already.
#[test]
fn an_ack_with_data_that_came_before_is_one() {
    one_along().run(|wire| {
        wire.peer_sends(1, 0, 100);
        wire.expect("1:1");
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 0u32.wrapping_sub(100), 100);
        wire.expect("201:201");
        // Nothing was lost, but this comes too late.
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 1));
    });
}

/// What it has sent before is missing, with the reports that it may have had; what follows is not.
#[test]
fn an_ack_at_the_edge_of_the_window_is_one() {
    one_along().run(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 20_000, 0);
        wire.sends("201:301 201:401");
        wire.peer_sends(401, 20_000, 50);
        wire.expect("401:401");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

const LONG: Duration = Duration::from_secs(2);

/// TCP waits for an eighth of the round trip before it retransmits what precedes a gap.
fn long_round_trip(options: Options) -> Setup {
    Setup {
        rtt: LONG,
        ..Setup::bundling(options)
    }
}

/// Sends segments of which the first is acknowledged, after a long round trip.
fn sends_and_acks_the_first(wire: &mut Wire, ranges: &str, end: u32) {
    wire.sends(ranges);
    wire.expect_nothing(LONG);
    wire.ack(end);
}

#[test]
fn what_had_come_between_two_losses_was_not_lost() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:101 1:201 1:301 1:401 1:501", 101);
        wire.acks_late(101, "201:301");
        // It brought 101:201 and 301:401; of what came twice, one range is reported.
        wire.ack_duplicate(501, "1:101", "");
        assert_eq!(hidden(wire), (2, 200, 0));
    });
}

#[test]
fn every_block_of_an_ack_tells_what_had_come() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:51 1:101 1:151 1:201 1:251 1:301 1:351", 51);
        // Those that told of 201:251 first and of 101:151 were lost before.
        wire.acks_late(51, "201:251 101:151");
        wire.ack_duplicate(351, "1:51", "");
        assert_eq!(hidden(wire), (3, 150, 0));
    });
}

#[test]
fn a_segment_that_had_come_in_part_was_lost() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:101 1:201 1:301 1:401", 101);
        wire.acks_late(101, "151:301");
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn what_had_come_behind_a_gap_says_nothing_of_later_segments() {
    let options = Options {
        max_packets: Some(1),
        ..options(LossRule::Dsack)
    };
    long_round_trip(options).run(|wire| {
        let end = |segment: u32| 1 + 10 * segment;
        sends_and_acks_the_first(wire, "1:11 1:21 11:31 21:41", end(1));
        wire.acks_late(end(1), "21:31");
        wire.ack_duplicate(end(4), "21:31", "");
        assert_eq!(hidden(wire), (0, 0, 0));
        // Long enough for each place of the record to be taken by others, twice.
        for lost in (5..300).step_by(2) {
            let (from, next) = (end(lost - 1), end(lost + 1));
            wire.sends(&format!("{from}:{} {from}:{next}", end(lost)));
            wire.ack(next);
        }
        assert_eq!(hidden(wire), (148, 1480, 0));
    });
}

/// The ACK answers the segment behind the gap, and the bundle's own, with its report, was delayed until
/// then: a receiver that has yet to send a report forgets it when a segment comes out of order.
#[test]
fn an_ack_for_what_has_come_behind_a_gap_tells_nothing_of_the_bundle_before() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:51 1:101 1:151 1:201 1:251", 51);
        wire.acks_late(151, "201:251");
        assert_eq!(hidden(wire), (0, 0, 0));
        // What is known to have come behind the gap is nothing new in the next bundle's.
        wire.acks_late(201, "201:251");
        assert_eq!(hidden(wire), (0, 0, 0));
        wire.ack(251);
    });
}

/// TCP knows of such a gap: it would take for reordered what fills it though it has not retransmitted
/// it, and wait longer from then on.
#[test]
fn a_gap_before_what_has_come_is_left_to_tcp() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        sends_and_acks_the_first(wire, "1:101 1:201 1:301 1:401", 101);
        wire.ack_sack(101, "201:301");
        wire.sends("201:501");
    });
}

/// Of segments that left in one packet, the first is late: what has come of the others is new.
#[test]
fn a_part_of_a_large_packet_that_has_come_behind_a_gap_takes_the_report() {
    long_round_trip(options(LossRule::Dsack)).run(|wire| {
        wire.sends("1:51 1:101");
        wire.write(3 * wire.mss());
        wire.expect("101:1561 1561:3021 3021:4481");
        wire.acks_late(101, "1561:3021");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// So many segments of ten bytes are in flight all the time, and each is acknowledged by itself.
fn reports_stay_hidden(in_flight: u32, max_packets: u32) {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        loss_rule: LossRule::Dsack,
        ..Options::default()
    };
    Setup::bundling(options).run(|wire| {
        let mut on_their_way = VecDeque::new();
        for _ in 0..4 * in_flight {
            wire.write(10);
            on_their_way.push_back(wire.read());
            if on_their_way.len() < in_flight as usize {
                continue;
            }
            let (start, end) = on_their_way.pop_front().expect("one is there");
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
fn reports_are_hidden_with_more_than_a_hundred_in_flight() {
    for in_flight in [100, 115, 120, 126, 150] {
        reports_stay_hidden(in_flight, 1);
    }
}

#[test]
fn reports_of_long_bundles_are_hidden_with_many_in_flight() {
    for in_flight in [40, 60, 90, 120] {
        reports_stay_hidden(in_flight, 8);
        reports_stay_hidden(in_flight, 0);
    }
}
