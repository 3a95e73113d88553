//! Reports of duplicates that bundles cause never reach TCP; all others do.

use std::time::Duration;

use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Ip, Link, Setup, Wire, netstat, sysctl};

fn options() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        ..Options::default()
    }
}

fn setup() -> Setup {
    Setup::bundling(options())
}

/// Reports that TCP saw, and those that were taken out.
fn reports(wire: &Wire) -> (u64, u64) {
    (
        netstat("TCPDSACKRecv"),
        wire.totals().counters.dsacks_hidden,
    )
}

#[test]
fn the_report_of_a_bundle_is_taken_out() {
    setup().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(reports(wire), (0, 2));
        assert_eq!(netstat("TCPDSACKIgnoredDubious"), 0);
        assert_eq!(wire.totals().counters.hidden_losses, 0, "it is read before");
    });
}

#[test]
fn the_report_of_a_bundle_is_taken_out_of_headers_in_pages() {
    for tags in [0, 1] {
        for ip in [Ip::V4, Ip::V6] {
            let in_pages = Setup {
                ip,
                link: Link::Ethernet { tags },
                received_in_pages: true,
                ..setup()
            };
            in_pages.run(|wire| {
                wire.sends("1:101 1:201");
                wire.ack_duplicate(201, "1:101", "");
                assert_eq!(reports(wire), (0, 1));
            });
        }
    }
}

#[test]
fn what_is_on_its_way_at_the_end_is_reported_to_nobody() {
    setup().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.finish_while(|wire| {
            wire.sends("301:401");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            wire.ack_duplicate(301, "1:201", "");
            wire.ack(401);
        });
        assert_eq!(reports(wire), (0, 2));
        wire.sends("401:501 501:601");
    });
}

#[test]
fn the_blocks_beside_it_stay() {
    for timestamps in [false, true] {
        let setup = Setup {
            timestamps,
            ..setup()
        };
        setup.run(|wire| {
            wire.sends("1:51 1:101 1:151 1:201 1:251 1:301 1:351 1:401");
            wire.ack(51);
            // As many as there is room for.
            let (beside, sacked) = if timestamps {
                ("151:201 251:301", 2)
            } else {
                ("151:201 251:301 351:401", 3)
            };
            wire.ack_duplicate(101, "1:51", beside);
            assert_eq!(reports(wire), (0, 1));
            wire.await_sacked(sacked);
        });
    }
}

#[test]
fn reports_are_taken_out_across_the_sequence_numbers_wrap() {
    for before_wrap in [50, 150, 250] {
        let isn = Some(u32::MAX - before_wrap);
        Setup { isn, ..setup() }.run(|wire| {
            wire.sends("1:101 1:201 1:301");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            wire.ack_duplicate(301, "1:201", "");
            assert_eq!(reports(wire), (0, 2));
        });
    }
}

/// RFC 2883, section 4: such a report lies within the second block.
#[test]
fn a_report_of_what_is_behind_a_gap_is_taken_out_as_well() {
    setup().run_everywhere(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack_duplicate(101, "201:301", "201:401");
        assert_eq!(netstat("TCPDSACKOfoRecv"), 0);
        assert_eq!(reports(wire), (0, 1));
        // The blocks that tell of it reach TCP.
        wire.await_sacked(2);
    });
}

#[test]
fn a_block_that_no_other_one_holds_is_no_report() {
    setup().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack_duplicate(101, "201:301", "401:501");
        assert_eq!(wire.totals().counters.dsacks_hidden, 0);
        wire.await_sacked(2);
    });
}

#[test]
fn without_checksum_offload_the_changed_ack_is_still_right() {
    // The kernel would drop it otherwise, and ack_duplicate() would fail.
    setup().run_everywhere(|wire| {
        for end in (201..2001).step_by(200) {
            wire.sends(&format!("{0}:{1} {0}:{end}", end - 200, end - 100));
            wire.ack(end - 100);
            wire.ack_duplicate(end, &format!("{}:{}", end - 200, end - 100), "");
        }
        assert_eq!(reports(wire), (0, 9));
    });
}

#[test]
fn a_late_packet_with_a_bundle_is_no_retransmission_either() {
    setup().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        // 1:301 overtook 1:201.
        wire.ack(101);
        wire.ack_duplicate(301, "1:101", "");
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(reports(wire), (0, 2));
    });
}

#[test]
fn the_report_of_a_retransmission_reaches_tcp_and_undoes_what_it_did() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..setup() }.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack_duplicate(201, "1:201", "");
        assert_eq!(reports(wire).0, 1);
    });
}

/// TCP merged both segments into one, of which the receiver had the beginning.
#[test]
fn the_report_of_the_beginning_of_a_retransmission_reaches_tcp() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..setup() }.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(reports(wire), (1, 0));
    });
}

