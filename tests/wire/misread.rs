//! Reports that are not of the packet that an ACK ends with, come again, or too late; and peers that
//! report less than others.

use std::thread;
use std::time::{Duration, Instant};

use pillion_bpf::{LossRule, Mode, Options, Outcome, ThinTest};
use pillion_tests::{Ip, Setup, Wire, sysctl};

use crate::hidden_loss::hidden;

/// So many previous segments in a bundle at most.
fn setup(loss_rule: LossRule, max_packets: u32) -> Setup {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(max_packets),
        loss_rule,
        ..Options::default()
    };
    Setup {
        initial_window: 10,
        ..Setup::bundling(options)
    }
}

fn reactions(wire: &Wire) -> u64 {
    wire.totals().counters.reactions
}

/// Waits until what was deemed lost is known to have come late.
fn await_reordered(wire: &Wire) {
    let begun = Instant::now();
    while hidden(wire).2 == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "nothing came late"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits longer than for a loss to turn out to be none where one did at once.
fn await_no_more() {
    thread::sleep(Duration::from_secs(1));
}

/// Waits for the reordering window of a peer that acknowledges at once.
fn await_reordering_window() {
    thread::sleep(Duration::from_millis(300));
}

const RTT: Duration = Duration::from_millis(800);

/// Has the peer acknowledge two segments after an RTT, of which the first was repaired; the next
/// segment leaves at once.
fn first_loss(published: bool, test: impl FnOnce(&mut Wire) + Send) {
    let options = Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        published,
        ..Options::default()
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
fn segment_late_by_less_than_a_quarter_rtt_causes_no_reaction() {
    first_loss(false, |wire| {
        wire.acks_late(201, "1:101");
        await_reordered(wire);
        thread::sleep(RTT / 2);
        wire.sends("201:401");
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 1), 0));
    });
}

#[test]
fn loss_is_answered_once_after_a_quarter_rtt() {
    first_loss(false, |wire| {
        assert_eq!(reactions(wire), 0, "it may come late");
        thread::sleep(RTT / 4);
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
fn published_reaction_waits_for_no_reordering_window() {
    first_loss(true, |wire| assert_eq!(reactions(wire), 1));
}

/// The receiver had the first segment, and delays what it has to say of the bundle after it. The
/// next bundle is lost, and the one after that brings nothing twice.
#[test]
fn a_report_that_was_yet_to_be_sent_hides_no_loss() {
    setup(LossRule::Dsack, 1).run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.ack_duplicate(401, "1:101", "");
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

/// The peer's segment with the report is lost, and the next one acknowledges the same.
#[test]
fn a_report_that_was_lost_with_the_peers_data_was_one_all_the_same() {
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
fn a_report_of_a_plain_segment_that_came_twice_tells_nothing_of_a_bundle() {
    setup(LossRule::Dsack, 1).run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
        wire.ack_duplicate(401, "21:101", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

/// A receiver without room may take note of a duplicate, and then drop the packet that had it.
#[test]
fn a_report_of_its_own_bytes_tells_nothing_of_what_rode_along() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack_duplicate(201, "101:201", "");
        assert_eq!(hidden(wire), (0, 0, 0));
    });
}

#[test]
fn nobody_answers_for_a_loss_that_turned_out_to_be_none_in_time() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.acks_late(201, "1:101");
        await_reordered(wire);
        wire.sends("201:301");
        wire.ack(301);
        assert_eq!(reactions(wire), 0);
        wire.sends("301:401 301:501");
        wire.ack(501);
        await_no_more();
        wire.sends("501:601");
        assert_eq!(reactions(wire), 1, "the next one is a loss");
    });
}

/// The first that comes late does so after a packet has left, which answered for it. From then on
/// one waits as long for a loss to turn out to be none, but not for ever.
#[test]
fn a_path_that_reorders_costs_one_reaction_until_that_is_known() {
    let long = Setup {
        rtt: Duration::from_secs(2),
        ..setup(LossRule::Dsack, 0)
    };
    long.run(|wire| {
        let mut overtaken = |first: u32, late: Duration| {
            let [second, third, end] = [100, 200, 300].map(|bytes| first + bytes);
            wire.sends(&format!("{first}:{second} {first}:{third}"));
            wire.ack(third);
            if !late.is_zero() {
                await_reordering_window();
            }
            wire.sends(&format!("{third}:{end}"));
            thread::sleep(late);
            wire.acks_late(third, &format!("{first}:{second}"));
            wire.ack(end);
        };
        overtaken(1, Duration::from_secs(1));
        // Few rounds: each prompt ACK shortens the smoothed RTT, which limits the reordering window.
        for round in 1..3 {
            overtaken(1 + round * 300, Duration::ZERO);
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
fn nobody_answers_for_two_that_come_late_one_by_one() {
    for late in [["1:101", "101:201"], ["101:201", "1:101"]] {
        setup(LossRule::Dsack, 0).run(|wire| {
            wire.sends("1:101 1:201 1:301");
            wire.ack(301);
            for segment in late {
                wire.acks_late(301, segment);
            }
            wire.sends("301:401");
            assert_eq!((hidden(wire), reactions(wire)), ((2, 200, 2), 0));
        });
    }
}

#[test]
fn somebody_answers_for_what_never_came_of_a_loss() {
    for late in ["1:101", "101:201", "201:301"] {
        setup(LossRule::Dsack, 0).run(|wire| {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.ack(401);
            wire.acks_late(401, late);
            await_no_more();
            wire.sends("401:501");
            assert_eq!((hidden(wire), reactions(wire)), ((3, 300, 1), 1));
        });
    }
}

/// Others were acknowledged meanwhile.
#[test]
fn nobody_answers_for_what_comes_late_behind_several() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(201);
        wire.ack_duplicate(301, "1:201", "");
        wire.acks_late(301, "1:101");
        await_reordered(wire);
        wire.sends("301:401");
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 1), 0));
    });
}

