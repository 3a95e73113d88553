//! Tests of copies: which segments leave more than once, and what their reports show.

use std::ops::Range;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pillion_bpf::{CopiesWhen, Level, LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Bundler, Setup, Wire, limit_one, netstat, sysctl};

/// One copy of each segment, without bundles.
fn copies() -> Options {
    Options {
        thin: ThinTest::Always,
        level: Some(Level::None),
        copies: 1,
        loss_rule: LossRule::Dsack,
        ..limit_one()
    }
}

fn run(options: Options, test: impl Fn(&mut Wire) + Sync) {
    Setup::bundling(options).run_on_ip_variants(test);
}

#[test]
fn new_segment_leaves_as_often_as_configured() {
    for number in [1, 2] {
        let options = Options {
            copies: number,
            ..copies()
        };
        run(options, |wire| {
            wire.sends("1:101");
            for _ in 0..number {
                wire.expect("1:101");
            }
            wire.sends("101:201");
            for _ in 0..number {
                wire.expect("101:201");
            }
            let totals = wire.totals();
            assert_eq!(totals.counters.copies, 2 * u64::from(number));
            assert_eq!(totals.counters.redundant_bytes, 200 * u64::from(number));
            assert_eq!(totals.counters.of(Outcome::NoBundles), 1);
            assert_eq!(totals.copies_refused, 0);
        });
    }
}

#[test]
fn copy_includes_bundle() {
    let options = Options {
        level: Some(Level::Fixed),
        ..copies()
    };
    run(options, |wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.sends("1:201");
        wire.expect("1:201");
        wire.sends("101:301");
        wire.expect("101:301");
        assert_eq!(wire.totals().counters.redundant_bytes, 100 + 300 + 300);
    });
}

#[test]
fn retransmission_is_not_copied() {
    run(copies(), |wire| {
        for range in ["1:101", "101:201", "201:301", "301:401", "401:501"] {
            wire.sends(range);
            wire.expect(range);
        }
        wire.ack_sack(1, "101:501");
        wire.expect("1:101");
        wire.expect_nothing(Duration::from_millis(100));
        assert_eq!(wire.totals().counters.copies, 5);
    });
}

#[test]
fn full_segment_is_not_copied() {
    run(copies(), |wire| {
        let end = 1 + wire.mss();
        wire.sends(&format!("1:{end}"));
        wire.expect_nothing(Duration::from_millis(100));
        assert_eq!(wire.totals().counters.copies, 0);
    });
}

/// A full queue would refuse the next ones as well.
#[test]
fn refused_copy_pauses_copies_for_64_segments() {
    run(copies(), |wire| {
        wire.refuse_data(true);
        wire.write(100);
        wire.expect_nothing(Duration::from_millis(50));
        wire.refuse_data(false);
        assert_eq!(wire.totals().copies_refused, 1);
        // TCP sends the refused segment with the next write.
        wire.write(100);
        wire.expect("1:201");
        for segment in 2..65 {
            let end = 1 + 100 * segment;
            wire.ack(end);
            wire.sends(&format!("{end}:{}", end + 100));
        }
        wire.ack(6501);
        wire.sends("6501:6601");
        wire.expect("6501:6601");
        assert_eq!(wire.totals().counters.copies, 1);
    });
}

/// The report of a copy would look like a duplicate ACK, and the time-out needed (F-RTO).
#[test]
fn segment_that_checks_a_timeout_is_not_copied() {
    let setup = Setup {
        rto_min: Duration::from_millis(200),
        ..Setup::bundling(copies())
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        for segment in ["1:101", "101:201"] {
            wire.sends(segment);
            wire.expect(segment);
        }
        wire.expect("1:101");
        wire.write(100);
        wire.ack(101);
        wire.expect("201:301");
        wire.expect_nothing(Duration::from_millis(50));
    });
}

#[test]
fn peer_without_sack_gets_no_copies() {
    let options = Options {
        without_sack: true,
        loss_rule: LossRule::Ack,
        ..copies()
    };
    let setup = Setup {
        sack: false,
        ..Setup::bundling(options)
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        wire.expect_nothing(Duration::from_millis(100));
        assert_eq!(wire.totals().counters.copies, 0);
    });
}

