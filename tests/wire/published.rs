//! Tests that `published` sends the same first flight as the unmerged kernel patch.

use std::thread;
use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NothingOutstanding};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Setup, Wire, sysctl};

/// Returns a connection with an RTT of 200 ms that uses the published mechanism.
fn published(options: Options) -> Setup {
    Setup {
        rtt: Duration::from_millis(200),
        ..Setup::bundling(Options {
            published: true,
            ..options
        })
    }
}

fn no_limit() -> Options {
    Options {
        max_packets: Some(0),
        ..Options::default()
    }
}

#[test]
fn one_previous_segment_is_bundled_by_default() {
    published(Options::default()).run(|wire| wire.sends("1:101 1:201 101:301 201:401"));
}

#[test]
fn two_previous_segments_are_bundled() {
    let max_packets = Some(2);
    published(Options {
        max_packets,
        ..Options::default()
    })
    .run(|wire| wire.sends("1:101 1:201 1:301 101:401"));
}

#[test]
fn unlimited_bundle_fills_mss() {
    published(no_limit()).run(|wire| wire.sends("1:401 1:801 1:1201 401:1601"));
}

#[test]
fn three_writes_per_rtt_need_no_proven_size() {
    published(no_limit()).run(|wire| {
        for range in ["1:401", "1:801", "1:1201"] {
            wire.sends(range);
            thread::sleep(Duration::from_millis(10));
        }
        wire.assert_outcomes(&[(NothingOutstanding, 1), (Bundled, 2)]);
    });
}

#[test]
fn max_bytes_limits_total_payload() {
    published(Options {
        max_bytes: 450,
        ..no_limit()
    })
    .run(|wire| wire.sends("1:101 1:201 1:301 1:401 101:501 201:601"));
}

#[test]
fn segment_after_full_ack_is_plain() {
    published(no_limit()).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301");
    });
}

/// Sends two segments of 400 bytes, the second one with the first bundled. Both are lost.
fn lose_bundle(wire: &mut Wire) {
    let start = wire.written() + 1;
    let (middle, end) = (start + 400, start + 800);
    wire.sends(&format!("{start}:{middle} {start}:{end}"));
    wire.expect(&format!("{start}:{end}"));
    wire.ack(end);
}

#[test]
fn lost_bundles_set_no_limit() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..published(Options {
            thin: ThinTest::Always,
            ..no_limit()
        })
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        wire.sends("1:401 1:801");
        wire.ack(401);
        wire.ack_duplicate(801, "1:401", "");
        for _ in 0..3 {
            lose_bundle(wire);
        }
        let start = wire.written() + 1;
        wire.sends(&format!("{start}:{} {start}:{}", start + 400, start + 800));
    });
}