#[test]
fn what_came_late_takes_no_other_loss_back() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(201);
        wire.ack(401);
        wire.acks_late(401, "201:301");
        await_reordered(wire);
        await_reordering_window();
        wire.sends("401:501");
        assert_eq!(reactions(wire), 1, "for the first");
    });
}

#[test]
fn a_late_segment_that_is_the_first_to_be_reported_was_never_lost() {
    setup(LossRule::Auto, 0).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.acks_late(201, "1:101");
        await_reordered(wire);
        wire.sends("201:301 201:401");
        wire.ack_duplicate(401, "201:301", "");
        wire.sends("401:501");
        assert_eq!((hidden(wire).0, reactions(wire)), (0, 0));
    });
}

/// It was in doubt whether anything was lost, and what bundles saved was not counted.
#[test]
fn what_comes_late_once_the_rule_is_learnt_takes_back_no_time_that_was_not_counted() {
    setup(LossRule::Auto, 1).run(|wire| {
        for at in (1..1600).step_by(200) {
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            thread::sleep(Duration::from_millis(20));
            wire.ack(at + 200);
        }
        assert_eq!(hidden(wire).0, 0, "all are in doubt");
        wire.acks_late(1601, "1401:1501");
        await_reordered(wire);
        wire.sends("1601:1701 1601:1801");
        thread::sleep(Duration::from_millis(20));
        wire.ack(1801);
        assert_eq!(hidden(wire), (8, 800, 1));
        let saved_us = wire.totals().counters.saved_us;
        assert!((1..1_000_000).contains(&saved_us), "{saved_us}");
    });
}

/// Those that were counted before are in no doubt.
#[test]
fn what_comes_late_once_the_rule_is_asked_for_anew_leaves_what_is_in_doubt_as_it_is() {
    let setup = setup(LossRule::Dsack, 0);
    let mut asked_anew = setup.bundlers[0].clone();
    for rule in &mut asked_anew.rules {
        if let Mode::Bundle(options) = &mut rule.mode {
            options.loss_rule = LossRule::Auto;
        }
    }
    setup.run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack(301);
        assert_eq!(hidden(wire).0, 2);
        wire.replace_rules(&asked_anew);
        wire.ack(501);
        wire.acks_late(501, "1:201");
        await_no_more();
        wire.sends("501:601 501:701");
        wire.ack_duplicate(701, "501:601", "");
        assert_eq!(hidden(wire).0, 3);
    });
}

/// A peer that answers by several segments acknowledges by each of them.
#[test]
fn the_same_report_once_more_takes_no_loss_back() {
    setup(LossRule::Dsack, 2).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(201);
        wire.ack_duplicate(301, "1:201", "");
        wire.acks_late(301, "1:201");
        wire.sends("301:401");
        wire.ack(401);
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}

/// As Darwin's do.
#[test]
fn a_receiver_that_reports_no_single_byte_is_not_taken_for_one_that_lost_it() {
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

/// Somebody on the path changes sequence numbers, and forgets those of options.
#[test]
fn a_report_of_what_was_never_sent_is_none() {
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
            "as if it reported nothing"
        );
    });
}

/// What came late, or twice, proves that its own bytes came, and nothing of what rode along.
#[test]
fn a_bundle_that_comes_late_takes_back_no_loss_that_it_would_have_repaired() {
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.acks_late(201, "1:201");
        await_reordering_window();
        wire.sends("201:301");
        assert_eq!((hidden(wire), reactions(wire)), ((1, 100, 0), 1));
    });
    setup(LossRule::Dsack, 0).run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack(401);
        wire.acks_late(401, "1:201");
        await_reordered(wire);
        await_reordering_window();
        wire.sends("401:501");
        assert_eq!(reactions(wire), 1);
    });
}

