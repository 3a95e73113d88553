//! Segments that are about something other than new data.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, Flags, NoHistory, NothingOutstanding, OldData};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::Setup;

/// Probes and time-outs after one second.
fn one_second() -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::default()
    }
}

#[test]
fn a_connection_that_is_restored_from_a_checkpoint_is_bundled_as_before() {
    for sack in [true, false] {
        let setup = Setup {
            sack,
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101");
            wire.ack(101);
            wire.restore();
            wire.expect("100:100");
            wire.ack(101);
            match sack {
                true => wire.sends("101:201 101:301"),
                false => wire.sends("101:201 201:301"),
            }
        });
    }
}

#[test]
fn a_pure_ack_is_untouched() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(1, 0, 100);
        wire.expect("201:201");
        wire.sends("1:301");
    });
}

#[test]
fn a_duplicate_ack_with_sack_is_untouched() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(1, 100, 100);
        wire.expect("201:201");
        wire.sends("1:301");
    });
}

#[test]
fn a_fin_is_untouched() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.shutdown();
        wire.expect("201:201F");
    });
}

#[test]
fn a_fin_with_new_data_keeps_the_fin_behind_its_bundle() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101");
        wire.write_with(100, libc::MSG_MORE);
        wire.shutdown();
        wire.expect("1:201F");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1)]);
    });
}

#[test]
fn a_fin_with_old_data_is_untouched() {
    one_second().run(|wire| {
        wire.sends("1:101");
        wire.write_with(100, libc::MSG_MORE);
        wire.shutdown();
        wire.expect("1:201F");
        wire.ack(101);
        wire.expect("101:201F");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1), (OldData, 1)]);
    });
}

#[test]
fn a_keep_alive_is_untouched() {
    Setup::default().run(|wire| {
        let one = 1i32.to_ne_bytes();
        wire.set_option((libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), &one);
        wire.set_option((libc::SOL_SOCKET, libc::SO_KEEPALIVE), &one);
        wire.sends("1:101");
        wire.ack(101);
        wire.expect("100:100");
        wire.ack(101);
        wire.sends("101:201 101:301");
    });
}

#[test]
fn a_zero_window_probe_is_untouched() {
    one_second().run(|wire| {
        wire.sends("1:101");
        wire.ack_window(101, 0);
        wire.write(100);
        wire.expect_nothing(Duration::from_millis(100));
        wire.expect("100:100");
        wire.ack_window(101, 65535);
        wire.expect("101:201");
        wire.sends("101:301");
    });
}

#[test]
fn a_probe_with_the_data_that_fits_the_window_rides_along_with_the_rest() {
    one_second().run(|wire| {
        wire.sends("1:101");
        wire.ack_window(101, 128);
        wire.write(200);
        wire.expect("101:229");
        wire.ack_window(101, 65535);
        wire.expect("101:301");
    });
}

#[test]
fn urgent_data_is_untouched_and_ends_what_can_ride_along() {
    for max_packets in [0, 1, 2] {
        Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(max_packets),
            ..Options::default()
        })
        .run(|wire| {
            wire.sends("1:101");
            wire.write_with(100, libc::MSG_OOB);
            wire.expect("101:201U");
            wire.sends("201:301 201:401");
            wire.assert_outcomes(&[
                (Bundled, 1),
                (NothingOutstanding, 1),
                (Flags, 1),
                (NoHistory, 1),
            ]);
        });
    }
}
