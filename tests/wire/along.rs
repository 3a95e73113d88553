//! A retransmission takes along the segments that follow it, where that is asked for.

use std::thread;
use std::time::Duration;

use pillion_bpf::Outcome::{
    Bundled, NotThin, NothingOutstanding, OldData, RetransmissionBundled as Again,
};
use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Checksums, Link, Setup, Wire, netstat, segment_overhead, sysctl, unlimited};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::random::limits;

/// All that fits rides along with a retransmission, and with new data nothing: by then TCP
/// deems what is in flight lost, so that the stream is thin.
fn options() -> Options {
    Options {
        thin: ThinTest::Spifl { limit: 0 },
        loss_rule: LossRule::Dsack,
        retransmissions: true,
        ..unlimited()
    }
}

/// Time-outs after one second.
fn setup(options: Options) -> Setup {
    Setup {
        rto_min: Duration::from_secs(1),
        initial_window: 10,
        ..Setup::bundling(options)
    }
}

/// With retransmissions of one segment at a time; TCP itself merges those that follow.
fn run(setup: Setup, test: impl FnOnce(&mut Wire) + Send) {
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        test(wire);
    });
}

/// Four at once, for they wait most of the time; each takes programs of its own.
fn run_all<T: Send>(variants: impl IntoIterator<Item = T>, test: impl Fn(T) + Sync) {
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
fn after_a_time_out_all_that_follows_rides_along() {
    setup(options()).run_everywhere(|wire| {
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
fn unless_it_is_asked_for_nothing_rides_along_with_a_retransmission() {
    let retransmissions = false;
    let options = Options {
        retransmissions,
        ..unlimited()
    };
    run(setup(options), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.assert_outcomes(&[(Bundled, 1), (NothingOutstanding, 1), (OldData, 1)]);
    });
}

/// The path may have dropped the larger packet for its size.
#[test]
fn a_second_time_out_sends_the_segment_alone_and_a_third_takes_them_along_again() {
    let thin = ThinTest::Always;
    run(setup(Options { thin, ..options() }), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201 1:101 1:201");
        wire.assert_outcomes(&[
            (Bundled, 1),
            (NothingOutstanding, 1),
            (Again, 2),
            (OldData, 1),
        ]);
    });
}

#[test]
fn the_checksum_is_right_whoever_computes_it() {
    let cases = [Checksums::Kernel, Checksums::Device, Checksums::Bridge].map(|checksums| {
        [
            (1460, "1:2 2:4 4:104 104:203", "1:203"),
            (1460, "1:101 101:164 164:165", "1:165"),
            // As large as it can be.
            (8960, "1:1301 1301:2048", "1:2048"),
        ]
        .map(|(mss, sent, again)| (checksums, mss, sent, again))
    });
    run_all(
        cases.into_iter().flatten(),
        |(checksums, mss, sent, again)| {
            let setup = Setup {
                checksums,
                mss,
                ..setup(options())
            };
            run(setup, |wire| {
                wire.sends(sent);
                wire.expect(again);
            });
        },
    );
}

#[test]
fn whole_segments_ride_along_the_oldest_first_as_the_limits_allow() {
    let hundreds = "1:101 101:201 201:301 301:401";
    let cases = [
        (1, 0, hundreds, "1:201"),
        (2, 0, hundreds, "1:301"),
        (0, 0, hundreds, "1:401"),
        (0, 350, hundreds, "1:301"),
        (0, 150, hundreds, "1:101"),
        // The MSS.
        (0, 0, "1:1001 1001:1401 1401:1501", "1:1401"),
        // Of 3,200 bytes behind the first segment, the oldest are forgotten.
        (0, 0, "1:1001 1001:1401 1401:2801 2801:4201", "1:1001"),
    ];
    run_all(cases, |(max_packets, max_bytes, sent, again)| {
        let options = Options {
            max_packets: Some(max_packets),
            max_bytes,
            ..options()
        };
        run(setup(options), |wire| {
            wire.sends(sent);
            wire.expect(again);
        });
    });
}

/// The window ends at 229, 357 and 485.
#[test]
fn what_the_peer_has_no_room_for_any_more_does_not_ride_along() {
    let cases = [(128, "101:201"), (256, "101:301"), (384, "101:401")];
    run_all(cases, |(window, again)| {
        run(setup(options()), |wire| {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_window(101, window);
            wire.expect(again);
        });
    });
}

#[test]
fn what_is_acknowledged_does_not_ride_along() {
    run_all(
        [(101, "101:301"), (151, "151:301"), (201, "201:301")],
        |(acknowledged, again)| {
            run(setup(options()), |wire| {
                wire.sends("1:101 101:201 201:301");
                wire.ack(acknowledged);
                wire.expect(again);
            });
        },
    );
}

#[test]
fn with_selective_acknowledgements_tcp_knows_what_is_missing() {
    run(setup(options()), |wire| {
        wire.sends("1:101 101:201 201:301 301:401 401:501 501:601");
        wire.ack_sack(1, "201:601");
        wire.expect("1:101 101:201");
        assert_eq!(wire.totals().counters.of(OldData), 2);
    });
}

#[test]
fn nothing_follows_the_segment_that_a_tail_loss_probe_sends() {
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
            assert_eq!(wire.totals().counters.of(OldData), 1);
        },
    );
}