/// A path with an RTT far longer than the time between two segments, even on a slow machine.
fn slow_path(options: Options) -> Setup {
    Setup {
        rtt: Duration::from_millis(500),
        ..Setup::bundling(options)
    }
}

#[test]
fn isolated_segments_are_copied() {
    let options = Options {
        copies_when: CopiesWhen::Isolated,
        ..copies()
    };
    slow_path(options).run_on_ip_variants(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.sends("101:201 201:301");
        wire.expect_nothing(Duration::from_millis(100));
        wire.ack(301);
        wire.sends("301:401");
        wire.expect("301:401");
        assert_eq!(wire.totals().counters.copies, 2);
    });
}

#[test]
fn report_of_copy_is_removed() {
    let options = Options {
        level: Some(Level::Fixed),
        ..copies()
    };
    run(options, |wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        wire.ack_duplicate(101, "1:101", "");
        wire.sends("101:201");
        wire.expect("101:201");
        wire.sends("101:301");
        wire.expect("101:301");
        wire.ack(201);
        wire.ack_duplicate(201, "101:201", "");
        // The bundle's own report, and that of its packet's copy.
        wire.ack_duplicate(301, "101:201", "");
        wire.ack_duplicate(301, "101:301", "");
        let counters = wire.totals().counters;
        assert_eq!(counters.dsacks_removed, 4);
        assert_eq!(netstat("TCPDSACKRecv"), 0);
        assert_eq!((counters.hidden_losses, counters.copy_losses), (0, 0));
        assert_eq!(counters.reordered, 0);
    });
}

/// The receiver reports the FIN as well.
#[test]
fn report_of_copy_with_fin_is_removed() {
    run(copies(), |wire| {
        wire.write_with(100, libc::MSG_MORE);
        wire.shutdown();
        wire.expect("1:101F 1:101F");
        wire.ack(102);
        wire.ack_duplicate(102, "1:102", "");
        assert_eq!(wire.totals().counters.dsacks_removed, 1);
        assert_eq!(netstat("TCPDSACKIgnoredDubious"), 0);
    });
}

#[test]
fn report_of_retransmitted_fin_after_copy_reaches_tcp() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..Setup::bundling(copies())
    };
    setup.run_on_ip_variants(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        wire.shutdown();
        wire.expect("101:101F 101:101F");
        wire.ack_duplicate(102, "101:102", "");
        assert_eq!(wire.totals().counters.dsacks_removed, 0);
        assert_eq!(netstat("TCPDSACKRecv"), 1);
    });
}

/// A bundle repairs the loss of a segment and of its copy; the report of the bundle's copy names
/// the segment as well.
#[test]
fn report_of_copy_keeps_hidden_loss() {
    let options = Options {
        level: Some(Level::Fixed),
        ..copies()
    };
    run(options, |wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.sends("1:201");
        wire.expect("1:201");
        wire.ack(201);
        wire.ack_duplicate(201, "1:201", "");
        let counters = wire.totals().counters;
        assert_eq!((counters.hidden_losses, counters.reordered), (1, 0));
    });
}

/// Sends `segments` segments, of which all are acknowledged, and the copies of all but `missing`
/// reported.
fn exchange(wire: &mut Wire, segments: u32, missing: u32) {
    for segment in 0..segments {
        let (start, end) = (1 + 100 * segment, 101 + 100 * segment);
        wire.sends(&format!("{start}:{end}"));
        wire.expect(&format!("{start}:{end}"));
        wire.ack(end);
        if segment % (segments / (missing + 1)) != 1
            || segment / (segments / (missing + 1)) >= missing
        {
            wire.ack_duplicate(end, &format!("{start}:{end}"), "");
        }
    }
}

#[test]
fn two_missing_reports_are_no_loss() {
    run(copies(), |wire| {
        exchange(wire, 20, 2);
        assert_eq!(wire.totals().counters.copy_losses, 0);
    });
}

