//! Tests DSACKs that answer another packet, are repeated, or arrive late, and receivers that report
//! less than others.

use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{LossRule, Mode, Options, Outcome, ThinTest};
use pillion_tests::{Ip, Setup, Wire, limit_one, sysctl};

use crate::hidden_loss::hidden;

/// Limits a bundle to `max_packets` previous segments.
fn setup(loss_rule: LossRule, max_packets: u32) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        loss_rule,
        ..limit_one()
    };
    Setup {
        initial_window: 10,
        ..Setup::bundling(options)
    }
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

/// Waits until a segment deemed lost is known to be late.
fn wait_for_reordering(wire: &Wire) {
    let started_at = Instant::now();
    while hidden(wire).2 == 0 {
        assert!(
            started_at.elapsed() < Duration::from_secs(10),
            "no reordering was found"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits longer than the reordering window that follows one late segment.
fn wait_for_confirmed_loss() {
    thread::sleep(Duration::from_secs(1));
}

/// Waits for the reordering window of a peer that acknowledges immediately.
fn wait_for_reordering_window() {
    thread::sleep(Duration::from_millis(300));
}

const RTT: Duration = Duration::from_millis(800);

/// Acknowledges two segments after an RTT, of which the first was repaired. The next segment leaves
/// immediately.
fn first_loss(published: bool, test: impl FnOnce(&mut Wire) + Send) {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        published,
        ..limit_one()
    };
    let setup = Setup {
        rtt: RTT,
        ..Setup::bundling(options)
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        thread::sleep(RTT);
        wire.ack(201);
        wire.sends("201:301");
        test(wire);
    });
}

#[test]
fn segment_late_by_under_quarter_rtt_causes_no_reaction() {
    first_loss(false, |wire| {
        wire.ack_without_waiting(201, "1:101");
        wait_for_reordering(wire);
        thread::sleep(RTT / 2);
        wire.sends("201:401");
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 1), 0));
    });
}

#[test]
fn loss_causes_one_reaction_after_quarter_rtt() {
    first_loss(false, |wire| {
        assert_eq!(reactions(wire), 0, "it may come late");
        // On a busy machine the measured RTT is longer.
        thread::sleep(RTT / 2);
        wire.sends("201:401");
        assert_eq!(reactions(wire), 1);
        wire.ack_duplicate(401, "201:301", "");
        for range in ["401:501", "501:601"] {
            thread::sleep(RTT / 2);
            wire.sends(range);
            wire.ack(wire.written() + 1);
        }
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 0), 1));
    });
}

#[test]
fn published_reaction_skips_reordering_window() {
    first_loss(true, |wire| assert_eq!(reactions(wire), 1));
}

