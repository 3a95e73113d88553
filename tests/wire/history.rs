//! Tests the history of the stream: whole segments, until they are acknowledged.

use pillion_bpf::Outcome::{
    Bundled, FullSize, Gso, LossDetectionUnavailable, NoHistory, NoRoom, NothingOutstanding,
};
use pillion_bpf::host::pillion::{self, BUNDLE};
use pillion_bpf::{Mode, Options, ThinTest};
use pillion_tests::{Bundler, Setup, Wire, limit_one, unlimited};

#[test]
fn segment_after_full_ack_is_plain() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 2)]);
    });
}

#[test]
fn acknowledged_segments_are_not_bundled() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.sends("101:401");
        wire.ack(301);
        wire.sends("301:501");
    });
}

#[test]
fn partly_acknowledged_segment_is_not_bundled() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(151);
        wire.sends("201:401");
    });
}

#[test]
fn partial_outstanding_segment_leaves_next_plain() {
    Setup::default().run(|wire| {
        wire.sends("1:101");
        wire.ack(51);
        wire.sends("101:201 101:301");
        wire.assert_outcomes(&[(Bundled, 1), (NoHistory, 1), (NothingOutstanding, 1)]);
    });
}

#[test]
fn sequence_numbers_wrap_within_bundle() {
    for before_the_wrap in [0, 1, 99, 100, 150, 250] {
        let setup = Setup {
            isn: Some(u32::MAX - before_the_wrap),
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.ack(201);
            wire.sends("201:501");
            wire.assert_outcomes(&[(Bundled, 4), (NothingOutstanding, 1)]);
        });
    }
}

/// Streams 8 KiB and keeps two segments outstanding at each write.
fn stream_with_acks(isn: u32, bytes: u32) {
    let plain = Setup::default();
    let setup = Setup {
        isn: Some(isn.wrapping_sub(plain.mss.into())),
        ..plain
    };
    setup.run(|wire| {
        wire.prove_path();
        wire.sends(&format!("1:{} 1:{}", 1 + bytes, 1 + 2 * bytes));
        for segment in 2..8192 / bytes {
            let start = 1 + (segment - 2) * bytes;
            wire.ack(start);
            wire.sends(&format!("{start}:{}", start + 3 * bytes));
        }
    });
}

#[test]
fn bundle_is_intact_wherever_history_wraps() {
    // Starts at the first byte of the history, and at odd offsets.
    for (isn, bytes) in [(2047, 128), (2046, 128), (0, 97), (1000, 331)] {
        stream_with_acks(isn, bytes);
    }
}

#[test]
fn bundle_as_long_as_history_is_intact() {
    for isn in [2047, 1, 1234] {
        let setup = Setup {
            isn: Some(isn),
            mss: 8960,
            ..Setup::default()
        };
        setup.run(|wire| {
            for start in (1..8192).step_by(2047) {
                let (next, end) = (start + 800, start + 2047);
                wire.sends(&format!("{start}:{next} {start}:{end}"));
                wire.ack(end);
            }
        });
    }
}

#[test]
fn outstanding_data_may_exceed_history() {
    let setup = Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        max_bytes: 900,
        ..limit_one()
    });
    setup.run(|wire| {
        wire.prove_path();
        let ranges: Vec<String> = (1..=60)
            .map(|segment| {
                let end: u32 = 1 + 100 * segment;
                format!("{}:{end}", 1.max(end.saturating_sub(900)))
            })
            .collect();
        wire.sends(&ranges.join(" "));
    });
}

