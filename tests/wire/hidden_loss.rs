//! Which losses bundles hid: what the receiver does not report as duplicate was lost.

use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Bundler, Setup, Wire, netstat, sysctl};

/// No limit to the bundle, and the rule that is learnt, unless another is given.
pub fn options(loss_rule: LossRule) -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule,
        published: true, // no reordering window
        ..Options::default()
    }
}

fn setup(loss_rule: LossRule) -> Setup {
    Setup::bundling(options(loss_rule))
}

/// The rule of reports.
pub fn dsack() -> Setup {
    setup(LossRule::Dsack)
}

/// Segments lost, their bytes, and those that came after all.
pub fn hidden(wire: &Wire) -> (u64, u64, u64) {
    let counters = wire.totals().counters;
    (
        counters.hidden_losses,
        counters.repaired_bytes,
        counters.reordered,
    )
}

#[test]
fn redundant_bytes_that_are_no_duplicates_were_lost() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.ack_duplicate(201, "", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn redundant_bytes_that_are_reported_were_not_lost() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn of_a_bundle_reported_in_part_the_rest_was_lost() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        // 1:201 and 1:301 were lost; 1:401 brought all that was missing.
        wire.ack(101);
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (2, 200, 0));
    });
}

#[test]
fn a_delayed_ack_of_two_bundles_is_no_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn a_lost_ack_is_no_loss_of_data() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        // Those of 101, 201 and 301 were lost on the way back.
        wire.ack_duplicate(401, "1:301", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn what_was_acknowledged_before_was_not_lost() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        // All of 1:201 that was redundant is acknowledged: whatever it reports.
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn an_ack_that_ends_within_a_packet_says_nothing() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(151);
        wire.ack(251);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn selective_acknowledgements_beside_the_report_do_not_disturb() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "251:301");
        assert_eq!(hidden(wire), (0, 0, 0));
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn a_segment_deemed_lost_that_comes_late_is_reordering() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        assert_eq!(hidden(wire), (1, 100, 0));
        wire.ack_duplicate(201, "1:101", "");
        wire.sends("201:301");
        wire.ack(301);
        assert_eq!(hidden(wire), (1, 100, 1));
    });
}

#[test]
fn later_bundles_that_repeat_a_repaired_loss_are_no_reordering() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(201);
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn losses_are_found_across_the_sequence_numbers_wrap() {
    for before_wrap in [50, 150, 250] {
        let isn = Some(u32::MAX - before_wrap);
        Setup { isn, ..dsack() }.run(|wire| {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.ack(101);
            wire.ack_duplicate(301, "1:101", "");
            wire.ack_duplicate(401, "1:301", "");
            assert_eq!(hidden(wire), (1, 100, 0));
        });
    }
}

#[test]
fn data_of_the_peer_may_carry_the_acknowledgement() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 0, 50);
        wire.expect("201:201");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

/// The kernel merges segments of data that acknowledge the same, with the same options, and
/// no others (`tcp_gro_receive()`).
#[test]
fn segments_of_data_that_were_merged_acknowledge_once() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends_merged(201, "", 3, 100);
        wire.expect("201:201");
        assert_eq!(hidden(wire), (1, 100, 0));
        wire.sends("201:301 201:401");
        wire.ack(301);
        wire.peer_sends_merged(401, "201:301", 3, 100);
        wire.expect("401:401");
        assert_eq!(hidden(wire), (1, 100, 0));
        assert_eq!(wire.totals().counters.dsacks_hidden, 1);
    });
}

#[test]
fn a_window_update_is_no_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_window(101, 20_000);
        wire.ack_duplicate(201, "1:101", "");
        wire.ack_window(201, 30_000);
        wire.sends("201:301 201:401");
        wire.ack_window(301, 20_000);
        wire.ack_window(301, 30_000);
        wire.ack_duplicate(401, "201:301", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn an_old_ack_that_comes_late_is_no_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(301, "1:201", "");
        // Overtaken by the one above.
        wire.acks_late(201, "1:101");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn a_receiver_that_reports_duplicates_is_learnt_from_its_first_report() {
    setup(LossRule::Auto).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0), "not known yet what silence means");
        wire.sends("201:301 201:401 201:501 201:601");
        wire.ack(301);
        wire.ack_duplicate(401, "201:301", "");
        wire.ack_duplicate(601, "201:401", "");
        assert_eq!(hidden(wire).0, 2, "now it is, and what it meant before");
    });
}

