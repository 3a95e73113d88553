//! Companions: what the kernel does otherwise on a connection that has them.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, SockaddrStorage, bind, listen};
use pillion_bpf::{Companion, Companions, Mode, Rule, list_flows, offered_congestion_controls};
use pillion_tests::{Bundler, Opening, Setup, Wire, sysctl, unlimited};

const LINEAR_TIMEOUTS: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS);
const NODELAY: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
const QUICKACK: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_QUICKACK);
const USER_TIMEOUT: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);

const MS: Duration = Duration::from_millis(1);

fn none() -> Companions {
    Companions::default()
}

fn bundler(mode: Mode, companions: Companions) -> Bundler {
    Bundler::by(&[Rule {
        mode,
        companions,
        ..Rule::default()
    }])
}

/// The route says nothing of time-outs.
fn setup(mode: Mode, companions: Companions) -> Setup {
    Setup {
        rto_min: Duration::ZERO,
        bundlers: vec![bundler(mode, companions)],
        ..Setup::default()
    }
}

/// Beside bundling, and alone; on a connection that this end opens, and on one that the
/// peer opens.
fn run_everywhere(companions: Companions, test: impl Fn(&mut Wire) + Sync) {
    setup(Mode::Bundle(unlimited()), companions).run(&test);
    Setup {
        opening: Opening::Passive,
        ..setup(Mode::Companions, companions)
    }
    .run(&test);
}

/// One segment after the other, each acknowledged: time-outs come down to the minimum, by
/// a quarter of the difference with each RTT.
fn settle(wire: &mut Wire) {
    for _ in 0..20 {
        send(wire);
        wire.ack(wire.written() + 1);
    }
}

/// Sends one segment, with all before acknowledged; gives its range.
fn send(wire: &mut Wire) -> String {
    let start = wire.written() + 1;
    let segment = format!("{start}:{}", start + 100);
    wire.sends(&segment);
    segment
}

/// How long a segment to which the peer says nothing takes to be retransmitted so often.
fn time_of_retransmissions(wire: &mut Wire, times: usize) -> Duration {
    settle(wire);
    let begun = Instant::now();
    let segment = send(wire);
    for _ in 0..times {
        wire.expect(&segment);
    }
    begun.elapsed()
}

#[test]
fn linear_time_outs_do_not_double_where_plain_ones_do() {
    let plain = Companions {
        rto_min: Some(50 * MS),
        ..none()
    };
    setup(Mode::Companions, plain).run(|wire| {
        // 50 + 100 + 200 + 400.
        assert!(time_of_retransmissions(wire, 4) >= 750 * MS);
    });
    let linear = Companions {
        linear_timeouts: true,
        ..plain
    };
    run_everywhere(linear, |wire| {
        let time = time_of_retransmissions(wire, 4);
        assert!(time < 700 * MS, "{time:?}");
    });
}

#[test]
fn after_six_linear_time_outs_they_double_again() {
    let linear = Companions {
        linear_timeouts: true,
        rto_min: Some(50 * MS),
        ..none()
    };
    setup(Mode::Companions, linear).run(|wire| {
        // Seven of 50, then 100 and 200.
        assert!(time_of_retransmissions(wire, 9) >= 650 * MS);
    });
}

#[test]
fn with_four_packets_in_flight_time_outs_double() {
    let linear = Companions {
        linear_timeouts: true,
        rto_min: Some(50 * MS),
        ..none()
    };
    setup(Mode::Companions, linear).run(|wire| {
        // Small segments retransmitted in one would be but one in flight.
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        settle(wire);
        let begun = Instant::now();
        let first = send(wire);
        (0..3).for_each(|_| drop(send(wire)));
        (0..4).for_each(|_| wire.expect(&first));
        assert!(begun.elapsed() >= 750 * MS);
    });
}

/// BBR never leaves initial slow start, as the kernel tells that.
#[test]
fn with_bbr_time_outs_double() {
    if !offered_congestion_controls()
        .iter()
        .any(|name| name == "bbr")
    {
        println!("left out: this kernel has no BBR");
        return;
    }
    let linear = Companions {
        linear_timeouts: true,
        rto_min: Some(50 * MS),
        congestion: "bbr".parse().ok(),
        ..none()
    };
    setup(Mode::Companions, linear).run(|wire| {
        assert!(time_of_retransmissions(wire, 4) >= 750 * MS);
    });
}

