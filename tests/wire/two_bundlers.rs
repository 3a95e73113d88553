//! Tests two bundlers at one device: no segment is bundled twice.

use std::time::Duration;

use pillion_bpf::Outcome::{
    Bundled, NoHistory, NotThin, NothingOutstanding, Overlap, Retransmission,
};
use pillion_bpf::{Options, Rule, ThinTest};
use pillion_tests::{Bundler, Checksums, Setup, limit_one, sysctl};

fn first(first: Bundler) -> Setup {
    Setup {
        bundlers: vec![first, Bundler::unlimited()],
        ..Setup::default()
    }
}

fn options(thin: ThinTest, max_packets: u32) -> Bundler {
    Bundler::with(Options {
        thin,
        max_packets: Some(max_packets),
        max_bytes: 0,
        ..limit_one()
    })
}

#[test]
fn second_bundler_leaves_bundles_of_first() {
    first(options(ThinTest::Always, 1)).run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.assert_outcomes_of(0, &[(Bundled, 3), (NothingOutstanding, 1)]);
        wire.assert_outcomes_of(1, &[(Overlap, 3), (NothingOutstanding, 1)]);
    });
}

#[test]
fn both_bundlers_count_new_and_redundant_bytes_alike() {
    first(Bundler::unlimited()).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        assert_eq!(wire.totals_of(0).counters.new_bytes, 300);
        assert_eq!(wire.totals_of(1).counters.new_bytes, 300);
        assert_eq!(wire.totals_of(0).counters.redundant_bytes, 300);
        assert_eq!(wire.totals_of(1).counters.redundant_bytes, 0);
    });
}

#[test]
fn second_bundler_bundles_what_first_does_not() {
    first(options(ThinTest::Spifl { limit: 1 }, 1)).run(|wire| {
        // The record of the second bundler ends where the first one bundled.
        wire.sends("1:101 1:201 201:301 201:401 201:501");
        wire.assert_outcomes_of(0, &[(Bundled, 1), (NothingOutstanding, 1), (NotThin, 3)]);
        wire.assert_outcomes_of(
            1,
            &[
                (Bundled, 2),
                (NothingOutstanding, 1),
                (Overlap, 1),
                (NoHistory, 1),
            ],
        );
    });
}

#[test]
fn connection_covered_only_by_second_is_bundled() {
    let unmatched = Bundler::with_rules(&[Rule {
        ports: vec![1..=1],
        ..Rule::default()
    }]);
    first(unmatched).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.assert_outcomes_of(0, &[]);
        wire.assert_outcomes_of(1, &[(Bundled, 2), (NothingOutstanding, 1)]);
    });
}

#[test]
fn both_bundlers_leave_retransmission_plain() {
    first(Bundler::unlimited()).run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack_sack(1, "101:401");
        wire.expect("1:101");
        assert_eq!(wire.totals_of(0).counters.of(Retransmission), 1);
        assert_eq!(wire.totals_of(1).counters.of(Retransmission), 1);
    });
}

#[test]
fn packet_through_two_devices_is_bundled_and_counted_once() {
    let setup = Setup {
        checksums: Checksums::Bridge,
        on_bridge: true,
        rto_min: Duration::from_secs(1),
        ..Setup::default()
    };
    setup.run_on_ip_variants(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:101");
        wire.ack(301);
        wire.sends("301:401");
        let counters = wire.totals().counters;
        assert_eq!((counters.new_bytes, counters.redundant_bytes), (400, 300));
        assert_eq!(counters.of(Bundled), 2);
        assert_eq!(counters.of(Retransmission), 1);
    });
}
