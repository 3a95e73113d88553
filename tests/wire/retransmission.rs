//! Tests that retransmissions pass unchanged, and that bundling continues afterwards. A segment
//! that the device refuses counts as not sent: TCP sends it again later.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding, Retransmission, Stale};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Setup, Wire, sysctl, unlimited};

/// Sets a retransmission timeout of one second.
fn setup() -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::default()
    }
}

/// Makes TCP retransmit one segment at a time, without merging the following ones.
fn one_at_a_time() {
    sysctl("net.ipv4.tcp_retrans_collapse", "0");
}

fn continue_from_301(wire: &mut Wire) {
    wire.ack(301);
    wire.sends("301:401 301:501");
    wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 2), (Retransmission, 1)]);
}

#[test]
fn rto_resends_exact_old_segment() {
    setup().run_on_ip_variants(|wire| {
        one_at_a_time();
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:101");
        continue_from_301(wire);
    });
}

#[test]
fn merged_retransmission_is_untouched() {
    setup().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:301");
        continue_from_301(wire);
    });
}

#[test]
fn tail_loss_probe_sends_exact_last_segment() {
    let rtt = Duration::from_millis(300);
    Setup { rtt, ..setup() }.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        wire.sends("1:101 1:201 1:301");
        wire.expect("201:301");
        continue_from_301(wire);
    });
}

#[test]
fn fast_retransmission_sends_exact_old_segment() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack_sack(1, "101:501");
        wire.expect("1:101");
        wire.ack(501);
        wire.sends("501:601 501:701");
        wire.assert_outcomes(&[(Bundled, 5), (NothingOutstanding, 2), (Retransmission, 1)]);
    });
}

#[test]
fn sacked_segments_are_still_bundled() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack_sack(1, "101:501");
        wire.expect("1:101");
        wire.sends("1:601");
    });
}

fn bundling(options: Options) -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(options)
    }
}

#[test]
fn unsent_data_is_not_bundled_with_retransmission() {
    let options = Options {
        bundle_retransmissions: true,
        thin: ThinTest::Spifl { limit: 0 },
        ..unlimited()
    };
    bundling(options).run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101");
        wire.refuse_data(true);
        wire.write(100);
        wire.refuse_data(false);
        wire.expect("1:101");
        wire.ack(101);
        wire.expect("101:201");
        wire.ack(201);
    });
}

#[test]
fn refused_segment_is_bundled_on_resend_and_counts_once() {
    bundling(unlimited()).run_on_ip_variants(|wire| {
        wire.sends("1:101");
        wire.refuse_data(true);
        wire.write(100);
        wire.expect_nothing(Duration::from_millis(50));
        wire.refuse_data(false);
        // TCP tries again with the next write, and has merged both into one segment by then.
        wire.write(50);
        wire.expect("1:251");
        let counters = wire.totals().counters;
        assert_eq!(counters.new_bytes, 250);
        wire.ack(251);
    });
}

#[test]
fn refused_segment_resent_in_parts_counts_once() {
    let setup = Setup {
        initial_window: 1,
        ..bundling(unlimited())
    };
    setup.run(|wire| {
        wire.refuse_data(true);
        wire.write(1400);
        wire.set_mtu(1040);
        wire.refuse_data(false);
        wire.write(1);
        wire.expect("1:1001");
        wire.ack(1001);
        wire.expect("1001:1402");
        assert_eq!(wire.totals().counters.new_bytes, 1401);
    });
}

/// Hidden losses are computed from the packets that really left.
#[test]
fn refused_bundle_resent_plain_is_not_a_bundle() {
    let options = Options {
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    bundling(options).run(|wire| {
        wire.sends("1:101");
        wire.refuse_data(true);
        wire.write(100);
        wire.refuse_data(false);
        wire.ack(101);
        wire.write(100);
        wire.expect("101:201 101:301");
        wire.ack(201);
        wire.ack_duplicate(301, "101:201", "");
        assert_eq!(wire.totals().counters.hidden_losses, 0);
        wire.assert_outcomes(&[(NothingOutstanding, 2), (Bundled, 2)]);
    });
}

/// Urgent data is not stored, and no older data may take its place.
#[test]
fn unstored_data_is_not_bundled_with_refused_segment() {
    bundling(unlimited()).run(|wire| {
        wire.sends("1:101");
        wire.write_with(50, libc::MSG_OOB);
        wire.expect("101:151U");
        wire.refuse_data(true);
        wire.write(100);
        wire.refuse_data(false);
        wire.write(1);
        wire.expect("151:252");
        wire.ack(252);
    });
}

#[test]
fn segment_queued_for_neighbour_is_not_bundled() {
    bundling(unlimited()).run_on_ip_variants(|wire| {
        wire.sends("1:101");
        wire.forget_neighbour(true);
        wire.write(100);
        wire.expect_nothing(Duration::from_millis(20));
        wire.forget_neighbour(false);
        wire.expect("101:201");
        wire.sends("201:301 201:401");
        wire.assert_outcomes(&[
            (Bundled, 1),
            (NothingOutstanding, 1),
            (NoHistory, 1),
            (Stale, 1),
        ]);
    });
}