/// The receiver had the first segment, and delays the DSACK of the following bundle. The next
/// bundle is lost, and the one after it brings no duplicates.
#[test]
fn pending_dsack_hides_no_loss() {
    setup(LossRule::Dsack, 1).run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

/// The peer's segment with the DSACK is lost, and its next segment has the same ACK number.
#[test]
fn dsack_lost_with_peer_data_still_counts() {
    for loss_rule in [LossRule::Dsack, LossRule::Ack] {
        setup(loss_rule, 1).run(|wire| {
            wire.sends("1:101 1:201");
            wire.peer_sends(201, 50, 50);
            wire.expect("201:201");
            assert_eq!(hidden(wire), (0, 0, 0));
        });
    }
}

#[test]
fn dsack_of_plain_duplicate_reveals_nothing_about_bundle() {
    setup(LossRule::Dsack, 1).run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.ack_duplicate(401, "21:101", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// A receiver without buffer space may record a duplicate and then drop the packet that carried it.
#[test]
fn dsack_of_new_bytes_reveals_nothing_about_bundled_data() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack_duplicate(201, "101:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn loss_refuted_in_time_causes_no_reaction() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.ack_without_waiting(201, "1:101");
        wait_for_reordering(wire);
        wire.sends("201:301");
        wire.ack(301);
        assert_eq!(reactions(wire), 0);
        wire.sends("301:401 301:501");
        wire.ack(501);
        wait_for_confirmed_loss();
        wire.sends("501:601");
        assert_eq!(reactions(wire), 1, "the next loss is real");
    });
}

/// The first late segment arrives after a packet that carried the reaction. From then on the
/// reordering window is as long as that delay, within limits.
#[test]
fn reordering_path_costs_one_reaction() {
    let long = Setup {
        rtt: Duration::from_secs(2),
        ..setup(LossRule::Dsack, 0)
    };
    long.run(|wire| {
        let mut late_round = |first: u32, late: Duration| {
            let [second, third, end] = [100, 200, 300].map(|bytes| first + bytes);
            wire.sends(&format!("{first}:{second} {first}:{third}"));
            wire.ack(third);
            if !late.is_zero() {
                wait_for_reordering_window();
            }
            wire.sends(&format!("{third}:{end}"));
            thread::sleep(late);
            wire.ack_without_waiting(third, &format!("{first}:{second}"));
            wire.ack(end);
        };
        late_round(1, Duration::from_secs(1));
        // Few rounds: each prompt ACK shortens the smoothed RTT, which limits the reordering
        // window.
        for round in 1..3 {
            late_round(1 + round * 300, Duration::ZERO);
        }
        assert_eq!((hidden(wire).2, reactions(wire)), (3, 1));

        wire.sends("901:1001 901:1101");
        wire.ack(1101);
        wire.sends("1101:1201");
        assert_eq!(reactions(wire), 1, "it may come late");
        thread::sleep(Duration::from_secs(2));
        wire.sends("1101:1301");
        assert_eq!(reactions(wire), 2, "it does not");
    });
}

#[test]
fn two_late_segments_in_turn_cause_no_reaction() {
    for late in [["1:101", "101:201"], ["101:201", "1:101"]] {
        setup(LossRule::Dsack, 0).run(|wire| {
            wire.sends("1:101 1:201 1:301");
            wire.ack(301);
            for segment in late {
                wire.ack_without_waiting(301, segment);
            }
            wire.sends("301:401");
            assert_eq!((hidden(wire), reactions(wire)), ((2, 200, 2), 0));
        });
    }
}

#[test]
fn partly_refuted_loss_causes_reaction() {
    for late in ["1:101", "101:201", "201:301"] {
        setup(LossRule::Dsack, 0).run(|wire| {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.ack(401);
            wire.ack_without_waiting(401, late);
            wait_for_confirmed_loss();
            wire.sends("401:501");
            assert_eq!((hidden(wire), reactions(wire)), ((3, 300, 1), 1));
        });
    }
}

/// Other segments were acknowledged meanwhile.
#[test]
fn late_segment_after_several_acks_causes_no_reaction() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(201);
        wire.ack_duplicate(301, "1:201", "");
        wire.ack_without_waiting(301, "1:101");
        wait_for_reordering(wire);
        wire.sends("301:401");
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 1), 0));
    });
}

#[test]
fn late_segment_refutes_no_other_loss() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(201);
        wire.ack(401);
        wire.ack_without_waiting(401, "201:301");
        wait_for_reordering(wire);
        wait_for_reordering_window();
        wire.sends("401:501");
        assert_eq!(reactions(wire), 1, "for the first");
    });
}

#[test]
fn first_dsack_of_late_segment_refutes_its_loss() {
    setup(LossRule::Auto, 0).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.ack_without_waiting(201, "1:101");
        wait_for_reordering(wire);
        wire.sends("201:301 201:401");
        wire.ack_duplicate(401, "201:301", "");
        wire.sends("401:501");
        assert_eq!((hidden(wire).0, reactions(wire)), (0, 0));
    });
}

/// The loss was only suspected, so its time saved was not counted.
#[test]
fn late_segment_after_learning_subtracts_no_time_saved() {
    setup(LossRule::Auto, 1).run(|wire| {
        for at in (1..1600).step_by(200) {
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            thread::sleep(Duration::from_millis(20));
            wire.ack(at + 200);
        }
        assert_eq!(hidden(wire).0, 0, "all are suspected");
        wire.ack_without_waiting(1601, "1401:1501");
        wait_for_reordering(wire);
        wire.sends("1601:1701 1601:1801");
        thread::sleep(Duration::from_millis(20));
        wire.ack(1801);
        assert_eq!(hidden(wire), (8, 800, 1));
        let time_saved_us = wire.totals().counters.time_saved_us;
        assert!((1..1_000_000).contains(&time_saved_us), "{time_saved_us}");
    });
}

