//! A device that refuses a segment has TCP send it again later: until then it was not sent.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding, Waited};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Setup, sysctl, unlimited};

fn setup(options: Options) -> Setup {
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
    setup(options).run(|wire| {
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
    setup(unlimited()).run_everywhere(|wire| {
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
    setup(options).run(|wire| {
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
    setup(unlimited()).run(|wire| {
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
    setup(unlimited()).run_everywhere(|wire| {
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
