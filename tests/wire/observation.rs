//! Tests the observation of connections, and bundles that are suppressed meanwhile.

use std::thread;
use std::time::Duration;

use pillion_bpf::{
    Arm, AssignBy, Direction, Holdback, LatencyBuckets, Level, Observation, Observing, Options,
    Outcome, Rule,
};
use pillion_tests::{Bundler, Ip, Setup, Wire, unlimited};

const RTT: Duration = Duration::from_millis(20);
const GRACE: Duration = Duration::from_millis(10);
const STALL: Duration = Duration::from_millis(100);

fn observing(bundled_ppm: u32) -> Observing {
    Observing {
        bundled_ppm: Some(bundled_ppm),
        key: [1, 2],
        assign_by: AssignBy::Peer,
        grace_us: GRACE.as_micros() as u32,
        stall_us: STALL.as_micros() as u32,
    }
}

fn setup(bundled_ppm: u32) -> Setup {
    Setup {
        rtt: RTT,
        observing: Some(observing(bundled_ppm)),
        ..Setup::default()
    }
}

fn suppressed_setup() -> Setup {
    setup(0)
}

/// Returns the observation of the only connection.
fn observation(wire: &mut Wire) -> Observation {
    let mut all = wire.observations();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn ms(us: u64) -> u64 {
    us / 1000
}

#[test]
fn share_bundles_all_or_no_connections() {
    setup(1_000_000).run_on_each_socket(|wire| {
        wire.sends("1:101 1:201");
        assert_eq!(observation(wire).arm, Arm::Bundled);
    });
    suppressed_setup().run_on_each_socket(|wire| {
        wire.sends("1:101 101:201 201:301");
        let observation = observation(wire);
        assert_eq!(observation.arm, Arm::Plain);
        assert_eq!(
            (observation.suppressed, observation.suppressed_bytes),
            (2, 300)
        );
        wire.assert_outcomes(&[(Outcome::NothingOutstanding, 1), (Outcome::Suppressed, 2)]);
    });
}

#[test]
fn endpoints_and_arm_match_connection() {
    for (ip, peer) in [(Ip::V4, "10.0.0.2"), (Ip::V6, "fd00::2")] {
        Setup {
            ip,
            ..suppressed_setup()
        }
        .run(|wire| {
            wire.sends("1:101");
            let observation = observation(wire);
            assert_eq!(
                observation.peer.ip(),
                peer.parse::<std::net::IpAddr>().unwrap()
            );
            assert_eq!(observation.direction, Some(Direction::Connect));
            assert!(!observation.has_ended && observation.inode.is_some());
        });
    }
}

#[test]
fn latency_runs_from_first_send_to_covering_ack() {
    suppressed_setup().run_on_ip_variants(|wire| {
        wire.sends("1:101");
        thread::sleep(2 * RTT);
        wire.sends("101:201");
        thread::sleep(RTT);
        wire.ack(201);
        let observation = observation(wire);
        assert_eq!(observation.segments, 2);
        let min_rtt: Duration = 4 * RTT;
        let latency = Duration::from_micros(observation.latency_us);
        assert!(min_rtt <= latency && latency < 4 * min_rtt, "{latency:?}");
        let rtt = u64::from(observation.rtt_min_us.expect("a sample"));
        assert!(ms(rtt) >= 20);
        assert!(observation.waited_us + 2 * rtt >= observation.latency_us);
        assert!(observation.waited_us + rtt <= observation.latency_us);
        let grace = GRACE.as_micros() as u64 * u64::from(observation.late);
        assert!(observation.late >= 1 && observation.late_us + grace <= observation.waited_us);
        assert_eq!(observation.latencies.counts().iter().sum::<u32>(), 2);
    });
}

#[test]
fn latency_is_counted_in_its_bucket() {
    suppressed_setup().run(|wire| {
        wire.sends("1:101");
        thread::sleep(3 * RTT);
        wire.ack(101);
        let observation = observation(wire);
        let counts = observation.latencies.counts();
        let bucket = counts.iter().position(|count| *count == 1).unwrap();
        assert!(LatencyBuckets::start_us(bucket) <= observation.latency_us);
        assert!(observation.latency_us < LatencyBuckets::start_us(bucket + 1));
    });
}

#[test]
fn segment_counts_once_regardless_of_acks() {
    suppressed_setup().run(|wire| {
        wire.sends("1:101 101:201");
        for ack in [51, 51, 101, 151, 201, 201] {
            wire.ack(ack);
        }
        assert_eq!(observation(wire).segments, 2);
    });
}

#[test]
fn long_wait_counts_as_stall() {
    suppressed_setup().run(|wire| {
        wire.sends("1:101");
        thread::sleep(STALL + RTT);
        wire.ack(101);
        wire.sends("101:201");
        wire.ack(201);
        let observation = observation(wire);
        assert_eq!(
            (observation.segments, observation.stalls, observation.late),
            (2, 1, 1)
        );
    });
}

#[test]
fn loss_is_repairable_by_following_bundle() {
    let rto_min = Duration::from_millis(300);
    let setup = Setup {
        rto_min,
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        wire.ack_sack(1, "101:201");
        wire.expect("1:101");
        thread::sleep(2 * RTT);
        wire.ack(201);
        let observation = observation(wire);
        assert_eq!(
            (observation.losses.segments, observation.losses.repairable),
            (1, 1)
        );
        assert_eq!(observation.losses.uncovered, 0);
        let losses = observation.losses;
        assert!(losses.time_saved_byte_us > 0);
        assert!(losses.time_saved_byte_us <= losses.copies_time_saved_byte_us);
        assert!(losses.copies_time_saved_byte_us <= 100 * observation.latency_us);
        let again = observation.retransmitted;
        assert_eq!(again.fast + again.after_timeout + again.probes, 1);
    });
}