#[test]
fn losses_that_copies_hide_cause_reactions() {
    let options = Options {
        reaction: Some(Reaction::Cwr),
        ..copies()
    };
    run(options, |wire| {
        exchange(wire, 60, 10);
        let counters = wire.totals().counters;
        // Two may be missing at random.
        assert_eq!(counters.copy_losses, 8);
        assert!(
            (1..=8).contains(&counters.reactions),
            "{}",
            counters.reactions
        );
    });
}

/// Sends 240 segments and their copies, without a loss. Of eight plain ACKs one is lost, and of
/// eight ACKs with a report another; a receiver that delays ACKs sends only the latter.
fn lose_acks(wire: &mut Wire, are_delayed: bool) {
    for segment in 0..240 {
        let range = format!("{}:{}", 1 + 100 * segment, 101 + 100 * segment);
        wire.sends(&range);
        wire.expect(&range);
        if !are_delayed && segment % 8 != 0 {
            wire.ack(101 + 100 * segment);
        }
        if segment % 8 != 4 {
            wire.ack_duplicate(101 + 100 * segment, &range, "");
        }
    }
}

#[test]
fn lost_acks_are_no_losses_of_copies() {
    for are_delayed in [false, true] {
        run(copies(), |wire| {
            lose_acks(wire, are_delayed);
            assert_eq!(wire.totals().counters.copy_losses, 0, "{are_delayed}");
        });
    }
}

#[test]
fn receiver_without_reports_gets_no_more_copies() {
    let options = Options {
        loss_rule: LossRule::Auto,
        ..copies()
    };
    run(options, |wire| {
        let mut end = 1;
        for _ in 0..8 {
            wire.sends(&format!("{end}:{}", end + 100));
            wire.expect(&format!("{end}:{}", end + 100));
            end += 100;
            wire.ack(end);
        }
        wire.sends(&format!("{end}:{}", end + 100));
        wire.expect_nothing(Duration::from_millis(100));
        let counters = wire.totals().counters;
        assert_eq!((counters.copies, counters.copy_losses), (8, 0));
    });
}

/// Level `auto` with a deadline of 1 ms, so that isolated segments are copied.
fn auto() -> Options {
    Options {
        level: Some(Level::Auto),
        deadline: Some(Duration::from_millis(1)),
        copies: 0,
        reaction: Some(Reaction::TfrcSp),
        ..copies()
    }
}

/// Sends isolated segments with their copies, and acknowledges both.
fn send_isolated(wire: &mut Wire, segments: Range<u32>) {
    for segment in segments {
        std::thread::sleep(Duration::from_millis(2));
        let (start, end) = (1 + 100 * segment, 101 + 100 * segment);
        let range = format!("{start}:{end}");
        wire.sends(&range);
        wire.expect(&range);
        wire.ack(end);
        wire.ack_duplicate(end, &range, "");
    }
}

#[test]
fn auto_copies_isolated_segments_only() {
    slow_path(auto()).run_on_ip_variants(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.sends("1:201 101:301");
        wire.ack(301);
        assert_eq!(wire.totals().counters.copies, 1);
        send_isolated(wire, 3..6);
        assert_eq!(wire.totals().counters.copies, 4);
    });
}

/// Without a deadline, the next message is in time if it comes within 105 ms. Before the second one, that
/// is unknown.
#[test]
fn auto_skips_copy_if_next_message_is_in_time() {
    let options = Options {
        deadline: None,
        ..auto()
    };
    run(options, |wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        std::thread::sleep(Duration::from_millis(10));
        wire.sends("101:201");
        wire.expect_nothing(Duration::from_millis(100));
        // The smoothed time between messages: 7/8 of 10 ms and 1/8 of 900 ms are 121 ms.
        std::thread::sleep(Duration::from_millis(790));
        wire.ack(201);
        wire.sends("201:301");
        wire.expect("201:301");
    });
}

