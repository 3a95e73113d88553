//! What TCP retransmits passes untouched, and bundling goes on behind it. A segment that a device
//! refuses was not sent: TCP sends it again later.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding, OldData, Waited};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Setup, Wire, sysctl, unlimited};

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

fn bundling(options: Options) -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(options)
    }
}

#[test]
fn what_tcp_has_not_sent_does_not_ride_along_with_a_retransmission() {
    let options = Options {
        retransmissions: true,
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
fn a_refused_segment_is_bundled_when_it_is_sent_and_counts_once() {
    bundling(unlimited()).run_everywhere(|wire| {
        wire.sends("1:101");
        wire.refuse_data(true);
        wire.write(100);
        wire.expect_nothing(Duration::from_millis(50));
        wire.refuse_data(false);
        // TCP tries again with the next write, and has both in one segment by then.
        wire.write(50);
        wire.expect("1:251");
        let counters = wire.totals().counters;
        assert_eq!(counters.new_bytes, 250);
        wire.ack(251);
    });
}

/// The losses that it hid are those of what really left.
#[test]
fn what_was_refused_with_a_bundle_and_sent_without_is_no_bundle() {
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

/// Urgent data is not kept, and nothing from before it may come in its place.
#[test]
fn what_is_not_kept_does_not_ride_along_with_what_was_refused_once() {
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
fn what_waited_for_its_neighbours_address_is_not_bundled() {
    bundling(unlimited()).run_everywhere(|wire| {
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
            (Waited, 1),
        ]);
    });
}