/// With more segments, losses could not be found and DSACKs of bundles would reach TCP.
#[test]
fn bundling_pauses_at_108_outstanding_segments() {
    let options = Options {
        max_packets: Some(1),
        ..unlimited()
    };
    Setup::bundling(options).run(|wire| {
        let end = |segment: u32| 1 + 4 * segment;
        wire.sends("1:5");
        for segment in 2..=108 {
            wire.sends(&format!("{}:{}", end(segment - 2), end(segment)));
        }
        wire.sends("433:437 437:441");
        wire.assert_outcomes(&[
            (Bundled, 107),
            (NothingOutstanding, 1),
            (LossDetectionUnavailable, 2),
        ]);
        // This segment has a free slot, but earlier segments were not recorded.
        wire.ack(5);
        wire.sends("441:445");
        assert_eq!(wire.totals().counters.of(LossDetectionUnavailable), 3);
        wire.ack(13);
        // Segments sent meanwhile are neither stored nor recorded individually.
        wire.sends("445:449 445:453");
        assert_eq!(wire.totals().counters.of(NoHistory), 1);
    });
}

#[test]
fn gso_packet_and_earlier_segments_are_not_bundled() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.write(2 * 1460);
        wire.expect("201:1661 1661:3121");
        wire.sends("3121:3221 3121:3321");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (Gso, 1), (NoRoom, 1)]);
    });
}

#[test]
fn full_size_and_earlier_segments_are_not_bundled() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201 201:1661 1661:1761 1661:1861");
        wire.assert_outcomes(&[
            (Bundled, 2),
            (NothingOutstanding, 1),
            (FullSize, 1),
            (NoRoom, 1),
        ]);
    });
}

/// Returns a setup whose bundles have at most this many previous segments.
fn limited_to(packets: u32) -> Setup {
    Setup::bundling(Options {
        max_packets: Some(packets),
        ..unlimited()
    })
}

/// Checks that almost all of these bytes are stored, and at most 7 more. Few bytes of the payload
/// are 0.
fn assert_stored(wire: &Wire, bytes: usize) {
    let stored = wire.stored_payload().expect("state of the connection");
    assert!(
        (bytes * 9 / 10..=bytes + 7).contains(&stored),
        "{stored} of {bytes} bytes"
    );
}

#[test]
fn only_segments_of_level_stay_stored() {
    for isn in [2047, 1000, 1] {
        let setup = Setup {
            isn: Some(isn),
            ..limited_to(1)
        };
        setup.run(|wire| {
            wire.sends("1:101");
            for start in (1..3000).step_by(100) {
                wire.sends(&format!("{start}:{}", start + 200));
                wire.ack(start + 100);
                assert_stored(wire, 100);
            }
        });
    }
    limited_to(2).run(|wire| {
        wire.sends("1:101 1:201 1:301 101:401");
        assert_stored(wire, 200);
    });
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        assert_stored(wire, 300);
    });
}

/// The segment before the gap cannot be bundled any more.
#[test]
fn segments_before_gap_are_erased() {
    limited_to(1).run(|wire| {
        wire.sends("1:301");
        wire.write(2 * 1460);
        wire.expect("301:1761 1761:3221");
        wire.sends("3221:3321");
        assert_stored(wire, 100);
    });
}

#[test]
fn payload_is_erased_when_application_declines() {
    for is_on_again in [true, false] {
        Setup::default().run(|wire| {
            wire.sends("1:101 1:201");
            assert_stored(wire, 200);
            pillion::set(&wire.socket(), BUNDLE, 0).expect("the option is set");
            assert_eq!(wire.stored_payload(), Some(0));
            wire.sends("201:301");
            assert_eq!(wire.stored_payload(), Some(0));
            if is_on_again {
                pillion::set(&wire.socket(), BUNDLE, 1).expect("the option is set");
                wire.sends("301:401 301:501");
                assert_stored(wire, 200);
            }
        });
    }
}

#[test]
fn payload_is_erased_when_connection_ends() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.end();
        assert_eq!(wire.stored_payload(), Some(0));
    });
}

#[test]
fn state_is_removed_when_rule_is_removed() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        assert_stored(wire, 200);
        wire.replace_rules(&Bundler::with_default(Mode::Never));
        assert_eq!(wire.stored_payload(), None);
    });
}
