//! No packet is lost for its size again and again.

use pillion_bundler::Verdict::{Bundled, NothingOutstanding, OldData, PathSize};
use pillion_tests::{Ip, Setup};

#[test]
fn what_is_larger_than_every_path_takes_is_tried_by_one_packet_at_a_time() {
    Setup::default().run(|wire| {
        wire.sends("1:301 1:537 1:738 301:739 537:939");
        wire.ack(301);
        wire.sends("738:1139");
        wire.ack(738);
        wire.sends("738:1475 738:1476 939:1477");
        wire.assert_verdicts(&[(Bundled, 8), (NothingOutstanding, 1)]);
    });
}

#[test]
fn every_path_takes_more_over_ipv6() {
    Setup {
        ip: Ip::V6,
        ..Setup::default()
    }
    .run(|wire| wire.sends("1:401 1:801 1:1221 401:1481 801:2021"));
}

#[test]
fn what_comes_behind_a_gap_proves_its_size_as_well() {
    Setup::default().run(|wire| {
        wire.sends("1:401 1:801 801:1201");
        wire.ack_sack(1, "401:801");
        wire.expect("1:401");
        wire.ack_sack(1, "401:1201");
        wire.sends("801:1601");
        wire.assert_verdicts(&[
            (Bundled, 2),
            (NothingOutstanding, 1),
            (OldData, 1),
            (PathSize, 1),
        ]);
    });
}
