//! Tests of the caps on the redundancy of all connections.

use std::thread::sleep;
use std::time::{Duration, Instant};

use pillion_bpf::Outcome::{Bundled, Capped, NothingOutstanding};
use pillion_bpf::{Level, LossRule, Options, RedundancyCaps, ThinTest};
use pillion_tests::{Bundler, Setup, limit_one, sysctl, unlimited};

fn capped(options: Options, max_redundancy_rate: Option<u64>, max_copy_rate: Option<u64>) -> Setup {
    Setup {
        redundancy_caps: Some(RedundancyCaps {
            max_redundancy_rate,
            max_copy_rate,
        }),
        ..Setup::bundling(options)
    }
}

/// Two copies of each segment.
fn two_copies(level: Level) -> Options {
    Options {
        thin: ThinTest::Always,
        level: Some(level),
        copies: 2,
        loss_rule: LossRule::Dsack,
        ..limit_one()
    }
}

/// The published mechanism is capped as well.
#[test]
fn bundles_over_cap_are_left_out_until_rules_change() {
    capped(unlimited(), Some(99), None).run_on_ip_variants(|wire| {
        wire.sends("1:101 101:201 201:301");
        assert_eq!(wire.totals().counters.redundant_bytes, 0);
        wire.assert_outcomes(&[(Capped, 2), (NothingOutstanding, 1)]);
        wire.replace_rules(&Bundler::unlimited());
        wire.sends("1:401");
        wire.assert_outcomes(&[(Bundled, 1), (Capped, 2), (NothingOutstanding, 1)]);
    });
}

#[test]
fn spent_cap_allows_bundles_again_a_second_later() {
    let options = Options {
        max_packets: Some(1),
        ..unlimited()
    };
    capped(options, Some(100), None).run(|wire| {
        let start = Instant::now();
        wire.sends("1:101 1:201");
        // A machine that stalls for a second earns another bundle.
        while wire.totals().counters.of(Capped) == 0 {
            wire.write(100);
            assert!(wire.read_within(Duration::from_secs(5)).is_some());
        }
        sleep(Duration::from_millis(1100));
        let end = wire.written();
        wire.sends(&format!("{}:{}", end - 99, end + 101));
        let most = 100.0 * (1.0 + start.elapsed().as_secs_f64());
        let redundant = wire.totals().counters.redundant_bytes as f64;
        assert!((200.0..=most).contains(&redundant), "{redundant} {most}");
    });
}

#[test]
fn segment_without_bundle_or_copies_for_cap_is_capped() {
    for (bytes, copies) in [(None, Some(1)), (Some(199), None)] {
        capped(two_copies(Level::None), bytes, copies).run(|wire| {
            wire.sends("1:101 101:201");
            wire.expect_nothing(Duration::from_millis(100));
            wire.assert_outcomes(&[(Capped, 2)]);
            let totals = wire.totals();
            assert_eq!((totals.counters.copies, totals.copies_capped), (0, 2));
        });
    }
}

#[test]
fn capped_copies_leave_bundle_in_place() {
    capped(two_copies(Level::Fixed), Some(1_000_000), Some(1)).run(|wire| {
        wire.sends("1:101 1:201 101:301");
        wire.expect_nothing(Duration::from_millis(100));
        wire.assert_outcomes(&[(Bundled, 2), (Capped, 1)]);
        let totals = wire.totals();
        assert_eq!((totals.counters.copies, totals.copies_capped), (0, 3));
    });
}

#[test]
fn copies_within_caps_leave() {
    capped(two_copies(Level::Fixed), Some(800), Some(4)).run(|wire| {
        for range in ["1:101", "1:201"] {
            wire.sends(range);
            wire.expect(&format!("{range} {range}"));
        }
        let totals = wire.totals();
        assert_eq!((totals.counters.copies, totals.copies_capped), (4, 0));
        assert_eq!(totals.counters.redundant_bytes, 200 + 100 + 400);
    });
}

#[test]
fn capped_retransmission_has_no_bundle() {
    let options = Options {
        thin: ThinTest::Spifl { limit: 0 },
        bundle_retransmissions: true,
        published: false,
        ..unlimited()
    };
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..capped(options, Some(99), None)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 101:201");
        wire.expect("1:101");
    });
}
