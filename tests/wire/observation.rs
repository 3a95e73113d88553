//! What is observed of connections, and bundles that are held back meanwhile.

use std::thread;
use std::time::Duration;

use pillion_bpf::{Arm, Direction, DrawBy, LatencyBuckets, Observation, Observing, Outcome};
use pillion_tests::{Bundler, Ip, Setup, Wire};

const RTT: Duration = Duration::from_millis(20);
const GRACE: Duration = Duration::from_millis(10);
const STALL: Duration = Duration::from_millis(100);

fn observing(bundled_ppm: u32) -> Observing {
    Observing {
        bundled_ppm,
        key: [1, 2],
        draw_by: DrawBy::Peer,
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

fn held_back() -> Setup {
    setup(0)
}

/// The one connection.
fn seen(wire: &mut Wire) -> Observation {
    let mut all = wire.observations();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn ms(us: u64) -> u64 {
    us / 1000
}

#[test]
fn all_or_none_are_bundled_as_the_share_says() {
    setup(1_000_000).run_on_each_socket(|wire| {
        wire.sends("1:101 1:201");
        assert_eq!(seen(wire).arm, Arm::Bundled);
    });
    held_back().run_on_each_socket(|wire| {
        wire.sends("1:101 101:201 201:301");
        let seen = seen(wire);
        assert_eq!(seen.arm, Arm::Plain);
        assert_eq!((seen.held_back, seen.held_back_bytes), (2, 300));
        wire.assert_outcomes(&[(Outcome::NothingOutstanding, 1), (Outcome::HeldBack, 2)]);
    });
}

#[test]
fn ends_and_arm_are_the_connections_own() {
    for (ip, peer) in [(Ip::V4, "10.0.0.2"), (Ip::V6, "fd00::2")] {
        Setup { ip, ..held_back() }.run(|wire| {
            wire.sends("1:101");
            let seen = seen(wire);
            assert_eq!(seen.peer.ip(), peer.parse::<std::net::IpAddr>().unwrap());
            assert_eq!(seen.direction, Some(Direction::Connect));
            assert!(!seen.has_ended && seen.inode.is_some());
        });
    }
}

#[test]
fn latency_is_from_the_first_sending_to_the_ack_that_covers_it() {
    held_back().run_everywhere(|wire| {
        wire.sends("1:101");
        thread::sleep(2 * RTT);
        wire.sends("101:201");
        thread::sleep(RTT);
        wire.ack(201);
        let seen = seen(wire);
        assert_eq!(seen.segments, 2);
        let least: Duration = 4 * RTT;
        let latency = Duration::from_micros(seen.latency_us);
        assert!(least <= latency && latency < 4 * least, "{latency:?}");
        let rtt = u64::from(seen.rtt_min_us.expect("a sample"));
        assert!(ms(rtt) >= 20);
        assert!(seen.waited_us + 2 * rtt >= seen.latency_us);
        assert!(seen.waited_us + rtt <= seen.latency_us);
        let grace = GRACE.as_micros() as u64 * u64::from(seen.late);
        assert!(seen.late >= 1 && seen.late_us + grace <= seen.waited_us);
        assert_eq!(seen.latencies.counts().iter().sum::<u32>(), 2);
    });
}

#[test]
fn a_latency_stands_in_the_bucket_that_has_it() {
    held_back().run(|wire| {
        wire.sends("1:101");
        thread::sleep(3 * RTT);
        wire.ack(101);
        let seen = seen(wire);
        let counts = seen.latencies.counts();
        let bucket = counts.iter().position(|count| *count == 1).unwrap();
        assert!(LatencyBuckets::begin_us(bucket) <= seen.latency_us);
        assert!(seen.latency_us < LatencyBuckets::begin_us(bucket + 1));
    });
}

#[test]
fn a_segment_counts_once_however_its_acks_come() {
    held_back().run(|wire| {
        wire.sends("1:101 101:201");
        for ack in [51, 51, 101, 151, 201, 201] {
            wire.ack(ack);
        }
        assert_eq!(seen(wire).segments, 2);
    });
}

#[test]
fn what_waits_long_stalls() {
    held_back().run(|wire| {
        wire.sends("1:101");
        thread::sleep(STALL + RTT);
        wire.ack(101);
        wire.sends("101:201");
        wire.ack(201);
        let seen = seen(wire);
        assert_eq!((seen.segments, seen.stalls, seen.late), (2, 1, 1));
    });
}

#[test]
fn a_loss_is_repairable_by_the_bundle_that_followed() {
    let rto_min = Duration::from_millis(300);
    let setup = Setup {
        rto_min,
        ..held_back()
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        wire.ack_sack(1, "101:201");
        wire.expect("1:101");
        thread::sleep(2 * RTT);
        wire.ack(201);
        let seen = seen(wire);
        assert_eq!((seen.losses.segments, seen.losses.repairable), (1, 1));
        assert_eq!(seen.losses.unfollowed, 0);
        let losses = seen.losses;
        assert!(losses.saved_us > 0 && losses.saved_us <= losses.copies_saved_us);
        assert!(losses.copies_saved_us <= seen.latency_us);
        let again = seen.retransmitted;
        assert_eq!(again.fast + again.after_timeout + again.probes, 1);
    });
}

#[test]
fn what_nothing_followed_is_not_repairable() {
    let rto_min = Duration::from_millis(300);
    let setup = Setup {
        rto_min,
        ..held_back()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        wire.expect("1:101");
        wire.ack(101);
        let seen = seen(wire);
        assert_eq!((seen.losses.segments, seen.losses.unfollowed), (1, 1));
        assert_eq!((seen.losses.repairable, seen.losses.saved_us), (0, 0));
        // A copy would have had it, an RTT after it left: before the time-out.
        assert!(seen.losses.copies_saved_us > 200_000, "{seen:?}");
    });
}

#[test]
fn of_what_was_retransmitted_needlessly_each_segment_counts_once() {
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..held_back()
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201 201:301");
        // One packet with all that is lost, as far as TCP knows.
        wire.expect("1:301");
        wire.ack_duplicate(301, "1:201", "");
        wire.ack_duplicate(301, "1:301", "");
        let seen = seen(wire);
        assert_eq!((seen.losses.segments, seen.losses.needless), (3, 3));
    });
}