#[test]
fn nodelay_lets_a_small_segment_leave_while_one_is_outstanding() {
    let nagle = |opening, mode, companions| Setup {
        nodelay: false,
        opening,
        ..setup(mode, companions)
    };
    let nodelay = Companions {
        nodelay: true,
        ..none()
    };
    nagle(Opening::Active, Mode::Companions, none()).run(|wire| {
        wire.sends("1:101");
        wire.write(100);
        wire.expect_nothing(100 * MS);
        wire.replace_rules(&bundler(Mode::Companions, nodelay));
        wire.expect("101:201");
    });
    let at_once = |wire: &mut Wire, ranges: &str| {
        wire.sends(ranges);
        assert_eq!(wire.option(NODELAY), 1);
    };
    let mode = Mode::Bundle(unlimited());
    nagle(Opening::Active, mode, nodelay).run(|wire| at_once(wire, "1:101 1:201"));
    nagle(Opening::Passive, Mode::Companions, nodelay).run(|wire| at_once(wire, "1:101 101:201"));
}

#[test]
fn the_minimum_rto_is_that_of_the_rule() {
    let first = |wire: &mut Wire| {
        let time = time_of_retransmissions(wire, 1);
        wire.ack(wire.written() + 1);
        time
    };
    setup(Mode::Companions, none()).run(|wire| assert!(first(wire) >= 200 * MS));
    let short = Companions {
        rto_min: Some(20 * MS),
        ..none()
    };
    run_everywhere(short, |wire| {
        let shortest = (0..3).map(|_| first(wire)).min().expect("three");
        assert!(shortest >= 20 * MS && shortest < 150 * MS, "{shortest:?}");
    });
}

/// How long the kernel's end waits before it acknowledges.
fn delay_of_ack(wire: &mut Wire) -> Duration {
    // What a peer sends first is acknowledged at once otherwise.
    wire.set_option(QUICKACK, &0i32.to_ne_bytes());
    let begun = Instant::now();
    wire.peer_sends(1, 0, 10);
    wire.expect("1:1");
    begun.elapsed()
}

#[test]
fn delack_max_limits_how_long_this_end_delays_an_ack() {
    setup(Mode::Companions, none()).run(|wire| assert!(delay_of_ack(wire) >= 35 * MS));
    let short = Companions {
        delack_max: Some(Companions::shortest()),
        ..none()
    };
    run_everywhere(short, |wire| {
        let shortest = (0..5).map(|_| delay_of_ack(wire)).min().expect("five");
        assert!(shortest < 35 * MS, "{shortest:?}");
    });
}

#[test]
fn the_user_time_out_ends_a_connection_whose_peer_says_nothing() {
    let companions = Companions {
        user_timeout: Some(300 * MS),
        ..none()
    };
    run_everywhere(companions, |wire| {
        assert_eq!(wire.option(USER_TIMEOUT), 300);
        let begun = Instant::now();
        wire.sends("1:101");
        let failure = wire.failure();
        assert_eq!(failure.raw_os_error(), Some(libc::ETIMEDOUT), "{failure}");
        // The clock of the connection may have ticked just before.
        assert!(begun.elapsed() >= 250 * MS);
    });
}

#[test]
fn a_connection_has_the_congestion_control_of_its_rule() {
    let cubic = Companions {
        congestion: "cubic".parse().ok(),
        ..none()
    };
    setup(Mode::Companions, none()).run(|wire| assert_eq!(wire.congestion_control(), "reno"));
    run_everywhere(cubic, |wire| {
        assert_eq!(wire.congestion_control(), "cubic");
        wire.sends("1:101");
    });
}

