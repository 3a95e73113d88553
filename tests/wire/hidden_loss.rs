//! Tests which losses bundles hid: redundant bytes without a DSACK were lost.

use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{LossRule, Options, Outcome, Reaction, ThinTest};
use pillion_tests::{Bundler, Setup, Wire, limit_one, netstat, sysctl};

/// Returns options without a bundle limit; by default the loss rule is learnt.
pub fn options(loss_rule: LossRule) -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule,
        published: true, // no reordering window
        ..limit_one()
    }
}

fn setup(loss_rule: LossRule) -> Setup {
    Setup::bundling(options(loss_rule))
}

/// Returns a setup with the DSACK rule.
pub fn dsack() -> Setup {
    setup(LossRule::Dsack)
}

/// Returns hidden losses, their bytes, and segments that arrived late after all.
pub fn hidden(wire: &Wire) -> (u64, u64, u64) {
    let counters = wire.totals().counters;
    (
        counters.hidden_losses,
        counters.repaired_bytes,
        counters.reordered,
    )
}

#[test]
fn redundant_bytes_without_dsack_are_lost() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.ack_duplicate(201, "", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn redundant_bytes_with_dsack_are_not_lost() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn unreported_rest_of_bundle_is_lost() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        // 1:201 and 1:301 were lost; 1:401 delivered all missing data.
        wire.ack(101);
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (2, 200, 0));
    });
}

#[test]
fn delayed_ack_of_two_bundles_reveals_no_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn lost_ack_is_not_a_data_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        // The ACKs of 101, 201 and 301 were lost.
        wire.ack_duplicate(401, "1:301", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn data_acknowledged_before_is_not_lost() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        // All redundant bytes of 1:201 are acknowledged already, so its DSACK does not matter.
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn ack_within_packet_reveals_nothing() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(151);
        wire.ack(251);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn sack_blocks_next_to_dsack_change_nothing() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "251:301");
        assert_eq!(hidden(wire), (0, 0, 0));
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn late_segment_deemed_lost_counts_as_reordering() {
    dsack().run_on_ip_variants(|wire| {
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
fn bundle_repeating_repaired_loss_is_not_reordering() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(201);
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

#[test]
fn losses_are_found_across_sequence_wrap() {
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
fn ack_on_peer_data_reveals_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends(201, 0, 50);
        wire.expect("201:201");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

/// The kernel merges only data segments with the same ACK number and options (`tcp_gro_receive()`).
#[test]
fn merged_data_segments_acknowledge_once() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.peer_sends_merged(201, "", 3, 100);
        wire.expect("201:201");
        assert_eq!(hidden(wire), (1, 100, 0));
        wire.sends("201:301 201:401");
        wire.ack(301);
        wire.peer_sends_merged(401, "201:301", 3, 100);
        wire.expect("401:401");
        assert_eq!(hidden(wire), (1, 100, 0));
        assert_eq!(wire.totals().counters.dsacks_removed, 1);
    });
}

#[test]
fn window_update_reveals_no_loss() {
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
fn late_old_ack_reveals_no_loss() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(301, "1:201", "");
        // Overtaken by the previous ACK.
        wire.ack_without_waiting(201, "1:101");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn first_dsack_selects_dsack_rule() {
    setup(LossRule::Auto).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0), "the loss rule is not learnt yet");
        wire.sends("201:301 201:401 201:501 201:601");
        wire.ack(301);
        wire.ack_duplicate(401, "201:301", "");
        wire.ack_duplicate(601, "201:401", "");
        assert_eq!(
            hidden(wire).0,
            2,
            "the rule is learnt, and the suspected loss confirmed"
        );
    });
}

/// Sends two segments of 100 bytes, the second one with the first bundled. Returns their end.
fn send_pair(wire: &mut Wire) -> u32 {
    let at = wire.written() + 1;
    wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
    at + 200
}

/// Acknowledges bundles without a DSACK, although the bundled data had been acknowledged before.
fn ack_without_dsacks(wire: &mut Wire, bundles: u32) {
    for _ in 0..bundles {
        let end = send_pair(wire);
        wire.ack(end - 100);
        wire.ack(end);
    }
}