/// When it was sent is not known, and so whether it was late: it is in no count of losses.
#[test]
fn what_was_sent_before_it_was_observed_is_neither_lost_nor_needless() {
    let setup = Setup {
        bundlers: vec![],
        ..held_back()
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201 201:301 301:401");
        wire.attach(&Bundler::unlimited());
        wire.adopt();
        // By SACK: an emulated machine may take longer to attach than a time-out.
        wire.ack_sack(1, "101:401");
        wire.expect("1:101");
        wire.ack_duplicate(401, "1:101", "");
        wire.sends("401:501");
        wire.ack(501);
        let seen = seen(wire);
        assert_eq!((seen.losses.segments, seen.losses.needless), (0, 0));
        assert_eq!(seen.segments, 1);
    });
}

/// Whether its report comes behind the ACK, or with it.
#[test]
fn what_was_retransmitted_needlessly_was_not_repairable() {
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..held_back()
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
                assert_eq!(seen(wire).losses.repairable, 1);
            }
            wire.ack_duplicate(end, &first, "");
            let losses = seen(wire).losses;
            assert_eq!(losses.segments, losses.needless);
            assert_eq!(losses.repairable, 0);
        }
    });
}

#[test]
fn what_was_retransmitted_needlessly_counts_again_in_a_place_used_again() {
    const SLOTS: u32 = 128;
    let setup = Setup {
        rto_min: Duration::from_millis(300),
        ..held_back()
    };
    setup.run(|wire| {
        for round in 0..3 {
            let start = 1 + round * SLOTS * 10;
            let needless = format!("{start}:{}", start + 10);
            wire.sends(&needless);
            wire.expect(&needless);
            wire.ack_duplicate(start + 10, &needless, "");
            for end in (start + 20..=start + SLOTS * 10).step_by(10) {
                wire.sends(&format!("{}:{end}", end - 10));
                wire.ack(end);
            }
        }
        let seen = seen(wire);
        assert_eq!((seen.losses.segments, seen.losses.needless), (3, 3));
    });
}

#[test]
fn a_time_out_is_counted_each_time() {
    let rto_min = Duration::from_millis(100);
    let setup = Setup {
        rto_min,
        ..held_back()
    };
    setup.run(|wire| {
        wire.sends("1:101");
        // The first may be a probe of the tail.
        wire.expect("1:101 1:101 1:101");
        wire.ack(101);
        let seen = seen(wire);
        let again = seen.retransmitted;
        assert_eq!(seen.timeouts, again.after_timeout);
        assert_eq!((seen.timeouts + again.probes, again.fast), (3, 0));
        assert!(again.probes <= 1);
    });
}

