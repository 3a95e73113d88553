//! Tests that DSACKs caused by bundles never reach TCP, and that all others do.

use std::time::Duration;

use pillion_bpf::{LossRule, Options, ThinTest};
use pillion_tests::{Ip, Link, Setup, Wire, limit_one, netstat, sysctl};

fn options() -> Options {
    Options {
        thin: ThinTest::Always,
        max_packets: Some(0),
        loss_rule: LossRule::Dsack,
        ..limit_one()
    }
}

fn setup() -> Setup {
    Setup::bundling(options())
}

/// Returns the DSACKs that TCP saw, and those that were removed.
fn dsacks(wire: &Wire) -> (u64, u64) {
    (
        netstat("TCPDSACKRecv"),
        wire.totals().counters.dsacks_removed,
    )
}

#[test]
fn dsack_of_bundle_is_removed() {
    setup().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.ack(101);
        wire.ack_duplicate(201, "1:101", "");
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(dsacks(wire), (0, 2));
        assert_eq!(netstat("TCPDSACKIgnoredDubious"), 0);
        assert_eq!(
            wire.totals().counters.hidden_losses,
            0,
            "it is parsed before removal"
        );
    });
}

#[test]
fn dsack_of_bundle_is_removed_from_paged_headers() {
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
                assert_eq!(dsacks(wire), (0, 1));
            });
        }
    }
}

#[test]
fn dsack_of_bundle_in_flight_at_shutdown_is_removed() {
    setup().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.finish_while(|wire| {
            wire.sends("301:401");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            wire.ack_duplicate(301, "1:201", "");
            wire.ack(401);
        });
        assert_eq!(dsacks(wire), (0, 2));
        wire.sends("401:501 501:601");
    });
}

#[test]
fn sack_blocks_next_to_dsack_stay() {
    for timestamps in [false, true] {
        let setup = Setup {
            timestamps,
            ..setup()
        };
        setup.run(|wire| {
            wire.sends("1:51 1:101 1:151 1:201 1:251 1:301 1:351 1:401");
            wire.ack(51);
            // The maximum number of blocks that fit.
            let (other_blocks, sacked) = if timestamps {
                ("151:201 251:301", 2)
            } else {
                ("151:201 251:301 351:401", 3)
            };
            wire.ack_duplicate(101, "1:51", other_blocks);
            assert_eq!(dsacks(wire), (0, 1));
            wire.wait_for_sacked(sacked);
        });
    }
}

#[test]
fn dsacks_are_removed_across_sequence_wrap() {
    for before_wrap in [50, 150, 250] {
        let isn = Some(u32::MAX - before_wrap);
        Setup { isn, ..setup() }.run(|wire| {
            wire.sends("1:101 1:201 1:301");
            wire.ack(101);
            wire.ack_duplicate(201, "1:101", "");
            wire.ack_duplicate(301, "1:201", "");
            assert_eq!(dsacks(wire), (0, 2));
        });
    }
}

/// RFC 2883, section 4: such a DSACK lies within the second block.
#[test]
fn dsack_beyond_gap_is_removed() {
    setup().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201 1:301 1:401");
        wire.ack_duplicate(101, "201:301", "201:401");
        assert_eq!(netstat("TCPDSACKOfoRecv"), 0);
        assert_eq!(dsacks(wire), (0, 1));
        // The blocks that describe the gap reach TCP.
        wire.wait_for_sacked(2);
    });
}

#[test]
fn block_outside_other_blocks_is_not_dsack() {
    setup().run(|wire| {
        wire.sends("1:101 1:201 1:301 1:401 1:501");
        wire.ack_duplicate(101, "201:301", "401:501");
        assert_eq!(wire.totals().counters.dsacks_removed, 0);
        wire.wait_for_sacked(2);
    });
}

#[test]
fn changed_ack_is_valid_without_checksum_offload() {
    // With an invalid checksum the kernel would drop the ACK, and ack_duplicate() would fail.
    setup().run_on_ip_variants(|wire| {
        for end in (201..2001).step_by(200) {
            wire.sends(&format!("{0}:{1} {0}:{end}", end - 200, end - 100));
            wire.ack(end - 100);
            wire.ack_duplicate(end, &format!("{}:{}", end - 200, end - 100), "");
        }
        assert_eq!(dsacks(wire), (0, 9));
    });
}

#[test]
fn late_bundle_is_not_mistaken_for_retransmission() {
    setup().run(|wire| {
        wire.sends("1:101 1:201 1:301");
        // 1:301 overtook 1:201.
        wire.ack(101);
        wire.ack_duplicate(301, "1:101", "");
        wire.ack_duplicate(301, "1:201", "");
        assert_eq!(dsacks(wire), (0, 2));
    });
}

#[test]
fn dsack_of_retransmission_undoes_tcp_reduction() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..setup() }.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack_duplicate(201, "1:201", "");
        assert_eq!(dsacks(wire).0, 1);
    });
}

/// TCP merged both segments into one, and the receiver had the first part already.
#[test]
fn dsack_of_first_part_of_retransmission_reaches_tcp() {
    let rto_min = Duration::from_secs(1);
    Setup { rto_min, ..setup() }.run(|wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:201");
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(dsacks(wire), (1, 0));
    });
}

