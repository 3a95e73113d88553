//! Only what is unacknowledged rides along, and only whole segments do.

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding};
use pillion_tests::Setup;

#[test]
fn after_all_is_acknowledged_a_segment_is_plain() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 2)]);
    });
}

#[test]
fn acknowledged_segments_stay_behind() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.sends("101:401");
        wire.ack(301);
        wire.sends("301:501");
    });
}

#[test]
fn a_partly_acknowledged_segment_stays_behind() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(151);
        wire.sends("201:401");
    });
}

#[test]
fn where_only_part_of_one_segment_is_outstanding_nothing_rides_along() {
    Setup::default().run(|wire| {
        wire.sends("1:101");
        wire.ack(51);
        wire.sends("101:201 101:301");
        wire.assert_outcomes(&[(Bundled, 1), (NoHistory, 1), (NothingOutstanding, 1)]);
    });
}
