//! Tests that packets are not lost repeatedly because of their size.

use std::time::Duration;

use pillion_bpf::Outcome::{Bundled, ExceedsPathSize, NothingOutstanding};
use pillion_bpf::{Options, ThinTest};
use pillion_tests::{Ip, Setup, Wire, limit_one, sysctl};

/// Bundles everything that fits, on a path of unknown size.
fn unlimited() -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        ..limit_one()
    })
}

#[test]
fn bundles_fit_minimum_path_size() {
    unlimited().run(|wire| {
        wire.sends("1:301 1:537 301:738 537:939");
        wire.ack(939);
        wire.sends("939:1339 1339:1739");
        wire.assert_outcomes(&[(Bundled, 3), (NothingOutstanding, 2), (ExceedsPathSize, 1)]);
    });
}

#[test]
fn bundles_fit_largest_delivered_packet() {
    unlimited().run(|wire| {
        wire.sends("1:701 701:1001");
        wire.ack(701);
        wire.sends("701:1401 1001:1701");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (ExceedsPathSize, 1)]);
    });
}

#[test]
fn sacked_packet_proves_its_size() {
    unlimited().run(|wire| {
        wire.sends("1:401 401:1201 1201:1301");
        wire.ack_sack(1, "401:1201");
        wire.expect("1:401");
        wire.ack_sack(1, "401:1301");
        wire.sends("1201:1901");
    });
}

#[test]
fn minimum_path_size_is_larger_over_ipv6() {
    Setup {
        ip: Ip::V6,
        ..unlimited()
    }
    .run(|wire| wire.sends("1:401 1:801 1:1221 401:1481 801:2021"));
}

#[test]
fn minimum_path_size_includes_headers() {
    let setup = |ip| Setup {
        ip,
        timestamps: true,
        ..unlimited()
    };
    setup(Ip::V4).run(|wire| wire.sends("1:201 1:401 1:525 401:726"));
    setup(Ip::V6).run(|wire| wire.sends("1:401 1:801 1:1209 801:1610"));
}

#[test]
fn proven_size_excludes_later_options() {
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
        wire.assert_outcomes(&[(NothingOutstanding, 2), (ExceedsPathSize, 1)]);
    });
}

/// Bundles one previous segment.
fn single() -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(Options {
            thin: ThinTest::Always,
            max_packets: Some(1),
            ..limit_one()
        })
    }
}

/// Sends two segments of 100 bytes, the second one with the first bundled. Both are lost.
fn lose_bundle(wire: &mut Wire) {
    let start = wire.written() + 1;
    let end = start + 200;
    wire.sends(&format!("{start}:{} {start}:{end}", start + 100));
    wire.expect(&format!("{start}:{end}"));
    wire.ack(end);
}

#[test]
fn small_bundles_go_one_at_a_time_after_lost_bundle() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        lose_bundle(wire);
        wire.sends("401:501 401:601");
        wire.ack(501);
        wire.sends("601:701");
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 1);
        wire.ack_duplicate(601, "401:501", "");
        wire.sends("601:801 701:1001 801:1101");
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 1);
    });
}

#[test]
fn three_lost_bundles_in_a_row_set_lower_limit() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        for _ in 0..3 {
            lose_bundle(wire);
        }
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 0);
        wire.sends("601:701 701:801");
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 1);
        wire.ack(801);
        wire.sends("801:901 801:1000");
    });
}

#[test]
fn one_lost_small_bundle_does_not_lower_limit() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        for _ in 0..3 {
            lose_bundle(wire);
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
fn bundle_lost_before_equal_one_arrives_is_not_too_large() {
    single().run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401 301:501");
        wire.ack(101);
        wire.ack_sack(101, "201:501");
        wire.expect("101:201");
        wire.sends("401:601 501:701");
        wire.ack(701);
        wire.sends("701:801 701:901 801:1001 901:1101");
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 0);
    });
}

#[test]
fn bundles_lost_together_count_as_one_failure() {
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
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 0);
    });
}

#[test]
fn late_delivery_lifts_limit() {
    single().run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "0");
        for _ in 0..3 {
            lose_bundle(wire);
        }
        // The last bundle had arrived, so TCP's retransmission was needless.
        wire.ack_duplicate(601, "401:601", "");
        wire.sends("601:701 601:801");
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), 0);
    });
}

/// Delivered sizes expire after half of the sequence space.
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
            wire.transfer_unparsed(bytes);
        }
        for _ in 0..3 {
            lose_bundle(wire);
        }
        let start = wire.written() + 1;
        let before = wire.totals().counters.of(ExceedsPathSize);
        let [middle, end] = [start + 100, start + 200];
        wire.write(100);
        wire.expect(&format!("{start}:{middle}"));
        wire.write(100);
        wire.expect(&format!("{middle}:{end}"));
        assert_eq!(wire.totals().counters.of(ExceedsPathSize), before + 1);
    });
}

#[test]
fn lost_bundles_set_limit_after_delivered_one() {
    lose_after(0);
}

#[test]
fn lost_bundles_set_limit_after_2_gib_of_unparsed_packets() {
    lose_after((1 << 31) + (1 << 27));
}
