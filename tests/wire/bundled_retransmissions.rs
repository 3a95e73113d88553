//! Tests that a retransmission bundles the segments after it, if the rule enables that.

use std::thread;
use std::time::Duration;

use pillion_bpf::Outcome::{
    Bundled, NotThin, NothingOutstanding, Retransmission, RetransmissionBundled as Again,
};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Checksums, Link, Setup, Wire, netstat, segment_overhead, sysctl, unlimited};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::random::limits;

/// Bundles everything that fits with a retransmission, and nothing with new data. After a timeout
/// TCP deems the data in flight lost, so the stream is thin.
fn options() -> Options {
    Options {
        thin: ThinTest::Spifl { limit: 0 },
        loss_rule: LossRule::Dsack,
        bundle_retransmissions: true,
        ..unlimited()
    }
}

/// Sets a retransmission timeout of one second.
fn setup(options: Options) -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        initial_window: 10,
        ..Setup::bundling(options)
    }
}

/// Makes TCP retransmit one segment at a time; by default it merges the following ones.
fn run(setup: Setup, test: impl FnOnce(&mut Wire) + Send) {
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        test(wire);
    });
}

/// Runs four tests at a time, because they mostly wait. Each one loads its own programs.
fn run_in_parallel<T: Send>(variants: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
    let mut variants = variants.into_iter().peekable();
    while variants.peek().is_some() {
        thread::scope(|scope| {
            for variant in variants.by_ref().take(4) {
                scope.spawn(|| test(variant));
            }
        });
    }
}

#[test]
fn retransmission_after_rto_bundles_following_segments() {
    setup(options()).run_on_ip_variants(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 101:201 201:301");
        wire.expect("1:301");
        wire.ack(301);
        wire.sends("301:401");
        wire.assert_outcomes(&[(NothingOutstanding, 2), (NotThin, 2), (Again, 1)]);
        let counters = wire.totals().counters;
        assert_eq!((counters.new_bytes, counters.redundant_bytes), (400, 200));
        assert_eq!(counters.segments(), 4);
    });
}

#[test]
fn retransmission_is_plain_by_default() {
    let retransmissions = false;
    let options = Options {
        bundle_retransmissions: retransmissions,
        ..unlimited()
    };
    run(setup(options), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1), (Retransmission, 1)]);
    });
}

/// The path may have dropped the larger packet because of its size.
#[test]
fn second_rto_sends_plain_and_third_bundles_again() {
    let thin = ThinTest::Always;
    run(setup(Options { thin, ..options() }), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201 1:101 1:201");
        wire.assert_outcomes(&[
            (Bundled, 1),
            (NothingOutstanding, 1),
            (Again, 2),
            (Retransmission, 1),
        ]);
    });
}

#[test]
fn checksum_is_correct_for_every_offload_mode() {
    let cases = [Checksums::Kernel, Checksums::Device, Checksums::Bridge].map(|checksums| {
        [
            (1460, "1:2 2:4 4:104 104:203", "1:203"),
            (1460, "1:101 101:164 164:165", "1:165"),
            // The maximum size.
            (8960, "1:1301 1301:2048", "1:2048"),
        ]
        .map(|(mss, sent, retransmission_end)| (checksums, mss, sent, retransmission_end))
    });
    run_in_parallel(
        cases.into_iter().flatten(),
        |(checksums, mss, sent, retransmission_end)| {
            let setup = Setup {
                checksums,
                mss,
                ..setup(options())
            };
            run(setup, |wire| {
                wire.sends(sent);
                wire.expect(retransmission_end);
            });
        },
    );
}

#[test]
fn oldest_whole_segments_are_bundled_within_limits() {
    let segments = "1:101 101:201 201:301 301:401";
    let cases = [
        (1, 0, segments, "1:201"),
        (2, 0, segments, "1:301"),
        (0, 0, segments, "1:401"),
        (0, 350, segments, "1:301"),
        (0, 150, segments, "1:101"),
        // Limited by the MSS.
        (0, 0, "1:1001 1001:1401 1401:1501", "1:1401"),
        // Of 3,200 bytes after the first segment, the oldest were overwritten.
        (0, 0, "1:1001 1001:1401 1401:2801 2801:4201", "1:1001"),
    ];
    run_in_parallel(
        cases,
        |(max_packets, max_bytes, sent, retransmission_end)| {
            let options = Options {
                max_packets: Some(max_packets),
                max_bytes,
                ..options()
            };
            run(setup(options), |wire| {
                wire.sends(sent);
                wire.expect(retransmission_end);
            });
        },
    );
}