#[test]
fn auto_ends_copies_where_nothing_is_lost() {
    Setup::bundling(auto()).run(|wire| {
        // With copies at most 100 packets per second.
        const PACE: Pace = Pace {
            rtt: Duration::from_millis(2),
            itt: Duration::from_millis(23),
            ..SHORT
        };
        // Eight decisions, one for each sixteen segments.
        assert_eq!(send_paced(wire, 0..128, PACE), 128);
        wire.sends("12801:12901");
        wire.expect_nothing(Duration::from_millis(100));
    });
}

/// Nothing has been lost yet, so only their number is limited.
#[test]
fn auto_copies_stay_below_100_packets_per_second() {
    Setup::bundling(auto()).run(|wire| {
        let start = Instant::now();
        let copies = send_paced(wire, 0..120, SHORT) as f64;
        // Half of 100 packets per second, decided once per eight segments.
        let allowed = 50.0 * start.elapsed().as_secs_f64().max(1.0) + 16.0;
        assert!((30.0..allowed).contains(&copies), "{copies} {allowed}");
    });
}

/// How segments are sent one by one: each is acknowledged after the RTT, and the next one follows
/// after the ITT.
#[derive(Clone, Copy)]
struct Pace {
    rtt: Duration,
    itt: Duration,
    /// Additional time until the ACK of a segment without copies.
    delayed_ack: Duration,
}

const SHORT: Pace = Pace {
    rtt: Duration::from_millis(2),
    itt: Duration::from_millis(2),
    delayed_ack: Duration::ZERO,
};

/// The RTT shows a queue to the stream, but not to the governor, which allows half an ITT in addition.
const LONG: Pace = Pace {
    rtt: Duration::from_millis(12),
    itt: Duration::from_millis(30),
    ..SHORT
};

/// Windows of 250 ms without a queue.
const CALM: Pace = Pace {
    itt: Duration::from_millis(20),
    ..SHORT
};

/// As [`LONG`], with few RTT samples.
const LONG_SELDOM: Pace = Pace {
    itt: Duration::from_millis(100),
    ..LONG
};

/// Sends segments one by one. Returns the number of copies.
fn send_paced(wire: &mut Wire, segments: Range<u32>, pace: Pace) -> u64 {
    let before = wire.totals().counters.copies;
    for segment in segments {
        let (start, end) = (1 + 100 * segment, 101 + 100 * segment);
        wire.write(100);
        let mut packets = 0;
        while let Some(range) = wire.read_within(pace.rtt) {
            assert_eq!(range, (start, end));
            packets += 1;
        }
        let delayed_ack = if packets > 1 {
            Duration::ZERO
        } else {
            pace.delayed_ack
        };
        std::thread::sleep(delayed_ack);
        wire.ack(end);
        if packets > 1 {
            wire.ack_duplicate(end, &format!("{start}:{end}"), "");
        }
        std::thread::sleep(pace.itt - pace.rtt - delayed_ack);
    }
    wire.totals().counters.copies - before
}

/// Bundling with measurements of the path.
fn governed(options: Options) -> Setup {
    Setup {
        governing: true,
        ..Setup::bundling(options)
    }
}

/// Sends 40 segments, after which packets wait on the path.
fn show_queue(wire: &mut Wire) {
    assert_eq!(send_paced(wire, 0..4, SHORT), 4);
    assert!(!wire.flow().has_queue);
    // More than two windows of 250 ms, because the first one has short RTTs as well.
    send_paced(wire, 4..40, LONG);
    assert!(wire.flow().has_queue);
}

#[test]
fn auto_sends_no_copies_while_packets_wait() {
    governed(auto()).run_on_ip_variants(|wire| {
        show_queue(wire);
        assert_eq!(send_paced(wire, 40..50, LONG), 0);
        // A queue is expected for sixteen windows of 250 ms, which are 200 segments.
        send_paced(wire, 50..300, CALM);
        assert!(!wire.flow().has_queue);
    });
}

/// Few RTT samples show a queue as well.
#[test]
fn auto_sends_no_copies_of_rare_segments_into_queue() {
    governed(auto()).run(|wire| {
        send_isolated(wire, 0..8);
        // Two windows of three segments each, and one before with shorter RTTs.
        send_paced(wire, 8..28, LONG_SELDOM);
        assert!(wire.flow().has_queue);
        assert_eq!(send_paced(wire, 28..44, LONG_SELDOM), 0);
    });
}