/// Acknowledges bundles without a DSACK, as if the segment before each one were lost.
fn ack_as_after_losses(wire: &mut Wire, bundles: u32) {
    for _ in 0..bundles {
        let end = send_pair(wire);
        wire.ack(end);
    }
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

/// Sends two segments and expects no bundle.
fn expect_no_bundle(wire: &mut Wire) {
    let at = wire.written() + 1;
    wire.sends(&format!("{at}:{0} {0}:{1}", at + 100, at + 200));
    wire.ack(at + 200);
}

fn no_dsack(wire: &Wire) -> u64 {
    wire.totals().counters.of(Outcome::NoDsack)
}

#[test]
fn receiver_without_dsack_is_not_bundled() {
    setup(LossRule::Auto).run_on_ip_variants(|wire| {
        ack_without_dsacks(wire, 8);
        expect_no_bundle(wire);
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!((reactions(wire), no_dsack(wire)), (0, 1));
    });
}

/// Its ACKs of two segments are delayed, not signs of loss.
#[test]
fn delayed_ack_receiver_without_dsack_is_not_bundled() {
    setup(LossRule::Auto).run(|wire| {
        ack_as_after_losses(wire, 32);
        expect_no_bundle(wire);
        expect_no_bundle(wire);
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!((reactions(wire), no_dsack(wire)), (0, 2));
    });
}

/// Each bundle has one previous segment and every second segment is lost. A longer run of losses is
/// impossible.
#[test]
fn real_losses_while_learning_do_not_rule_out_dsack() {
    setup(LossRule::Auto).run(|wire| {
        ack_as_after_losses(wire, 31);
        let end = send_pair(wire);
        wire.ack(end - 100);
        wire.ack_duplicate(end, &format!("{}:{}", end - 200, end - 100), "");
        send_pair(wire);
        assert_eq!(hidden(wire), (31, 3100, 0));
        assert_eq!((reactions(wire), no_dsack(wire)), (1, 0));
    });
}

#[test]
fn dsack_of_retransmission_resumes_bundling() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..setup(LossRule::Auto)
    };
    setup.run(|wire| {
        ack_without_dsacks(wire, 8);
        expect_no_bundle(wire);
        let at = wire.written() + 1;
        let range = format!("{at}:{}", at + 100);
        wire.sends(&range);
        wire.expect(&range);
        wire.ack(at + 100);
        wire.ack_without_waiting(at + 100, &range);
        wait_for_loss_rule(wire, LossRule::Dsack);
        let end = send_pair(wire);
        wire.ack(end);
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

fn wait_for_loss_rule(wire: &Wire, expected: LossRule) {
    let started = Instant::now();
    while wire.flow().loss_rule != expected {
        assert!(started.elapsed() < Duration::from_secs(10), "{expected:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn flow_shows_loss_detection_unavailable() {
    setup(LossRule::Auto).run(|wire| {
        assert_eq!(wire.flow().loss_rule, LossRule::Auto);
        ack_without_dsacks(wire, 8);
        assert_eq!(wire.flow().loss_rule, LossRule::None);
    });
}

/// Without SACK no DSACK can arrive, so the rule does not wait for one.
#[test]
fn ack_rule_applies_immediately_without_sack() {
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
fn ack_of_one_segment_reveals_no_loss_under_ack_rule() {
    setup(LossRule::Ack).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack(201);
        wire.ack(301);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn latest_rule_decides_loss_detection() {
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
fn large_write_does_not_hide_earlier_losses() {
    dsack().run_on_ip_variants(|wire| {
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
fn dsack_after_large_write_is_attributed_to_bundle() {
    dsack().run(|wire| {
        wire.sends("1:101 1:201");
        wire.write(3 * 1460);
        wire.expect("201:1661 1661:3121 3121:4581");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(hidden(wire), (0, 0, 0));
        assert_eq!(wire.totals().counters.dsacks_removed, 1);
        assert_eq!(netstat("TCPDSACKRecv"), 0);
    });
}

#[test]
fn losses_are_found_among_100_outstanding_segments() {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(1),
        loss_rule: LossRule::Dsack,
        ..limit_one()
    };
    Setup::bundling(options).run(|wire| {
        let end = |segment: u32| 1 + 10 * segment;
        wire.sends("1:11");
        for segment in 2..=100 {
            wire.sends(&format!("{}:{}", end(segment - 2), end(segment)));
        }
        // Every tenth segment is lost.
        for segment in (1..=100).filter(|segment| segment % 10 != 0) {
            if segment % 10 == 1 {
                wire.ack(end(segment));
            } else {
                let duplicate = format!("{}:{}", end(segment - 2), end(segment - 1));
                wire.ack_duplicate(end(segment), &duplicate, "");
            }
        }
        // The first segment is acknowledged individually, and the last is lost.
        assert_eq!(hidden(wire), (9, 90, 0));
        assert_eq!(netstat("TCPDSACKRecv"), 0);
    });
}

#[test]
fn segment_retransmitted_since_is_not_a_hidden_loss() {
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
fn segment_brought_by_probe_is_not_a_hidden_loss() {
    let rtt = Duration::from_millis(300);
    Setup { rtt, ..dsack() }.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201");
        // Both are lost. The probe repeats the last segment; its ACK reveals the missing first one.
        wire.expect("101:201");
        // Longer than the minimum RTT, so that TCP attributes the ACK to the probe.
        wire.expect_nothing(rtt + Duration::from_millis(100));
        wire.ack_sack(1, "101:201");
        wire.expect("1:101");
        wire.ack(201);
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// The number of later losses does not matter.
#[test]
fn dsack_rule_stays_after_first_dsack() {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(1),
        reaction: Some(Reaction::None),
        ..limit_one()
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
        assert_eq!(hidden(wire).0, 9, "the last bundled segment");
    });
}

#[test]
fn ack_queued_behind_application_is_evaluated() {
    dsack().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(101);
        let supported = wire.write_while_held(50, |wire| {
            wire.ack_without_waiting(201, "1:101");
            // Without a DSACK, because it is not the first ACK of this data.
            wire.ack_without_waiting(201, "");
        });
        if supported {
            wire.expect("101:251");
            assert_eq!(hidden(wire), (0, 0, 0));
        } else {
            println!("left out: this kernel has no userfaultfd");
        }
    });
}