/// The receive window ends at 229, 357 and 485.
#[test]
fn segments_beyond_receive_window_are_not_bundled() {
    let cases = [(128, "101:201"), (256, "101:301"), (384, "101:401")];
    run_in_parallel(cases, |(window, retransmission_end)| {
        run(setup(options()), |wire| {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_window(101, window);
            wire.expect(retransmission_end);
        });
    });
}

#[test]
fn acknowledged_segments_are_not_bundled() {
    run_in_parallel(
        [(101, "101:301"), (151, "151:301"), (201, "201:301")],
        |(acknowledged, retransmission_end)| {
            run(setup(options()), |wire| {
                wire.sends("1:101 101:201 201:301");
                wire.ack(acknowledged);
                wire.expect(retransmission_end);
            });
        },
    );
}

#[test]
fn retransmission_is_plain_when_sack_shows_gap() {
    run(setup(options()), |wire| {
        wire.sends("1:101 101:201 201:301 301:401 401:501 501:601");
        wire.ack_sack(1, "201:601");
        wire.expect("1:101 101:201");
        assert_eq!(wire.totals().counters.of(Retransmission), 2);
    });
}

#[test]
fn tail_loss_probe_is_plain() {
    let rtt = Duration::from_millis(300);
    run(
        Setup {
            rtt,
            ..setup(options())
        },
        |wire| {
            sysctl("net.ipv4.tcp_early_retrans", "3");
            wire.sends("1:101 101:201 201:301");
            wire.expect("201:301");
            assert_eq!(wire.totals().counters.of(Retransmission), 1);
        },
    );
}

#[test]
fn data_of_fin_segment_is_bundled_without_fin() {
    run(setup(options()), |wire| {
        wire.sends("1:101");
        wire.write_with(100, libc::MSG_MORE);
        wire.shutdown();
        wire.expect("101:201F 1:201");
        wire.ack(201);
        wire.expect("201:201F");
    });
}

#[test]
fn retransmission_takes_psh_from_bundled_segments() {
    run(setup(options()), |wire| {
        wire.write_with(100, libc::MSG_MORE);
        wire.set_option((libc::IPPROTO_TCP, libc::TCP_NODELAY), &1i32.to_ne_bytes());
        wire.expect_push("1:101", false);
        wire.write(100);
        wire.expect_push("101:201", true);
        wire.expect_push("1:201", true);
    });
}

#[test]
fn packet_through_two_devices_is_bundled_once() {
    let max_packets = 1;
    let setup = Setup {
        checksums: Checksums::Bridge,
        on_bridge: true,
        ..setup(Options {
            max_packets: Some(max_packets),
            ..options()
        })
    };
    run(setup, |wire| {
        wire.sends("1:101 101:201 201:301");
        wire.expect("1:201");
        let counters = wire.totals().counters;
        assert_eq!((counters.of(Again), counters.redundant_bytes), (1, 100));
    });
}

#[test]
fn retransmission_without_link_header_is_bundled() {
    let link = Link::Absent;
    run(
        Setup {
            link,
            ..setup(options())
        },
        |wire| {
            wire.sends("1:101 101:201");
            wire.expect("1:201");
        },
    );
}

/// Sends three segments, of which the first is retransmitted together with the others. The DSACKs
/// are counted as those that TCP saw and those that were removed.
fn with_retransmission(options: Options, test: impl FnOnce(&mut Wire) + Send) {
    run(setup(options), |wire| {
        wire.sends("1:101 101:201 201:301");
        wire.expect("1:301");
        test(wire);
    });
}

fn dsacks(wire: &Wire) -> (u64, u64) {
    (
        netstat("TCPDSACKRecv"),
        wire.totals().counters.dsacks_removed,
    )
}

/// Returns losses that bundles repaired, and losses that bundled retransmissions repaired.
fn losses(wire: &Wire) -> (u64, u64) {
    let counters = wire.totals().counters;
    (counters.hidden_losses, counters.piggyback_repaired_segments)
}

#[test]
fn bundled_segment_without_dsack_is_lost() {
    let cases = [("", 2), ("201:301", 1), ("101:301", 0)];
    run_in_parallel(cases, |(duplicate, repaired)| {
        with_retransmission(options(), |wire| {
            wire.ack_duplicate(301, duplicate, "");
            assert_eq!(losses(wire), (0, repaired), "{duplicate}");
            let removed = u64::from(!duplicate.is_empty());
            assert_eq!(dsacks(wire), (0, removed), "{duplicate}");
        });
    });
}