/// Segments that are less than an RTT apart try no copies while the queue lasts.
#[test]
fn queue_of_frequent_segments_is_seen_throughout() {
    const ITT: Duration = Duration::from_millis(10);
    governed(auto()).run(|wire| {
        send_paced(wire, 0..4, SHORT);
        // Each segment is acknowledged after two more. 600 last longer than sixteen windows of 250 ms.
        for segment in 4..600 {
            wire.write(100);
            while wire.read_within(ITT).is_some() {}
            if segment > 6 {
                wire.ack(1 + 100 * (segment - 2));
            }
            if segment > 150 && segment % 5 == 0 {
                assert!(wire.flow().has_queue, "{segment}");
            }
        }
    });
}

/// Delayed ACKs of segments without copies look like a queue.
#[test]
fn auto_copies_again_despite_delayed_acks() {
    const DELAYED: Pace = Pace {
        itt: Duration::from_millis(50),
        delayed_ack: Duration::from_millis(10),
        ..SHORT
    };
    governed(auto()).run(|wire| {
        send_paced(wire, 0..4, SHORT);
        let queue = Pace {
            itt: Duration::from_millis(45),
            ..LONG
        };
        send_paced(wire, 4..26, queue);
        assert!(wire.flow().has_queue);
        // Sixteen windows of about five messages. Without losses, copies end after 128 segments.
        let copies = send_paced(wire, 26..126, DELAYED);
        assert!(copies >= 4, "{copies}");
    });
}

/// Full segments have no copies, so their ACKs say nothing about the loss of copies.
#[test]
fn full_segments_end_no_copies() {
    run(auto(), |wire| {
        let mss = wire.mss();
        let mut end = 1;
        for _ in 0..10 {
            wire.write(mss);
            while wire.read_within(Duration::from_millis(2)).is_some() {}
            end += mss;
            wire.ack(end);
        }
        assert_eq!(wire.totals().counters.copies, 0);
        let range = format!("{end}:{}", end + 100);
        wire.sends(&range);
        wire.expect(&range);
    });
}

/// Losses of a full queue are congestion, even if the stream sends less than TFRC-SP allows.
#[test]
fn auto_reacts_while_packets_wait() {
    governed(auto()).run(|wire| {
        show_queue(wire);
        // Each second segment is lost, and the next one repairs it.
        for segment in (40..50).step_by(2) {
            let start = 1 + 100 * segment;
            wire.sends(&format!("{start}:{}", start + 100));
            wire.sends(&format!("{start}:{}", start + 200));
            std::thread::sleep(LONG.rtt);
            wire.ack(start + 200);
        }
        wire.sends("5001:5101");
        let counters = wire.totals().counters;
        assert_eq!(counters.reactions_suppressed, 0);
        assert!(counters.hidden_losses >= 4, "{}", counters.hidden_losses);
        assert!(counters.reactions >= 2, "{}", counters.reactions);
    });
}

/// The losses before would need two previous segments.
#[test]
fn auto_bundles_one_segment_while_packets_wait() {
    let options = Options {
        reaction: Some(Reaction::None),
        ..auto()
    };
    governed(options).run(|wire| {
        // One of ten is lost, and the next one repairs it.
        for segment in (0..100).step_by(10) {
            send_paced(wire, segment..segment + 8, SHORT);
            for _ in 0..2 {
                wire.write(100);
                while wire.read_within(SHORT.rtt).is_some() {}
            }
            wire.ack(1 + 100 * (segment + 10));
        }
        let level = wire.flow().level;
        assert!(level > 1, "{level}");
        send_paced(wire, 100..130, LONG);
        assert!(wire.flow().has_queue);
        wire.sends("13001:13101 13001:13201 13101:13301 13201:13401");
        assert_eq!(wire.flow().level, level);
    });
}