/// Two segments of 100 bytes, the second with the first as its bundle; returns where they end.
fn sends_pair(wire: &mut Wire) -> u32 {
    let at = wire.written() + 1;
    wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
    at + 200
}

/// ACKs of bundles without a report, although the receiver had acknowledged before what rode along.
fn is_silent(wire: &mut Wire, bundles: u32) {
    for _ in 0..bundles {
        let end = sends_pair(wire);
        wire.ack(end - 100);
        wire.ack(end);
    }
}

/// ACKs of bundles without a report, which a loss of the segment before may explain.
fn is_silent_as_after_a_loss(wire: &mut Wire, bundles: u32) {
    for _ in 0..bundles {
        let end = sends_pair(wire);
        wire.ack(end);
    }
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

/// Sends two segments, and expects no bundle.
fn expect_no_bundle(wire: &mut Wire) {
    let at = wire.written() + 1;
    wire.sends(&format!("{at}:{0} {0}:{1}", at + 100, at + 200));
    wire.ack(at + 200);
}

fn no_dsack(wire: &Wire) -> u64 {
    wire.totals().counters.of(Outcome::NoDsack)
}

#[test]
fn a_receiver_that_never_reports_is_not_bundled() {
    setup(LossRule::Auto).run_everywhere(|wire| {
        is_silent(wire, 8);
        expect_no_bundle(wire);
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!((reactions(wire), no_dsack(wire)), (0, 1));
    });
}

/// Its ACKs of two segments are delayed ones, and no losses.
#[test]
fn a_receiver_that_never_reports_and_delays_acks_is_not_bundled() {
    setup(LossRule::Auto).run(|wire| {
        is_silent_as_after_a_loss(wire, 32);
        expect_no_bundle(wire);
        expect_no_bundle(wire);
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!((reactions(wire), no_dsack(wire)), (0, 2));
    });
}

/// One previous segment for each bundle, every second segment is lost: no run of losses lasts longer.
#[test]
fn real_losses_while_learning_do_not_condemn_the_receiver() {
    setup(LossRule::Auto).run(|wire| {
        is_silent_as_after_a_loss(wire, 31);
        let end = sends_pair(wire);
        wire.ack(end - 100);
        wire.ack_duplicate(end, &format!("{}:{}", end - 200, end - 100), "");
        sends_pair(wire);
        assert_eq!(hidden(wire), (31, 3100, 0));
        assert_eq!((reactions(wire), no_dsack(wire)), (1, 0));
    });
}

#[test]
fn bundling_resumes_with_the_report_of_a_retransmission() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..setup(LossRule::Auto)
    };
    setup.run(|wire| {
        is_silent(wire, 8);
        expect_no_bundle(wire);
        let at = wire.written() + 1;
        let range = format!("{at}:{}", at + 100);
        wire.sends(&range);
        wire.expect(&range);
        wire.ack(at + 100);
        wire.acks_late(at + 100, &range);
        until_loss_rule(wire, LossRule::Dsack);
        let end = sends_pair(wire);
        wire.ack(end);
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

fn until_loss_rule(wire: &Wire, expected: LossRule) {
    let started = Instant::now();
    while wire.flow().loss_rule != expected {
        assert!(started.elapsed() < Duration::from_secs(10), "{expected:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn flows_show_that_losses_cannot_be_found() {
    setup(LossRule::Auto).run(|wire| {
        assert_eq!(wire.flow().loss_rule, LossRule::Auto);
        is_silent(wire, 8);
        assert_eq!(wire.flow().loss_rule, LossRule::None);
    });
}

/// No report can come, so none is waited for.
#[test]
fn without_sack_the_published_rule_applies_at_once() {
    let options = Options {
        without_sack: true,
        ..options(LossRule::Auto)
    };
    let setup = Setup {
        sack: false,
        ..Setup::bundling(options)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        assert_eq!(hidden(wire), (1, 100, 0));
        assert_eq!(wire.flow().loss_rule, LossRule::Ack);
    });
}

#[test]
fn under_the_published_rule_an_ack_of_one_segment_is_no_loss() {
    setup(LossRule::Ack).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack(201);
        wire.ack(301);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn a_connection_goes_by_the_rule_that_is_given_last() {
    setup(LossRule::Ack).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        assert_eq!(hidden(wire).0, 1);
        wire.replace_rules(&Bundler::with(options(LossRule::Dsack)));
        wire.sends("201:301 201:401");
        wire.ack_duplicate(401, "201:301", "");
        assert_eq!(hidden(wire).0, 1);
    });
}

#[test]
fn a_large_write_does_not_hide_what_went_before() {
    dsack().run_everywhere(|wire| {
        for found in 1..=3 {
            let start = wire.written() + 1;
            wire.sends(&format!("{start}:{} {start}:{}", start + 100, start + 200));
            let (large, mss) = (wire.written() + 1, wire.mss());
            wire.write(3 * mss);
            for segment in 0..3 {
                let from = large + segment * mss;
                wire.expect(&format!("{from}:{}", from + mss));
            }
            wire.ack(large);
            wire.ack(large + 3 * mss);
            assert_eq!(hidden(wire), (found, 100 * found, 0));
        }
    });
}

#[test]
fn a_report_behind_a_large_write_is_known_as_a_bundles() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.write(3 * 1460);
        wire.expect("201:1661 1661:3121 3121:4581");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!(wire.totals().counters.dsacks_hidden, 1);
        assert_eq!(netstat("TCPDSACKRecv"), 0);
    });
}