/// The ACKs are late, so TCP's timeout was needless. One retransmission carries all segments.
#[test]
fn dsacks_of_needlessly_retransmitted_bundles_are_removed() {
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
            assert_eq!(dsacks(wire), (0, 2));
            // Only its timestamp shows that this is not the DSACK of the retransmission.
            wire.ack_duplicate(401, "1:301", "");
            let without = u64::from(!timestamps);
            assert_eq!(dsacks(wire), (without, 3 - without));
            // This is the DSACK of the retransmission: segments without new data do not update the
            // echo.
            wire.ack_duplicate(401, "1:401", "");
            assert_eq!(dsacks(wire), (without + 1, 3 - without));
        });
    }
}

/// The receiver delayed its ACK and acknowledges everything at once.
#[test]
fn dsack_of_bundle_sent_before_retransmission_is_removed() {
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
            assert_eq!(dsacks(wire), (u64::from(!late), u64::from(late)));
        });
    }
}

/// The timestamp of the last retransmission proves nothing about an earlier one.
#[test]
fn dsack_of_older_retransmission_reaches_tcp() {
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
        assert_eq!(dsacks(wire), (1, 0));
    });
}

/// The network duplicated the packet.
#[test]
fn dsack_of_network_duplicate_reaches_tcp() {
    setup().run(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.ack_duplicate(101, "1:101", "");
        wire.sends("101:201");
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(dsacks(wire), (2, 0));
    });
}

/// The record holds a limited number of segments, and later ones are sent without a bundle.
#[test]
fn dsack_of_unrecorded_probe_reaches_tcp() {
    let rtt = Duration::from_millis(300);
    Setup { rtt, ..setup() }.run(|wire| {
        sysctl("net.ipv4.tcp_early_retrans", "3");
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        for _ in 0..140 {
            wire.write(10);
            wire.read();
        }
        // The probe repeats the last segment, because the ACKs were lost.
        wire.expect("1391:1401");
        wire.ack_duplicate(1401, "1391:1401", "");
        assert_eq!(dsacks(wire), (1, 0));
        wire.sends("1401:1411");
        wire.ack(1411);
        assert_eq!(netstat("TCPLossProbeRecovery"), 0);
    });
}

/// Runs a test in which a timeout retransmits one segment, without merging the following ones.
fn without_collapse(options: Options, test: impl FnOnce(&mut Wire) + Send) {
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

/// A bundle with the same data arrived first and was acknowledged.
#[test]
fn dsack_of_retransmission_after_bundle_reaches_tcp() {
    without_collapse(options(), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack(201);
        wire.ack_duplicate(201, "1:101", "");
        assert_eq!(dsacks(wire), (1, 0));
    });
}

/// Such an ACK does not match the end of any sent packet.
#[test]
fn dsack_in_ack_of_half_packet_reaches_tcp() {
    without_collapse(options(), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack_duplicate(151, "1:101", "");
        assert_eq!(dsacks(wire), (1, 0));
    });
}

/// The path duplicated the packet, and the ACK of its first copy was lost.
#[test]
fn dsack_of_whole_packet_with_retransmission_reaches_tcp() {
    without_collapse(options(), |wire| {
        wire.sends("1:101 1:201");
        wire.expect("1:101");
        wire.ack_duplicate(201, "1:201", "");
        assert_eq!(dsacks(wire), (1, 0));
    });
}

/// The same data was bundled with a retransmission too, and the ACK answers that packet.
#[test]
fn dsack_of_bundled_and_retransmitted_data_is_removed() {
    let bundling_retransmissions = Options {
        thin: ThinTest::Spifl { limit: 0 },
        bundle_retransmissions: true,
        ..options()
    };
    without_collapse(bundling_retransmissions, |wire| {
        wire.sends("1:101 101:201 201:301");
        wire.expect("1:301");
        wire.ack(101);
        wire.expect("101:301 201:301");
        wire.ack_duplicate(301, "201:301", "");
        assert_eq!(dsacks(wire), (0, 1));
    });
}

/// The retransmission brought nothing new, so its timestamp is not echoed.
#[test]
fn dsack_of_whole_bundled_retransmission_reaches_tcp() {
    let bundling_retransmissions = Options {
        thin: ThinTest::Spifl { limit: 3 },
        bundle_retransmissions: true,
        ..options()
    };
    let setup = Setup {
        rto_min: Duration::from_secs(1),
        timestamps: true,
        ..Setup::bundling(bundling_retransmissions)
    };
    setup.run(|wire| {
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        wire.sends("1:101 1:201 1:301");
        wire.hold_echo(true);
        wire.expect("1:301");
        wire.ack_duplicate(301, "1:301", "");
        assert_eq!(dsacks(wire), (1, 0));
    });
}

/// More segments have followed than the record holds.
#[test]
fn dsack_of_data_evicted_from_record_reaches_tcp() {
    setup().run(|wire| {
        wire.sends("1:101 1:201");
        wire.ack(201);
        for at in (201..14_201).step_by(100) {
            wire.sends(&format!("{at}:{}", at + 100));
            wire.ack(at + 100);
        }
        wire.ack_duplicate(14_201, "1:101", "");
        assert_eq!(dsacks(wire), (1, 0));
    });
}