/// Losses that were counted before the change are certain.
#[test]
fn late_segment_after_rule_reset_keeps_suspected_losses() {
    let setup = setup(LossRule::Dsack, 0);
    let mut requested_again = setup.bundlers[0].clone();
    for rule in &mut requested_again.rules {
        if let Mode::Bundle(options) = &mut rule.mode {
            options.loss_rule = LossRule::Auto;
        }
    }
    setup.run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack(301);
        assert_eq!(hidden(wire).0, 2);
        wire.replace_rules(&requested_again);
        wire.ack(501);
        wire.ack_without_waiting(501, "1:201");
        wait_for_confirmed_loss();
        wire.sends("501:601 501:701");
        wire.ack_duplicate(701, "501:601", "");
        assert_eq!(hidden(wire).0, 3);
    });
}

/// A peer that answers with several segments repeats the DSACK in each of them.
#[test]
fn repeated_dsack_refutes_no_loss() {
    setup(LossRule::Dsack, 2).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(201);
        wire.ack_duplicate(301, "1:201", "");
        wire.ack_without_waiting(301, "1:201");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

/// Darwin behaves like this.
#[test]
fn missing_dsack_of_single_byte_is_not_a_loss() {
    setup(LossRule::Auto, 1).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack_duplicate(201, "1:101", "");
        wire.sends("201:202 201:203");
        wire.ack(203);
        assert_eq!(hidden(wire), (0, 0, 0), "it may be one of them");
        wire.sends("203:204 203:205");
        wire.ack_duplicate(205, "203:204", "");
        wire.sends("205:206 205:207");
        wire.ack(207);
        assert_eq!(hidden(wire), (1, 1, 0), "it is not");
    });
}

/// A middlebox changes sequence numbers, but not those in TCP options.
#[test]
fn dsack_of_unsent_data_is_ignored() {
    setup(LossRule::Auto, 1).run(|wire| {
        let mut at = 1;
        for _ in 0..8 {
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            wire.ack(at + 100);
            at += 200;
            wire.ack_duplicate(at, "4294963297:4294963397", "");
        }
        wire.sends(&format!("{at}:{0} {0}:{1}", at + 100, at + 200));
        let no_dsack = wire.totals().counters.of(Outcome::NoDsack);
        assert_eq!(
            (hidden(wire).0, no_dsack),
            (0, 1),
            "like a receiver without DSACKs"
        );
    });
}

/// A late or duplicated packet proves that its own bytes arrived, but nothing about its bundled
/// data.
#[test]
fn late_bundle_refutes_no_loss_it_would_have_repaired() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.ack_without_waiting(201, "1:201");
        wait_for_reordering_window();
        wire.sends("201:301");
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 0), 1));
    });
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(401);
        wire.ack_without_waiting(401, "1:201");
        wait_for_reordering(wire);
        wait_for_reordering_window();
        wire.sends("401:501");
        assert_eq!(reactions(wire), 1);
    });
}

/// Half of the sequence space is 2 GiB: old data must not appear to be outstanding.
#[test]
fn bundling_continues_after_2_gib_of_unparsed_packets() {
    Setup {
        ip: Ip::V6,
        mss: 65_000,
        ..setup(LossRule::Dsack, 1)
    }
    .run(|wire| {
        wire.transfer_unparsed((1 << 31) + (1 << 27));
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        assert_eq!(hidden(wire).0, 1);
    });
}

/// One segment of the peer is lost and never retransmitted. All later ones arrive in order, and
/// each acknowledges a bundle that repaired a loss.
#[test]
fn gap_in_peer_data_hides_losses_only_briefly() {
    setup(LossRule::Dsack, 1).run(|wire| {
        for round in 0..20 {
            let at = 1 + round * 200;
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            wire.peer_sends(at + 200, 50 * (round + 1), 50);
            wire.expect(&format!("{0}:{0}", at + 200));
        }
        let bundled = wire.totals().counters.of(Outcome::Bundled);
        let (losses, ..) = hidden(wire);
        // The missing segment may have carried the first ACK.
        assert!(
            bundled < 5 || losses >= 19,
            "{bundled} bundles, {losses} losses, {} reactions",
            reactions(wire)
        );
    });
}