#[test]
fn losses_are_found_among_a_hundred_outstanding_segments() {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(1),
        loss_rule: LossRule::Dsack,
        ..Options::default()
    };
    Setup::bundling(options).run(|wire| {
        let end = |segment: u32| 1 + 10 * segment;
        wire.sends("1:11");
        for segment in 2..=100 {
            wire.sends(&format!("{}:{}", end(segment - 2), end(segment)));
        }
        // Every tenth is lost.
        for segment in (1..=100).filter(|segment| segment % 10 != 0) {
            if segment % 10 == 1 {
                wire.ack(end(segment));
            } else {
                let duplicate = format!("{}:{}", end(segment - 2), end(segment - 1));
                wire.ack_duplicate(end(segment), &duplicate, "");
            }
        }
        // The first is acknowledged alone, and the last is lost.
        assert_eq!(hidden(wire), (9, 90, 0));
        assert_eq!(netstat("TCPDSACKRecv"), 0);
    });
}

#[test]
fn what_tcp_has_retransmitted_since_is_no_hidden_loss() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..dsack() }.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack(101);
        wire.expect("101:201");
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!(wire.totals().counters.reactions, 0);
    });
}

#[test]
fn what_a_tail_loss_probe_brought_is_no_hidden_loss() {
    let rtt = Duration::from_millis(300);
    Setup { rtt, ..dsack() }.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201");
        // Both were lost. The probe is the last; it makes known that the first is missing.
        wire.expect("101:201");
        // Longer than the minimum RTT, so that it is the probe's.
        wire.expect_nothing(rtt + Duration::from_millis(100));
        wire.ack_sack(1, "101:201");
        wire.expect("1:101");
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// However many losses follow.
#[test]
fn a_receiver_that_has_reported_once_is_known_for_good() {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(1),
        reaction: Reaction::None,
        ..Options::default()
    };
    Setup::bundling(options).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        for pair in 1..=8 {
            let at = 1 + 200 * pair;
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            wire.ack(at + 200);
        }
        assert_eq!(hidden(wire).0, 8);
        wire.sends("1801:1901 1801:2001 1901:2101");
        wire.ack(2101);
        assert_eq!(hidden(wire).0, 9, "the one that rode along last");
    });
}

#[test]
fn an_ack_that_waits_for_the_application_is_known() {
    dsack().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        let held = wire.held(50, |wire| {
            wire.acks_late(201, "1:101");
            // Without the report, for it is not the first to acknowledge this.
            wire.acks_late(201, "");
        });
        if held {
            wire.expect("101:251");
            assert_eq!(hidden(wire), (0, 0, 0));
        } else {
            println!("left out: this kernel has no userfaultfd");
        }
    });
}