#[test]
fn a_connection_that_has_ended_is_told_of_once() {
    held_back().run(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        let before = seen(wire);
        wire.reconnect(7000);
        let all = wire.observations();
        assert!(all.len() <= 1, "{all:?}");
        wire.sends("1:101");
        let after = seen(wire);
        assert_eq!(after.cookie, before.cookie);
        assert_eq!((after.peer.port(), after.segments), (7000, 0));
    });
}

/// Who gives up does so after the longest waits.
#[test]
fn what_is_not_acknowledged_at_the_end_has_waited_until_then() {
    for (end, is_cut) in [
        (Wire::end as fn(&mut Wire), false),
        (|wire: &mut Wire| wire.peer_resets(), true),
    ] {
        held_back().run_on_each_socket(|wire| {
            wire.sends("1:101 101:201");
            wire.ack(101);
            assert_eq!(seen(wire).segments, 1);
            thread::sleep(STALL + RTT);
            end(wire);
            let seen = seen(wire);
            assert_eq!((seen.segments, seen.late, seen.stalls), (2, 1, 1));
            assert_eq!(seen.is_cut, is_cut);
            let least = Duration::from_micros(seen.rtt_min_us.unwrap().into());
            let late = Duration::from_micros(seen.late_us);
            assert!(late + least + GRACE >= STALL + RTT, "{late:?}, {least:?}");
        });
    }
}

#[test]
fn of_a_connection_that_got_no_ack_all_has_waited_until_its_end() {
    held_back().run_on_each_socket(|wire| {
        wire.sends("1:101 101:201");
        thread::sleep(STALL + RTT);
        wire.peer_resets();
        let seen = seen(wire);
        assert_eq!((seen.segments, seen.late, seen.stalls), (2, 2, 2));
        assert_eq!(seen.counters.segments(), 2);
    });
}

#[test]
fn a_connection_that_is_reset_with_nothing_on_its_way_is_not_cut_short() {
    held_back().run_on_each_socket(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.peer_resets();
        assert!(!seen(wire).is_cut);
    });
}

#[test]
fn what_the_end_left_no_time_to_acknowledge_is_not_measured() {
    let rtt = Duration::from_millis(600);
    let setup = Setup { rtt, ..held_back() };
    setup.run(|wire| {
        wire.sends("1:101");
        // The least RTT stays what it is: it is the margin.
        thread::sleep(rtt);
        wire.ack(101);
        wire.sends("101:201");
        wire.end();
        assert_eq!(seen(wire).segments, 1);
    });
}

#[test]
fn segments_are_measured_after_any_number_of_bytes_whose_headers_could_not_be_read() {
    let ip = Ip::V6;
    let setup = Setup {
        ip,
        mss: 65_000,
        ..held_back()
    };
    setup.run(|wire| {
        let ten = |wire: &mut Wire| {
            for start in (1..1001).step_by(100) {
                wire.sends(&format!("{start}:{}", start + 100));
            }
        };
        ten(wire);
        wire.ack(1001);
        assert_eq!(seen(wire).segments, 10);
        wire.pass_unread((1 << 30) + (1 << 27));
        ten(wire);
        wire.ack(1001);
        assert_eq!(seen(wire).segments, 20);
    });
}

/// All data are acknowledged: what is on its way is the FIN alone.
#[test]
fn a_connection_that_is_reset_with_its_end_alone_on_its_way_is_not_cut_short() {
    held_back().run_on_each_socket(|wire| {
        wire.sends("1:101");
        wire.ack(101);
        wire.shutdown();
        wire.expect("101:101F");
        wire.peer_resets();
        assert!(!seen(wire).is_cut);
    });
}

/// The peer has closed, and wanted no more; whether this end has closed as well meanwhile or not.
#[test]
fn a_connection_that_the_peer_had_closed_is_not_cut_short() {
    for closes in [false, true] {
        held_back().run_on_each_socket(|wire| {
            wire.sends("1:101");
            wire.peer_closes(101);
            wire.expect("101:101");
            wire.sends("101:201");
            if closes {
                wire.shutdown();
                wire.expect("201:201F");
            }
            wire.peer_resets();
            assert!(!seen(wire).is_cut, "{closes}");
        });
    }
}