#[test]
fn auto_stays_within_overhead() {
    for (max_overhead, second) in [("1", "101:201"), ("4", "1:201")] {
        let options = Options {
            max_overhead: Some(max_overhead.parse().expect("a factor")),
            ..auto()
        };
        run(options, |wire| {
            wire.sends("1:101");
            if max_overhead == "4" {
                wire.expect("1:101");
            }
            wire.sends(second);
        });
    }
}

/// Sets fq as the device's queueing discipline. Returns false if the kernel lacks it.
fn use_fq() -> bool {
    let mut tc = Command::new("tc");
    tc.args("qdisc replace dev tap0 root fq".split(' '));
    let has_fq = tc
        .stderr(Stdio::null())
        .status()
        .expect("tc runs")
        .success();
    if !has_fq {
        println!("skipped: the kernel has no fq");
    }
    has_fq
}

/// Copies that leave 50 ms after the segment.
fn delayed() -> Options {
    Options {
        copy_delay: Some(Duration::from_millis(50)),
        ..copies()
    }
}

/// Sends two segments 120 ms apart, because copies leave at once until the time between segments is
/// known.
fn send_apart(wire: &mut Wire) {
    for _ in 0..2 {
        wire.write(100);
        while wire.read_within(Duration::from_millis(120)).is_some() {}
    }
}

#[test]
fn delayed_copy_leaves_after_next_segment() {
    run(delayed(), |wire| {
        if !use_fq() {
            return;
        }
        send_apart(wire);
        let start = Instant::now();
        wire.sends("201:301");
        std::thread::sleep(Duration::from_millis(30));
        wire.sends("301:401");
        wire.expect("201:301");
        assert!(start.elapsed() >= Duration::from_millis(50));
        wire.expect("301:401");
        wire.expect_nothing(Duration::from_millis(100));
    });
}

/// A later copy would make TCP's retransmission of the segment look spurious.
#[test]
fn copy_delay_is_at_most_half_the_time_between_segments() {
    let options = Options {
        copy_delay: Some(Duration::from_millis(200)),
        ..copies()
    };
    run(options, |wire| {
        if !use_fq() {
            return;
        }
        let mut last = 0;
        for _ in 0..12 {
            wire.write(100);
            while let Some((start, end)) = wire.read_within(Duration::from_millis(30)) {
                assert_eq!(end - start, 100);
                assert!(last <= end, "{end} after {last}");
                last = last.max(end);
            }
        }
    });
}

#[test]
fn delayed_copy_leaves_at_once_without_fq() {
    run(delayed(), |wire| {
        send_apart(wire);
        wire.write(100);
        wire.write(100);
        for range in ["201:301", "201:301", "301:401", "301:401"] {
            wire.expect(range);
        }
    });
}

/// The reports of several copies are on their way.
#[test]
fn late_reports_of_delayed_copies_are_no_losses() {
    run(delayed(), |wire| {
        const LATE: u32 = 5;
        for segment in 0..40 {
            let range = |segment: u32| format!("{}:{}", 1 + 100 * segment, 101 + 100 * segment);
            std::thread::sleep(Duration::from_millis(10));
            wire.sends(&range(segment));
            wire.expect(&range(segment));
            wire.ack(101 + 100 * segment);
            if segment >= LATE {
                wire.ack_duplicate(101 + 100 * segment, &range(segment - LATE), "");
            }
        }
        let counters = wire.totals().counters;
        assert_eq!((counters.copies, counters.copy_losses), (40, 0));
    });
}

/// The queueing discipline fq takes a copy for another flow.
#[test]
fn segments_leave_in_order_through_fq() {
    run(copies(), |wire| {
        if !use_fq() {
            return;
        }
        let mut last = 0;
        for _ in 0..20 {
            wire.write(100);
        }
        for _ in 0..40 {
            let (start, end) = wire.read();
            assert_eq!(end - start, 100);
            assert!(start <= last + 100, "{start} after {last}");
            last = last.max(start);
        }
        assert_eq!(last, 1901);
    });
}

#[test]
fn each_of_two_bundlers_sends_its_copies() {
    let setup = Setup {
        bundlers: vec![Bundler::with(copies()), Bundler::with(copies())],
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.expect("1:101");
        wire.expect_nothing(Duration::from_millis(100));
    });
}