#[test]
fn the_data_of_a_fin_rides_along_without_it() {
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
fn it_is_handed_on_to_the_application_as_what_rode_along_was() {
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
fn a_packet_that_passes_two_devices_takes_them_along_once() {
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
fn packets_without_a_link_header_are_no_exception() {
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

/// Three segments, of which the first is retransmitted with the others, and reports of
/// duplicates: those that TCP saw, and those that were taken out.
fn sends_again(options: Options, test: impl FnOnce(&mut Wire) + Send) {
    run(setup(options), |wire| {
        wire.sends("1:101 101:201 201:301");
        wire.expect("1:301");
        test(wire);
    });
}

fn reports(wire: &Wire) -> (u64, u64) {
    (
        netstat("TCPDSACKRecv"),
        wire.totals().counters.dsacks_hidden,
    )
}

/// Segments found lost: that bundles repaired, and that retransmissions did.
fn lost(wire: &Wire) -> (u64, u64) {
    let counters = wire.totals().counters;
    (counters.hidden_losses, counters.repaired_along)
}

#[test]
fn what_rode_along_and_is_not_reported_as_duplicate_was_lost() {
    let cases = [("", 2), ("201:301", 1), ("101:301", 0)];
    run_all(cases, |(duplicate, repaired)| {
        sends_again(options(), |wire| {
            wire.ack_duplicate(301, duplicate, "");
            assert_eq!(lost(wire), (0, repaired), "{duplicate}");
            let taken_out = u64::from(!duplicate.is_empty());
            assert_eq!(reports(wire), (0, taken_out), "{duplicate}");
        });
    });
}

#[test]
fn what_rode_along_with_new_data_before_is_told_apart() {
    let thin = ThinTest::Always;
    run(setup(Options { thin, ..options() }), |wire| {
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:301");
        wire.ack_duplicate(301, "101:301", "");
        assert_eq!((lost(wire), reports(wire)), ((0, 0), (0, 1)));
    });
}

#[test]
fn originals_that_come_late_are_no_duplicates_of_a_retransmission() {
    sends_again(options(), |wire| {
        wire.ack(301);
        wire.acks_late(301, "101:201");
        wire.acks_late(301, "201:301");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(reports(wire), (0, 2));
        assert!(wire.totals().counters.reordered > 0);
    });
}

#[test]
fn the_report_of_the_segment_retransmitted_reaches_tcp() {
    // Its original was late, the others were lost.
    let alone = |wire: &mut Wire| wire.ack_duplicate(301, "1:101", "");
    // All originals were late.
    let whole = |wire: &mut Wire| {
        wire.ack(301);
        wire.acks_late(301, "1:301");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(wire.totals().counters.reordered, 2);
    };
    let cases: [fn(&mut Wire); 2] = [alone, whole];
    run_all(cases, |ends| {
        sends_again(options(), |wire| {
            ends(wire);
            assert_eq!(reports(wire), (1, 0));
        });
    });
}

/// TCP takes the acknowledgement of what rode along for that of the originals.
#[test]
fn where_tcp_takes_its_reduction_back_a_reaction_is_due() {
    run_all([("2", 1), ("0", 0)], |(frto, reactions)| {
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
fn whatever_is_outstanding_the_wire_is_as_the_rules_say() {
    run_all(0..16, |seed| {
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
                let most = [10, 100, 400, wire.mss().min(2047)][random.random_range(0..4)];
                let (start, bytes) = (wire.written() + 1, random.random_range(1..=most));
                wire.sends(&format!("{start}:{}", start + bytes));
                starts.push(start + bytes);
            }
            let sent = starts[starts.len() - 1];
            let acknowledged = random.random_range(1..sent);
            if acknowledged > 1 {
                wire.ack(acknowledged);
            }
            let limits = limits(&options, wire.mss());
            let again = again(&starts, acknowledged, limits, segment_overhead());
            wire.expect(&format!("{acknowledged}:{again}"));
        });
    });
}

/// Where the retransmission ends; segments begin where those before them end.
fn again(starts: &[u32], acknowledged: u32, (packets, limit): (usize, u32), overhead: u32) -> u32 {
    let mut ends = starts.iter().copied().filter(|end| *end > acknowledged);
    let sent = starts[starts.len() - 1];
    let own = ends.next().expect("something is outstanding");
    let limit = limit.min(own - acknowledged + overhead - 1);
    let fits = |end: &u32| sent - own <= 2048 && end - acknowledged <= limit;
    ends.take(packets).take_while(fits).last().unwrap_or(own)
}