/// Half of the sequence space is 2 GiB: of what was sent before, nothing may seem to be outstanding.
#[test]
fn bundling_goes_on_after_any_number_of_bytes_whose_headers_could_not_be_read() {
    Setup {
        ip: Ip::V6,
        mss: 65_000,
        ..setup(LossRule::Dsack, 1)
    }
    .run(|wire| {
        wire.pass_unread((1 << 31) + (1 << 27));
        wire.sends("1:101 1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        assert_eq!(hidden(wire).0, 1);
    });
}

/// One segment of the peer's is lost and does not come again. All that it sends behind it comes, one
/// behind the other, and each tells of a bundle that repaired a loss.
#[test]
fn a_gap_in_the_peers_data_hides_no_losses_for_long() {
    setup(LossRule::Dsack, 1).run(|wire| {
        for round in 0..20 {
            let at = 1 + round * 200;
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            wire.peer_sends(at + 200, 50 * (round + 1), 50);
            wire.expect(&format!("{0}:{0}", at + 200));
        }
        let bundled = wire.totals().counters.of(Outcome::Bundled);
        let (losses, ..) = hidden(wire);
        // The first one may have been told of by what is missing.
        assert!(
            bundled < 5 || losses >= 19,
            "{bundled} bundles, {losses} losses, {} reactions",
            reactions(wire)
        );
    });
}

/// Two that follow each other closely, and each comes late, before another packet leaves.
#[test]
fn nobody_answers_for_two_losses_that_both_come_late() {
    for order in [["301:401", "501:601"], ["501:601", "301:401"]] {
        let long = Setup {
            rtt: Duration::from_secs(2),
            ..setup(LossRule::Dsack, 1)
        };
        long.run(|wire| {
            wire.sends("1:101 1:201");
            wire.ack(201);
            await_reordering_window();
            wire.sends("201:301");
            thread::sleep(Duration::from_secs(1));
            wire.acks_late(201, "1:101");
            wire.ack(301);
            assert_eq!(
                (hidden(wire).2, reactions(wire)),
                (1, 1),
                "so late they come"
            );

            wire.sends("301:401 301:501");
            wire.ack(501);
            wire.sends("501:601 501:701");
            wire.ack(701);
            for late in order {
                wire.acks_late(701, late);
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

/// A loss that a reduction answers for already is found before one that turns out to be none.
#[test]
fn nobody_answers_for_what_comes_late_behind_a_loss_that_needs_no_answer() {
    for lost in [false, true] {
        let long = Setup {
            rtt: Duration::from_secs(2),
            ..setup(LossRule::Dsack, 1)
        };
        long.run(|wire| {
            wire.sends("1:101 1:201");
            wire.ack(201);
            await_reordering_window();
            wire.sends("201:301");
            thread::sleep(Duration::from_secs(1));
            wire.acks_late(201, "1:101");
            wire.ack(301);
            wire.sends("301:401 301:501");
            wire.ack(501);
            wire.sends("501:601 501:701");
            thread::sleep(Duration::from_millis(2500));
            wire.sends("601:801");
            assert_eq!(
                reactions(wire),
                2,
                "for 301:401, while 501:601 was on its way"
            );
            match lost {
                true => wire.ack(701),
                false => wire.ack_duplicate(701, "501:601", ""),
            }
            wire.sends("701:901");
            wire.ack_duplicate(901, "701:801", "");
            wire.sends("901:1001 901:1101");
            wire.ack(1101);
            wire.acks_late(1101, "901:1001");
            thread::sleep(Duration::from_secs(3));
            wire.sends("1101:1201");
            assert_eq!(reactions(wire), 2, "901:1001 came late, in time; {lost}");
        });
    }
}

/// TCP retransmitted the first segment of two that were lost, and the third one's bundle had brought
/// both by then: the report is of the retransmission.
#[test]
fn a_needless_retransmission_is_nothing_that_comes_late() {
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
        let saved_us = wire.totals().counters.saved_us;
        wire.acks_late(301, "1:101");
        thread::sleep(Duration::from_millis(200));
        assert_eq!(hidden(wire), (1, 100, 0), "nothing came late");
        assert_eq!(wire.totals().counters.saved_us, saved_us);
    });
}

/// While the application holds the socket, what the peer sends waits, and TCP expects its first
/// byte still: nothing is missing before the second segment.
#[test]
fn data_of_the_peers_that_wait_for_the_application_are_behind_no_gap() {
    setup(LossRule::Dsack, 1).run(|wire| {
        wire.sends("1:101 1:201");
        let is_held = wire.held(50, |wire| {
            wire.peer_sends(1, 0, 50);
            wire.peer_sends(201, 0, 50);
            thread::sleep(Duration::from_millis(100));
        });
        if !is_held {
            println!("left out: this kernel has no userfaultfd");
            return;
        }
        thread::sleep(Duration::from_millis(100));
        assert_eq!(hidden(wire), (1, 100, 0));
    });
}
