//! What TCP retransmits passes untouched, and bundling goes on behind it.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NothingOutstanding, OldData};
use pillion_tests::{Setup, Wire, sysctl};

/// Time-outs after one second.
fn setup() -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::default()
    }
}

/// One segment again, not those behind it with it.
fn one_at_a_time() {
    sysctl("net.ipv4.tcp_retrans_collapse", "0");
}

fn goes_on_from_301(wire: &mut Wire) {
    wire.ack(301);
    wire.sends("301:401 301:501");
    wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 2), (OldData, 1)]);
}

#[test]
fn a_time_out_sends_exactly_the_old_segment() {
    setup().run_everywhere(|wire| {
        one_at_a_time();
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:101");
        goes_on_from_301(wire);
    });
}

#[test]
fn segments_that_tcp_merges_to_send_them_again_are_untouched() {
    setup().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:301");
        goes_on_from_301(wire);
    });
}

#[test]
fn a_tail_loss_probe_sends_exactly_the_last_segment() {
    let rtt = Duration::from_millis(300);
    Setup { rtt, ..setup() }.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        wire.sends("1:101 1:201 1:301");
        wire.expect("201:301");
        goes_on_from_301(wire);
    });
}

#[test]
fn a_fast_retransmission_sends_exactly_the_old_segment() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack_sack(1, "101:501");
        wire.expect("1:101");
        wire.ack(501);
        wire.sends("501:601 501:701");
        wire.assert_outcomes(&[(Bundled, 5), (NothingOutstanding, 2), (OldData, 1)]);
    });
}

#[test]
fn segments_acknowledged_selectively_ride_along_still() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack_sack(1, "101:501");
        wire.expect("1:101");
        wire.sends("1:601");
    });
}