/// The ACKs come late: TCP's time-out was needless. All segments are in one retransmission.
#[test]
fn the_reports_of_bundles_that_tcp_retransmitted_needlessly_are_taken_out() {
    for timestamps in [false, true] {
        let setup = Setup {
            rto_min: Duration::from_secs(1),
            timestamps,
            ..setup()
        };
        setup.run(|wire| {
            wire.sends("1:101 1:201 1:301 1:401");
            wire.hold_echo(true);
            wire.expect("1:401");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            wire.ack_duplicate(301, "1:201", "");
            assert_eq!(reports(wire), (0, 2));
            // That of the last one could be the retransmission's, but for its time.
            wire.ack_duplicate(401, "1:301", "");
            let without = u64::from(!timestamps);
            assert_eq!(reports(wire), (without, 3 - without));
            // And that is the retransmission's: no echo tells of what brings nothing new.
            wire.ack_duplicate(401, "1:401", "");
            assert_eq!(reports(wire), (without + 1, 3 - without));
        });
    }
}

/// In an ACK of all that has come, as the receiver delayed it.
#[test]
fn the_report_of_a_bundle_that_left_before_its_retransmission_is_taken_out() {
    for late in [true, false] {
        let setup = Setup {
            rto_min: Duration::from_secs(1),
            timestamps: true,
            ..setup()
        };
        setup.run(|wire| {
            wire.sends("1:101 1:201 1:301 301:1701");
            wire.hold_echo(late);
            wire.expect("1:301");
            wire.ack_duplicate(1701, "1:201", "");
            assert_eq!(reports(wire), (u64::from(!late), u64::from(late)));
        });
    }
}

/// The last retransmission's time says nothing of the one before.
#[test]
fn the_report_of_an_older_retransmission_reaches_tcp() {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        timestamps: true,
        ..setup()
    };
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack(201);
        wire.sends("201:301 201:401");
        wire.hold_echo(true);
        wire.expect("201:401");
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(reports(wire), (1, 0));
    });
}

/// The network brought it twice.
#[test]
fn the_report_of_what_neither_rode_along_nor_was_retransmitted_reaches_tcp() {
    setup().run(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.ack_duplicate(101, "1:101", "");
        wire.sends("101:201");
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(reports(wire), (2, 0));
    });
}

/// Only as many segments are recorded; of what left behind them, nothing rode along.
#[test]
fn the_report_of_a_probe_that_is_not_recorded_reaches_tcp() {
    let rtt = Duration::from_millis(300);
    Setup { rtt, ..setup() }.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        for _ in 0..140 {
            wire.write(10);
            wire.read();
        }
        // The probe is the last one again: the ACKs were lost.
        wire.expect("1391:1401");
        wire.ack_duplicate(1401, "1391:1401", "");
        assert_eq!(reports(wire), (1, 0));
        wire.sends("1401:1411");
        wire.ack(1411);
        assert_eq!(netstat("TCPLossProbeRecovery"), 0);
    });
}

/// One segment again at a time-out, not those behind it with it.
fn one_at_a_time(options: Options, test: impl FnOnce(&mut Wire) + Send) {
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        initial_window: 10,
        ..Setup::bundling(options)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        test(wire);
    });
}

/// The bundle that carried the same came first, and was acknowledged.
#[test]
fn the_report_of_a_retransmission_that_came_behind_a_bundle_reaches_tcp() {
    one_at_a_time(options(), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack(201);
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(reports(wire), (1, 0));
    });
}

/// Such an ACK is not that of any packet which was sent.
#[test]
fn a_report_of_what_was_retransmitted_in_an_ack_of_half_a_packet_reaches_tcp() {
    one_at_a_time(options(), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack_duplicate(151, "1:101", "");
        assert_eq!(reports(wire), (1, 0));
    });
}

/// The path doubled the packet, and the ACK of its first copy was lost.
#[test]
fn a_report_of_a_whole_packet_with_what_was_retransmitted_reaches_tcp() {
    one_at_a_time(options(), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack_duplicate(201, "1:201", "");
        assert_eq!(reports(wire), (1, 0));
    });
}

/// It rode along with a retransmission as well, which is the packet that was acknowledged.
#[test]
fn the_report_of_what_rode_along_and_was_retransmitted_is_taken_out() {
    let taking_along = Options {
        thin: ThinTest::Spifl { limit: 0 },
        retransmissions: true,
        ..options()
    };
    one_at_a_time(taking_along, |wire| {
        wire.sends("1:101 101:201 201:301");
        wire.expect("1:301");
        wire.ack(101);
        wire.expect("101:301 201:301");
        wire.ack_duplicate(301, "201:301", "");
        assert_eq!(reports(wire), (0, 1));
    });
}

/// It brought nothing new, and so its time is not echoed.
#[test]
fn the_report_of_a_whole_retransmission_and_what_rode_along_reaches_tcp() {
    let taking_along = Options {
        thin: ThinTest::Spifl { limit: 3 },
        retransmissions: true,
        ..options()
    };
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        timestamps: true,
        ..Setup::bundling(taking_along)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.expect("1:301");
        wire.ack_duplicate(301, "1:301", "");
        assert_eq!(reports(wire), (1, 0));
    });
}

/// More segments have followed than are recorded.
#[test]
fn the_report_of_what_is_recorded_no_more_reaches_tcp() {
    setup().run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        for at in (201..14_201).step_by(100) {
            wire.sends(&format!("{at}:{}", at + 100));
            wire.ack(at + 100);
        }
        wire.ack_duplicate(14_201, "1:101", "");
        assert_eq!(reports(wire), (1, 0));
    });
}
