//! Where in its options an ACK has its report, and what stands beside it.

use pillion_bpf::Outcome;
use pillion_tests::netstat;

use crate::hidden_loss::{dsack, hidden};

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