#[test]
fn what_the_kernel_refuses_is_counted_and_named_and_the_rest_holds() {
    let companions = Companions {
        linear_timeouts: true,
        congestion: "nosuch".parse().ok(),
        ..none()
    };
    run_everywhere(companions, |wire| {
        assert_eq!(wire.congestion_control(), "reno");
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 1);
        let totals = wire.totals();
        let once = |companion| [(companion, 1)].into();
        assert_eq!(totals.companions_set, once(Companion::LinearTimeouts));
        assert_eq!(totals.companions_refused, once(Companion::Congestion));
    });
}

#[test]
fn a_connection_with_companions_alone_is_not_bundled_nor_followed() {
    let companions = Companions {
        linear_timeouts: true,
        ..none()
    };
    setup(Mode::Companions, companions).run(|wire| {
        wire.sends("1:101 101:201 201:301");
        wire.assert_outcomes(&[]);
        assert_eq!(wire.totals().connections, 0);
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 1);
    });
}

#[test]
fn without_companions_socket_options_are_the_kernels_own() {
    setup(Mode::Bundle(unlimited()), none()).run(|wire| {
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 0);
        assert_eq!(wire.option(USER_TIMEOUT), 0);
        assert!(wire.totals().companions_set.is_empty());
    });
}

#[test]
fn an_older_connection_gets_companions_at_review_and_keeps_them() {
    let companions = Companions {
        linear_timeouts: true,
        user_timeout: Some(1234 * MS),
        congestion: "cubic".parse().ok(),
        ..none()
    };
    let assert_has = |wire: &Wire| {
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 1);
        assert_eq!(wire.option(USER_TIMEOUT), 1234);
        assert_eq!(wire.congestion_control(), "cubic");
    };
    for mode in [Mode::Bundle(unlimited()), Mode::Companions] {
        let setup = Setup {
            bundlers: vec![],
            ..setup(mode, none())
        };
        setup.run(|wire| {
            wire.attach(&bundler(mode, companions));
            assert_eq!(wire.option(LINEAR_TIMEOUTS), 0);
            wire.adopt();
            assert_has(wire);
            wire.replace_rules(&Bundler::by(&[]));
            assert_has(wire);
            wire.detach();
            assert_has(wire);
        });
    }
}

/// The sockets that it returns would have them, whatever their own rule says.
#[test]
fn a_socket_that_listens_once_its_connection_has_ended_gets_no_companions_at_review() {
    let companions = Companions {
        user_timeout: Some(1234 * MS),
        ..none()
    };
    setup(Mode::Bundle(unlimited()), none()).run(|wire| {
        wire.sends("1:101 1:201");
        wire.end();
        let socket = wire.socket().try_clone_to_owned().expect("a handle");
        let end = SockaddrStorage::from(SocketAddr::from(([0, 0, 0, 0], 8999)));
        bind(socket.as_raw_fd(), &end).expect("a port");
        listen(&socket, Backlog::new(1).expect("one")).expect("it listens");
        let rule = Rule {
            local_ports: vec![8999..=8999],
            companions,
            ..Rule::all(unlimited())
        };
        wire.replace_rules(&Bundler::by(&[rule]));
        assert_eq!(wire.option(USER_TIMEOUT), 0);
        assert!(wire.totals().companions_set.is_empty());
    });
}

/// A peer's port that no other test uses: all namespaces' connections are listed.
const PORT: u16 = 7993;

#[test]
fn the_list_of_connections_says_which_companions_each_has() {
    let first = Companions {
        rto_min: Some(20 * MS),
        congestion: "cubic".parse().ok(),
        ..none()
    };
    let second = Companions {
        nodelay: true,
        congestion: "nosuch".parse().ok(),
        ..none()
    };
    let mode = Mode::Bundle(unlimited());
    setup(mode, first).run(|wire| {
        wire.reconnect(PORT);
        let listed = || {
            let flows = list_flows().expect("the list");
            let found = flows.into_iter().find(|flow| flow.peer.port() == PORT);
            found.expect("the connection is listed")
        };
        assert_eq!(listed().companions, first);
        wire.replace_rules(&bundler(mode, second));
        let nodelay = true;
        assert_eq!(listed().companions, Companions { nodelay, ..first });
        assert_eq!(listed().companions_refused, [Companion::Congestion]);
    });
}