#[test]
fn loss_without_following_segment_is_not_repairable() {
    let rto_min = Duration::from_millis(300);
    let setup = Setup {
        rto_min,
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        let observation = observation(wire);
        assert_eq!(
            (observation.losses.segments, observation.losses.uncovered),
            (1, 1)
        );
        assert_eq!(
            (
                observation.losses.repairable,
                observation.losses.time_saved_byte_us
            ),
            (0, 0)
        );
        // A copy sent one RTT later would have delivered it before the timeout.
        assert!(
            observation.losses.copies_time_saved_byte_us > 100 * 200_000,
            "{observation:?}"
        );
    });
}

#[test]
fn needless_retransmission_counts_once_per_segment() {
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201 201:301");
        // One retransmission with everything that TCP deems lost.
        wire.expect("1:301");
        wire.ack_duplicate(301, "1:201", "");
        wire.ack_duplicate(301, "1:301", "");
        let observation = observation(wire);
        assert_eq!(
            (observation.losses.segments, observation.losses.spurious),
            (3, 3)
        );
    });
}

#[test]
fn second_bundle_repairs_if_first_is_lost() {
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..suppressed_setup()
    };
    // The bundle of the second segment is lost with it.
    for (level, repairable) in [(1, 1), (2, 2)] {
        let options = Options {
            max_packets: Some(level),
            ..unlimited()
        };
        let setup = Setup {
            bundlers: vec![Bundler::with(options)],
            ..setup.clone()
        };
        setup.run(|wire| {
            wire.sends("1:101 101:201 201:301 301:401");
            wire.ack_sack(1, "201:401");
            wire.expect("1:201");
            thread::sleep(2 * RTT);
            wire.ack(401);
            let losses = observation(wire).losses;
            assert_eq!((losses.segments, losses.repairable), (2, repairable));
        });
    }
}

#[test]
fn suppressed_copy_repairs_unless_previous_packet_is_lost() {
    let options = Options {
        level: Some(Level::Auto),
        ..Options::default()
    };
    let setup = Setup {
        bundlers: vec![Bundler::with(options)],
        rto_min: Duration::from_millis(300),
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        let first = observation(wire);
        assert_eq!((first.suppressed, first.suppressed_copies), (0, 1));
        assert_eq!((first.losses.repairable, first.losses.uncovered), (1, 0));
        wire.sends("101:201");
        wire.expect("101:201");
        wire.ack(201);
        let second = observation(wire);
        assert_eq!(second.suppressed_bytes, 200);
        assert_eq!((second.losses.segments, second.losses.repairable), (2, 1));
    });
}

