//! Which losses bundles hid: what the receiver does not report as duplicate was lost.

use pillion_bundler::{LossRule, Options, ThinTest};
use pillion_tests::{Setup, Wire};

/// No limit to the bundle, and the rule that is learnt, unless another is given.
fn setup(loss_rule: LossRule) -> Setup {
    Setup::bundling(Options {
        thin: ThinTest::Always,
        max_packets: 0,
        loss_rule,
        ..Options::default()
    })
}

fn dsack() -> Setup {
    setup(LossRule::Dsack)
}

/// Segments lost, their bytes, and those that came after all.
fn hidden(wire: &Wire) -> (u64, u64, u64) {
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
        assert_eq!(wire.totals().counters.reports, 1);
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

#[test]
fn a_receiver_that_never_reports_is_left_with_the_published_rule() {
    setup(LossRule::Auto).run(|wire| {
        let mut end = 1;
        for _ in 0..8 {
            wire.sends(&format!("{end}:{} {end}:{}", end + 100, end + 200));
            wire.ack(end + 100);
            wire.ack(end + 200);
            end += 200;
        }
        assert_eq!(hidden(wire), (0, 0, 0));
        wire.sends(&format!(
            "{end}:{} {end}:{} {end}:{}",
            end + 100,
            end + 200,
            end + 300
        ));
        wire.ack(end + 300);
        assert_eq!(hidden(wire), (2, 200, 0));
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
