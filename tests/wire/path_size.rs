//! No packet is lost for its size again and again, and none that TCP merges then.

use std::time::Duration;

use pillion_bundler::Verdict::{
    Bundled, FullSize, NothingOutstanding, OldData, PathSize, RetransmissionCut,
};
use pillion_tests::{Checksums, Ip, Setup, sysctl};

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

/// Segments of 400 bytes, each with the one before it, are lost all.
fn lost(checksums: Checksums) -> Setup {
    Setup {
        checksums,
        rto_min: Duration::from_millis(400),
        ..Setup::default()
    }
}

const KINDS: [Checksums; 3] = [Checksums::Kernel, Checksums::Device, Checksums::Bridge];

#[test]
fn what_tcp_merged_and_sent_in_vain_is_cut_to_the_first_segment() {
    for checksums in KINDS {
        lost(checksums).run(|wire| {
            sysctl("net.ipv4.tcp_early_retrans", "0");
            wire.prove_path();
            wire.sends("1:401 1:801 1:1201");
            wire.expect("1:1201 1:401");
            wire.ack(401);
            wire.expect("401:801");
            wire.ack(801);
            wire.expect("801:1201");
            wire.ack(1201);
            wire.assert_verdicts(&[
                (Bundled, 2),
                (FullSize, 1),
                (NothingOutstanding, 1),
                (OldData, 2),
                (RetransmissionCut, 2),
            ]);
        });
    }
}

#[test]
fn the_end_of_the_stream_is_not_before_its_last_byte() {
    for checksums in KINDS {
        lost(checksums).run(|wire| {
            sysctl("net.ipv4.tcp_early_retrans", "0");
            wire.prove_path();
            wire.sends("1:401 1:801");
            wire.shutdown();
            wire.expect("801:801F 1:801F 1:401");
            wire.ack(401);
            wire.expect("401:801F");
            wire.ack(802);
        });
    }
}

#[test]
fn what_every_path_takes_is_not_cut() {
    lost(Checksums::Kernel).run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        wire.sends("1:101 1:501");
        wire.expect("1:501 1:501 1:501");
        wire.assert_verdicts(&[(Bundled, 1), (NothingOutstanding, 1), (OldData, 3)]);
    });
}