/// The send time is unknown, and so is the delay; such data counts in no loss statistics.
#[test]
fn data_sent_before_observation_is_not_counted() {
    let setup = Setup {
        bundlers: vec![],
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201 201:301 301:401");
        wire.attach(&Bundler::unlimited());
        wire.adopt();
        // Uses SACK, because attaching on an emulated machine may take longer than a timeout.
        wire.ack_sack(1, "101:401");
        wire.expect("1:101");
        wire.ack_duplicate(401, "1:101", "");
        wire.sends("401:501");
        wire.ack(501);
        let observation = observation(wire);
        assert_eq!(
            (observation.losses.segments, observation.losses.spurious),
            (0, 0)
        );
        assert_eq!(observation.segments, 1);
    });
}

/// The DSACK may follow the ACK or come with it.
#[test]
fn needless_retransmission_is_not_repairable() {
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..suppressed_setup()
    };
    setup.run(|wire| {
        for start in [1, 201] {
            let [middle, end] = [start + 100, start + 200];
            let first = format!("{start}:{middle}");
            let second = format!("{middle}:{end}");
            wire.sends(&format!("{first} {second}"));
            wire.ack_sack(start, &second);
            wire.expect(&first);
            if start == 1 {
                wire.ack(end);
                assert_eq!(observation(wire).losses.repairable, 1);
            }
            wire.ack_duplicate(end, &first, "");
            let losses = observation(wire).losses;
            assert_eq!(losses.segments, losses.spurious);
            assert_eq!(losses.repairable, 0);
        }
    });
}

#[test]
fn needless_retransmission_counts_again_in_reused_slot() {
    const SLOTS: u32 = 128;
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..suppressed_setup()
    };
    setup.run(|wire| {
        for round in 0..3 {
            let start = 1 + round * SLOTS * 10;
            let spurious = format!("{start}:{}", start + 10);
            wire.sends(&spurious);
            wire.expect(&spurious);
            wire.ack_duplicate(start + 10, &spurious, "");
            for end in (start + 20..=start + SLOTS * 10).step_by(10) {
                wire.sends(&format!("{}:{end}", end - 10));
                wire.ack(end);
            }
        }
        let observation = observation(wire);
        assert_eq!(
            (observation.losses.segments, observation.losses.spurious),
            (3, 3)
        );
    });
}

#[test]
fn every_rto_is_counted() {
    let rto_min = Duration::from_millis(100);
    let setup = Setup {
        rto_min,
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        // The first retransmission may be a tail loss probe.
        wire.expect("1:101 1:101 1:101");
        wire.ack(101);
        let observation = observation(wire);
        let again = observation.retransmitted;
        assert_eq!(observation.timeouts, again.after_timeout);
        assert_eq!((observation.timeouts + again.probes, again.fast), (3, 0));
        assert!(again.probes <= 1);
    });
}

#[test]
fn ended_connection_is_reported_once() {
    suppressed_setup().run(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        let before = observation(wire);
        wire.reconnect(7000);
        let all = wire.observations();
        assert!(all.len() <= 1, "{all:?}");
        wire.sends("1:101");
        let after = observation(wire);
        assert_eq!(after.cookie, before.cookie);
        assert_eq!((after.peer.port(), after.segments), (7000, 0));
    });
}

/// Connections are given up after the longest waits, so these must count.
#[test]
fn unacknowledged_data_waits_until_connection_end() {
    for (end, is_aborted) in [
        (Wire::end as fn(&mut Wire), false),
        (|wire: &mut Wire| wire.peer_resets(), true),
    ] {
        suppressed_setup().run_on_each_socket(|wire| {
            wire.sends("1:101 101:201");
            wire.ack(101);
            assert_eq!(observation(wire).segments, 1);
            thread::sleep(STALL + RTT);
            end(wire);
            let observation = observation(wire);
            assert_eq!(
                (observation.segments, observation.late, observation.stalls),
                (2, 1, 1)
            );
            assert_eq!(observation.is_aborted, is_aborted);
            let min_rtt = Duration::from_micros(observation.rtt_min_us.unwrap().into());
            let late = Duration::from_micros(observation.late_us);
            assert!(
                late + min_rtt + GRACE >= STALL + RTT,
                "{late:?}, {min_rtt:?}"
            );
        });
    }
}

