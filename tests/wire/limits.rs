//! How much rides along. The first four are the published RDB's own tests.

use pillion_bpf::{Options, Outcome, ThinTest};
use pillion_tests::Setup;

fn limits(max_packets: u32, max_bytes: u32) -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        max_bytes,
        ..Options::default()
    })
}

#[test]
fn with_limit_1_the_previous_segment_rides_along() {
    limits(1, 0).run_everywhere(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes(&[(Outcome::Bundled, 3), (Outcome::NothingOutstanding, 1)]);
    });
}

#[test]
fn with_limit_2_two_previous_segments_ride_along() {
    limits(2, 0).run_everywhere(|wire| wire.sends("1:101 1:201 1:301 101:401"));
}

#[test]
fn without_a_limit_all_that_fits_into_the_mss_rides_along() {
    limits(0, 0).run_everywhere(|wire| {
        wire.prove_path();
        wire.sends("1:401 1:801 1:1201 401:1601");
    });
}

#[test]
fn max_bytes_limits_new_and_redundant_bytes_together() {
    limits(0, 450).run_everywhere(|wire| wire.sends("1:101 1:201 1:301 1:401 101:501 201:601"));
}
