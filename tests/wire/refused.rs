//! An ACK that TCP refuses, because its segment lies outside the receive window, tells nothing:
//! whoever forges one has to guess where that is.

use pillion_bpf::{LossRule, Options};
use pillion_tests::{Setup, Wire};

use crate::hidden_loss::{hidden, options};

fn dsack() -> Setup {
    Setup::bundling(Options {
        max_packets: Some(1),
        ..options(LossRule::Dsack)
    })
}

/// The peer acknowledges in a segment that begins so many bytes after its last one, and TCP, which
/// refuses it, says where it is.
fn refused(wire: &mut Wire, acknowledging: u32, gap: u32, bytes: usize) {
    wire.peer_sends(acknowledging, gap, bytes);
    let at = wire.written() + 1;
    wire.expect(&format!("{at}:{at}"));
}

#[test]
fn an_ack_outside_the_window_is_none() {
    const BEFORE: u32 = 0u32.wrapping_sub(1000);
    for (gap, bytes) in [(1 << 29, 0), (1 << 29, 10), (BEFORE, 0), (BEFORE, 999)] {
        dsack().run(|wire| {
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
    dsack().run(|wire| {
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
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 20_000, 0);
        wire.sends("201:301 201:401");
        wire.peer_sends(401, 20_000, 50);
        wire.expect("401:401");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}