#[test]
fn data_without_any_ack_waits_until_connection_end() {
    suppressed_setup().run_on_each_socket(|wire| {
        wire.sends("1:101 101:201");
        thread::sleep(STALL + RTT);
        wire.peer_resets();
        let observation = observation(wire);
        assert_eq!(
            (observation.segments, observation.late, observation.stalls),
            (2, 2, 2)
        );
        assert_eq!(observation.counters.segments(), 2);
    });
}

#[test]
fn reset_with_nothing_in_flight_is_not_cut_short() {
    suppressed_setup().run_on_each_socket(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.peer_resets();
        assert!(!observation(wire).is_aborted);
    });
}

#[test]
fn data_without_time_for_ack_before_end_is_not_measured() {
    let rtt = Duration::from_millis(600);
    let setup = Setup {
        rtt,
        ..suppressed_setup()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        // Keeps the minimum RTT unchanged, because it is the margin.
        thread::sleep(rtt);
        wire.ack(101);
        wire.sends("101:201");
        wire.end();
        assert_eq!(observation(wire).segments, 1);
    });
}

#[test]
fn segments_are_measured_after_2_gib_of_unparsed_packets() {
    let ip = Ip::V6;
    let setup = Setup {
        ip,
        mss: 65_000,
        ..suppressed_setup()
    };
    setup.run(|wire| {
        let ten = |wire: &mut Wire| {
            for start in (1..1001).step_by(100) {
                wire.sends(&format!("{start}:{}", start + 100));
            }
        };
        ten(wire);
        wire.ack(1001);
        assert_eq!(observation(wire).segments, 10);
        wire.transfer_unparsed((1 << 30) + (1 << 27));
        ten(wire);
        wire.ack(1001);
        assert_eq!(observation(wire).segments, 20);
    });
}

/// All data is acknowledged; only the FIN is in flight.
#[test]
fn reset_with_only_fin_in_flight_is_not_cut_short() {
    suppressed_setup().run_on_each_socket(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.shutdown();
        wire.expect("101:101F");
        wire.peer_resets();
        assert!(!observation(wire).is_aborted);
    });
}

/// The peer has closed and expects no more data, whether or not this end has closed too.
#[test]
fn connection_closed_by_peer_is_not_cut_short() {
    for closes in [false, true] {
        suppressed_setup().run_on_each_socket(|wire| {
            wire.sends("1:101");
            wire.peer_closes(101);
            wire.expect("101:101");
            wire.sends("101:201");
            if closes {
                wire.shutdown();
                wire.expect("201:201F");
            }
            wire.peer_resets();
            assert!(!observation(wire).is_aborted, "{closes}");
        });
    }
}

fn holding_back(holdback: Holdback) -> Bundler {
    Bundler::with_rules(&[Rule {
        holdback,
        ..Rule::all(unlimited())
    }])
}

fn setup_with_holdback(text: &str) -> Setup {
    Setup {
        rtt: RTT,
        bundlers: vec![holding_back(text.parse().unwrap())],
        observing: Some(Observing::by_holdback([1, 2])),
        ..Setup::default()
    }
}

#[test]
fn changed_holdback_assigns_connection_again() {
    setup_with_holdback("50%").run_on_each_socket(|wire| {
        wire.sends("1:101");
        let drawn = observation(wire);
        let half: Holdback = "50%".parse().unwrap();
        assert_eq!((drawn.arm, drawn.rule), (half.arm_of(drawn.unit), 1));
        wire.replace_rules(&holding_back(Holdback::ALL));
        wire.sends("101:201");
        let withdrawn = observation(wire);
        assert_eq!((withdrawn.arm, withdrawn.unit), (Arm::Plain, drawn.unit));
        wire.assert_outcomes(&[(Outcome::NothingOutstanding, 1), (Outcome::Suppressed, 1)]);
        wire.replace_rules(&holding_back(Holdback::default()));
        wire.sends("1:301");
    });
}

#[test]
fn rule_without_holdback_is_bundled_and_not_observed() {
    setup_with_holdback("0%").run_on_each_socket(|wire| {
        wire.sends("1:101 1:201");
        assert_eq!(wire.observations(), []);
    });
}