/// Two losses in quick succession; both segments arrive late, before another packet leaves.
#[test]
fn two_refuted_losses_cause_no_reaction() {
    for order in [["301:401", "501:601"], ["501:601", "301:401"]] {
        let long = Setup {
            rtt: Duration::from_secs(2),
            ..setup(LossRule::Dsack, 1)
        };
        long.run(|wire| {
            wire.sends("1:101 1:201");
            wire.ack(201);
            wait_for_reordering_window();
            wire.sends("201:301");
            thread::sleep(Duration::from_secs(1));
            wire.ack_without_waiting(201, "1:101");
            wire.ack(301);
            assert_eq!(
                (hidden(wire).2, reactions(wire)),
                (1, 1),
                "this late, they are not refuted in time"
            );

            wire.sends("301:401 301:501");
            wire.ack(501);
            wire.sends("501:601 501:701");
            wire.ack(701);
            for late in order {
                wire.ack_without_waiting(701, late);
            }
            thread::sleep(Duration::from_secs(3));
            wire.sends("701:801");
            assert_eq!(
                (hidden(wire), reactions(wire)),
                ((3, 300, 3), 1),
                "{order:?}"
            );
        });
    }
}

/// The first loss is covered by an earlier reduction; the second is refuted later.
#[test]
fn late_segment_after_answered_loss_causes_no_reaction() {
    for lost in [false, true] {
        let long = Setup {
            rtt: Duration::from_secs(2),
            ..setup(LossRule::Dsack, 1)
        };
        long.run(|wire| {
            wire.sends("1:101 1:201");
            wire.ack(201);
            wait_for_reordering_window();
            wire.sends("201:301");
            thread::sleep(Duration::from_secs(1));
            wire.ack_without_waiting(201, "1:101");
            wire.ack(301);
            wire.sends("301:401 301:501");
            wire.ack(501);
            wire.sends("501:601 501:701");
            thread::sleep(Duration::from_millis(2500));
            wire.sends("601:801");
            assert_eq!(
                reactions(wire),
                2,
                "for 301:401, while 501:601 was in flight"
            );
            match lost {
                true => wire.ack(701),
                false => wire.ack_duplicate(701, "501:601", ""),
            }
            wire.sends("701:901");
            wire.ack_duplicate(901, "701:801", "");
            wire.sends("901:1001 901:1101");
            wire.ack(1101);
            wire.ack_without_waiting(1101, "901:1001");
            thread::sleep(Duration::from_secs(3));
            wire.sends("1101:1201");
            assert_eq!(reactions(wire), 2, "901:1001 was refuted in time; {lost}");
        });
    }
}

/// Two segments are lost and TCP retransmits the first, after the third one's bundle delivered
/// both. The DSACK answers the retransmission.
#[test]
fn needless_retransmission_is_not_reordering() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        ..setup(LossRule::Dsack, 0)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201 1:301");
        wire.expect("1:101");
        wire.ack(301);
        assert_eq!(hidden(wire), (1, 100, 0), "101:201");
        let time_saved_us = wire.totals().counters.time_saved_us;
        wire.ack_without_waiting(301, "1:101");
        thread::sleep(Duration::from_millis(200));
        assert_eq!(hidden(wire), (1, 100, 0), "no reordering was found");
        assert_eq!(wire.totals().counters.time_saved_us, time_saved_us);
    });
}

/// While the application holds the socket, the peer's data is queued and TCP still expects its
/// first byte. Nothing is missing before the second segment.
#[test]
fn queued_peer_data_is_not_a_gap() {
    setup(LossRule::Dsack, 1).run(|wire| {
        wire.sends("1:101 1:201");
        let is_supported = wire.write_while_held(50, |wire| {
            wire.peer_sends(1, 0, 50);
            wire.peer_sends(201, 0, 50);
            thread::sleep(Duration::from_millis(100));
        });
        if !is_supported {
            println!("left out: this kernel has no userfaultfd");
            return;
        }
        thread::sleep(Duration::from_millis(100));
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}