#[test]
fn segment_bundled_before_with_new_data_is_distinguished() {
    let thin = ThinTest::Always;
    run(setup(Options { thin, ..options() }), |wire| {
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:301");
        wire.ack_duplicate(301, "101:301", "");
        assert_eq!((losses(wire), dsacks(wire)), ((0, 0), (0, 1)));
    });
}

#[test]
fn late_originals_are_not_duplicates_of_retransmission() {
    with_retransmission(options(), |wire| {
        wire.ack(301);
        wire.ack_without_waiting(301, "101:201");
        wire.ack_without_waiting(301, "201:301");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(dsacks(wire), (0, 2));
        assert!(wire.totals().counters.reordered > 0);
    });
}

#[test]
fn dsack_of_retransmitted_segment_reaches_tcp() {
    // The original of the first segment was late, the others were lost.
    let late_original = |wire: &mut Wire| wire.ack_duplicate(301, "1:101", "");
    // All originals were late.
    let all_late_originals = |wire: &mut Wire| {
        wire.ack(301);
        wire.ack_without_waiting(301, "1:301");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(wire.totals().counters.reordered, 2);
    };
    let cases: [fn(&mut Wire); 2] = [late_original, all_late_originals];
    run_in_parallel(cases, |finish| {
        with_retransmission(options(), |wire| {
            finish(wire);
            assert_eq!(dsacks(wire), (1, 0));
        });
    });
}

/// TCP takes the ACK of bundled segments for an ACK of the originals.
#[test]
fn undone_tcp_reduction_causes_reaction() {
    run_in_parallel([("2", 1), ("0", 0)], |(frto, reactions)| {
        run(setup(options()), |wire| {
            sysctl("net.ipv4.tcp_frto", frto);
            wire.sends("1:101 101:201 201:301");
            wire.expect("1:301");
            wire.ack(301);
            let window = wire.tcp_info().tcpi_snd_cwnd;
            assert_eq!(window == 10, reactions == 1, "{window}");
            wire.sends("301:401");
            assert_eq!(wire.totals().counters.reactions, reactions);
            assert_eq!(wire.tcp_info().tcpi_snd_ssthresh, 5);
        });
    });
}

#[test]
fn random_outstanding_data_is_bundled_as_modelled() {
    run_in_parallel(0..16, |seed| {
        let mut random = Pcg64::seed_from_u64(seed);
        let options = Options {
            max_packets: Some([0, 0, 1, 2][random.random_range(0..4)]),
            max_bytes: [0, 0, 450, 1000][random.random_range(0..4)],
            ..options()
        };
        let setup = Setup {
            isn: Some(u32::MAX - random.random_range(0..3000)),
            mss: [1220, 1460, 8960][random.random_range(0..3)],
            timestamps: random.random(),
            checksums: [Checksums::Kernel, Checksums::Device][random.random_range(0..2)],
            rto_min: Duration::from_secs(2),
            ..setup(options)
        };
        run(setup, |wire| {
            let mut starts = vec![1];
            for _ in 0..random.random_range(2..9) {
                let max_payload = [10, 100, 400, wire.mss().min(2047)][random.random_range(0..4)];
                let (start, bytes) = (wire.written() + 1, random.random_range(1..=max_payload));
                wire.sends(&format!("{start}:{}", start + bytes));
                starts.push(start + bytes);
            }
            let sent = starts[starts.len() - 1];
            let acknowledged = random.random_range(1..sent);
            if acknowledged > 1 {
                wire.ack(acknowledged);
            }
            let limits = limits(&options, wire.mss());
            let retransmission_end =
                retransmission_end(&starts, acknowledged, limits, segment_overhead());
            wire.expect(&format!("{acknowledged}:{retransmission_end}"));
        });
    });
}

/// Returns the end of the retransmission. Each segment starts at the end of the previous one.
fn retransmission_end(
    starts: &[u32],
    acknowledged: u32,
    (packets, limit): (usize, u32),
    overhead: u32,
) -> u32 {
    let mut finish = starts.iter().copied().filter(|end| *end > acknowledged);
    let sent = starts[starts.len() - 1];
    let first_end = finish.next().expect("something is outstanding");
    let limit = limit.min(first_end - acknowledged + overhead - 1);
    let fits = |end: &u32| sent - first_end <= 2048 && end - acknowledged <= limit;
    finish
        .take(packets)
        .take_while(fits)
        .last()
        .unwrap_or(first_end)
}
