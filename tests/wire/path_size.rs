//! No packet is lost for its size again and again.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, NothingOutstanding, PathSize};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Ip, Setup, Wire, sysctl};

/// All that fits rides along, and the path's size is not known.
fn unlimited() -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        ..Options::default()
    })
}

#[test]
fn bundles_are_no_larger_than_every_path_takes() {
    unlimited().run(|wire| {
        wire.sends("1:301 1:537 301:738 537:939");
        wire.ack(939);
        wire.sends("939:1339 1339:1739");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 2), (PathSize, 1)]);
    });
}

#[test]
fn bundles_are_no_larger_than_what_came_through() {
    unlimited().run(|wire| {
        wire.sends("1:701 701:1001");
        wire.ack(701);
        wire.sends("701:1401 1001:1701");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (PathSize, 1)]);
    });
}

#[test]
fn a_packet_behind_a_gap_proves_its_size() {
    unlimited().run(|wire| {
        wire.sends("1:401 401:1201 1201:1301");
        wire.ack_sack(1, "401:1201");
        wire.expect("1:401");
        wire.ack_sack(1, "401:1301");
        wire.sends("1201:1901");
    });
}

#[test]
fn every_path_takes_more_over_ipv6() {
    Setup {
        ip: Ip::V6,
        ..unlimited()
    }
    .run(|wire| wire.sends("1:401 1:801 1:1221 401:1481 801:2021"));
}

#[test]
fn what_every_path_takes_is_with_the_headers() {
    let setup = |ip| Setup {
        ip,
        timestamps: true,
        ..unlimited()
    };
    setup(Ip::V4).run(|wire| wire.sends("1:201 1:401 1:525 401:726"));
    setup(Ip::V6).run(|wire| wire.sends("1:401 1:801 1:1209 801:1610"));
}

#[test]
fn what_came_through_had_none_of_the_options_that_come_later() {
    let whole = "1:801";
    unlimited().run(|wire| {
        wire.sends(whole);
        wire.ack(801);
        wire.sends("801:1201 801:1601 1201:2001");
    });
    unlimited().run(|wire| {
        wire.sends(whole);
        wire.ack(801);
        wire.peer_sends(1, 100, 10);
        wire.expect("801:801");
        wire.sends("801:1201 1201:1601");
        wire.assert_outcomes(&[(NothingOutstanding, 2), (PathSize, 1)]);
    });
}

/// Each bundle has the segment before.
fn single() -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(1),
            ..Options::default()
        })
    }
}

/// Two segments of 100 bytes, the second with the first; both are lost.
fn lose_a_bundle(wire: &mut Wire) {
    let start = wire.written() + 1;
    let end = start + 200;
    wire.sends(&format!("{start}:{} {start}:{end}", start + 100));
    wire.expect(&format!("{start}:{end}"));
    wire.ack(end);
}

#[test]
fn once_a_bundle_was_lost_even_small_ones_are_tried_one_at_a_time_until_one_arrives() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        lose_a_bundle(wire);
        wire.sends("401:501 401:601");
        wire.ack(501);
        wire.sends("601:701");
        assert_eq!(wire.totals().counters.of(PathSize), 1);
        wire.ack_duplicate(601, "401:501", "");
        wire.sends("601:801 701:1001 801:1101");
        assert_eq!(wire.totals().counters.of(PathSize), 1);
    });
}

#[test]
fn three_bundles_lost_in_a_row_set_a_limit_below_them() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        for _ in 0..3 {
            lose_a_bundle(wire);
        }
        assert_eq!(wire.totals().counters.of(PathSize), 0);
        wire.sends("601:701 701:801");
        assert_eq!(wire.totals().counters.of(PathSize), 1);
        wire.ack(801);
        wire.sends("801:901 801:1000");
    });
}

#[test]
fn a_small_bundle_that_is_lost_does_not_tighten_a_limit_by_itself() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        for _ in 0..3 {
            lose_a_bundle(wire);
        }
        wire.sends("601:651 601:701");
        wire.ack_duplicate(701, "601:651", "");
        wire.sends("701:731 701:751");
        wire.expect("701:751");
        wire.ack(751);
        wire.sends("751:801 751:851");
    });
}

#[test]
fn a_bundle_lost_before_one_as_large_arrived_was_not_too_large() {
    single().run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401 301:501");
        wire.ack(101);
        wire.ack_sack(101, "201:501");
        wire.expect("101:201");
        wire.sends("401:601 501:701");
        wire.ack(701);
        wire.sends("701:801 701:901 801:1001 901:1101");
        assert_eq!(wire.totals().counters.of(PathSize), 0);
    });
}

#[test]
fn several_bundles_lost_at_once_are_one_reason_to_doubt() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201 101:301 201:401 301:501");
        for end in [101, 201, 301, 401] {
            wire.ack(end);
            wire.expect(&format!("{end}:{}", end + 100));
        }
        wire.ack(501);
        wire.sends("501:601 501:701");
        assert_eq!(wire.totals().counters.of(PathSize), 0);
    });
}

#[test]
fn what_comes_through_after_all_lifts_the_limit() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        for _ in 0..3 {
            lose_a_bundle(wire);
        }
        // The last one had come, and TCP's retransmission of it was needless.
        wire.ack_duplicate(601, "401:601", "");
        wire.sends("601:701 601:801");
        assert_eq!(wire.totals().counters.of(PathSize), 0);
    });
}

/// What came through before says nothing of the path as it is half of the sequence space later.
fn lose_after(bytes: u64) {
    Setup {
        ip: Ip::V6,
        mss: 65_000,
        ..single()
    }
    .run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        if bytes > 0 {
            wire.pass_unread(bytes);
        }
        for _ in 0..3 {
            lose_a_bundle(wire);
        }
        let start = wire.written() + 1;
        let before = wire.totals().counters.of(PathSize);
        let [middle, end] = [start + 100, start + 200];
        wire.write(100);
        wire.expect(&format!("{start}:{middle}"));
        wire.write(100);
        wire.expect(&format!("{middle}:{end}"));
        assert_eq!(wire.totals().counters.of(PathSize), before + 1);
    });
}

#[test]
fn lost_bundles_set_a_limit_after_one_that_came() {
    lose_after(0);
}

#[test]
fn lost_bundles_set_a_limit_after_any_number_of_bytes_whose_headers_could_not_be_read() {
    lose_after((1 << 31) + (1 << 27));
}
