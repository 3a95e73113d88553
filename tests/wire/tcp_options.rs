//! Tests TCP options: socket options that a rule sets on its connections.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{Backlog, SockaddrStorage, bind, listen};
use pillion_bpf::{Mode, Rule, TcpOption, TcpOptions, available_congestion_controls, list_flows};
use pillion_tests::{Bundler, Opening, Setup, Wire, sysctl, unlimited};

const LINEAR_TIMEOUTS: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS);
const NODELAY: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_NODELAY);
const QUICKACK: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_QUICKACK);
const USER_TIMEOUT: (i32, i32) = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);

const MS: Duration = Duration::from_millis(1);

fn none() -> TcpOptions {
    TcpOptions::default()
}

fn bundler(mode: Mode, tcp_options: TcpOptions) -> Bundler {
    Bundler::with_rules(&[Rule {
        mode,
        tcp_options,
        ..Rule::default()
    }])
}

/// Leaves the minimum RTO of the route unset.
fn setup(mode: Mode, tcp_options: TcpOptions) -> Setup {
    Setup {
        rto_min: Duration::ZERO,
        bundlers: vec![bundler(mode, tcp_options)],
        ..Setup::default()
    }
}

/// Runs a test with bundling on an active connection, and without bundling on a passive one.
fn run_with_and_without_bundling(tcp_options: TcpOptions, test: impl Fn(&mut Wire) + Sync) {
    setup(Mode::Bundle(unlimited()), tcp_options).run(&test);
    Setup {
        opening: Opening::Passive,
        ..setup(Mode::TcpOptions, tcp_options)
    }
    .run(&test);
}

/// Sends segments one by one, each acknowledged: the timeout approaches the minimum by a quarter of
/// the difference per RTT.
fn reach_minimum_rto(wire: &mut Wire) {
    for _ in 0..20 {
        send(wire);
        wire.ack(wire.written() + 1);
    }
}

/// Sends one segment after everything before it was acknowledged. Returns its range.
fn send(wire: &mut Wire) -> String {
    let start = wire.written() + 1;
    let segment = format!("{start}:{}", start + 100);
    wire.sends(&segment);
    segment
}

/// Returns the time that TCP takes to retransmit an unacknowledged segment `times` times.
fn time_retransmissions(wire: &mut Wire, times: usize) -> Duration {
    reach_minimum_rto(wire);
    let started_at = Instant::now();
    let segment = send(wire);
    for _ in 0..times {
        wire.expect(&segment);
    }
    started_at.elapsed()
}

#[test]
fn linear_timeouts_do_not_back_off() {
    let plain = TcpOptions {
        rto_min: Some(50 * MS),
        ..none()
    };
    setup(Mode::TcpOptions, plain).run(|wire| {
        // 50 + 100 + 200 + 400 ms.
        assert!(time_retransmissions(wire, 4) >= 750 * MS);
    });
    let linear = TcpOptions {
        linear_timeouts: true,
        ..plain
    };
    run_with_and_without_bundling(linear, |wire| {
        let time = time_retransmissions(wire, 4);
        assert!(time < 700 * MS, "{time:?}");
    });
}

#[test]
fn linear_timeouts_back_off_after_six() {
    let linear = TcpOptions {
        linear_timeouts: true,
        rto_min: Some(50 * MS),
        ..none()
    };
    setup(Mode::TcpOptions, linear).run(|wire| {
        // Seven times 50 ms, then 100 and 200 ms.
        assert!(time_retransmissions(wire, 9) >= 650 * MS);
    });
}

#[test]
fn linear_timeouts_back_off_with_four_packets_in_flight() {
    let linear = TcpOptions {
        linear_timeouts: true,
        rto_min: Some(50 * MS),
        ..none()
    };
    setup(Mode::TcpOptions, linear).run(|wire| {
        // Merged into one retransmission, small segments would count as one packet in flight.
        sysctl("net.ipv4.tcp_retrans_collapse", "0");
        reach_minimum_rto(wire);
        let started_at = Instant::now();
        let first = send(wire);
        (0..3).for_each(|_| drop(send(wire)));
        (0..4).for_each(|_| wire.expect(&first));
        assert!(started_at.elapsed() >= 750 * MS);
    });
}

/// To the kernel, BBR never leaves initial slow start.
#[test]
fn linear_timeouts_back_off_under_bbr() {
    if !available_congestion_controls()
        .iter()
        .any(|name| name == "bbr")
    {
        println!("left out: this kernel has no BBR");
        return;
    }
    let linear = TcpOptions {
        linear_timeouts: true,
        rto_min: Some(50 * MS),
        congestion: "bbr".parse().ok(),
        ..none()
    };
    setup(Mode::TcpOptions, linear).run(|wire| {
        assert!(time_retransmissions(wire, 4) >= 750 * MS);
    });
}

#[test]
fn nodelay_sends_small_segment_while_one_is_outstanding() {
    let nagle = |opening, mode, tcp_options| Setup {
        nodelay: false,
        opening,
        ..setup(mode, tcp_options)
    };
    let nodelay = TcpOptions {
        nodelay: true,
        ..none()
    };
    nagle(Opening::Active, Mode::TcpOptions, none()).run(|wire| {
        wire.sends("1:101");
        wire.write(100);
        wire.expect_nothing(100 * MS);
        wire.replace_rules(&bundler(Mode::TcpOptions, nodelay));
        wire.expect("101:201");
    });
    let sends_immediately = |wire: &mut Wire, ranges: &str| {
        wire.sends(ranges);
        assert_eq!(wire.option(NODELAY), 1);
    };
    let mode = Mode::Bundle(unlimited());
    nagle(Opening::Active, mode, nodelay).run(|wire| sends_immediately(wire, "1:101 1:201"));
    nagle(Opening::Passive, Mode::TcpOptions, nodelay)
        .run(|wire| sends_immediately(wire, "1:101 101:201"));
}

#[test]
fn minimum_rto_comes_from_rule() {
    let first = |wire: &mut Wire| {
        let time = time_retransmissions(wire, 1);
        wire.ack(wire.written() + 1);
        time
    };
    setup(Mode::TcpOptions, none()).run(|wire| assert!(first(wire) >= 200 * MS));
    let short = TcpOptions {
        rto_min: Some(20 * MS),
        ..none()
    };
    run_with_and_without_bundling(short, |wire| {
        let shortest = (0..3).map(|_| first(wire)).min().expect("three");
        assert!(shortest >= 20 * MS && shortest < 150 * MS, "{shortest:?}");
    });
}

/// Returns how long the kernel delays an ACK.
fn ack_delay(wire: &mut Wire) -> Duration {
    // Otherwise the kernel acknowledges the first data of a peer immediately.
    wire.set_option(QUICKACK, &0i32.to_ne_bytes());
    let started_at = Instant::now();
    wire.peer_sends(1, 0, 10);
    wire.expect("1:1");
    started_at.elapsed()
}

#[test]
fn delack_max_limits_ack_delay() {
    setup(Mode::TcpOptions, none()).run(|wire| assert!(ack_delay(wire) >= 35 * MS));
    let short = TcpOptions {
        delack_max: Some(TcpOptions::min_time()),
        ..none()
    };
    run_with_and_without_bundling(short, |wire| {
        let shortest = (0..5).map(|_| ack_delay(wire)).min().expect("five");
        assert!(shortest < 35 * MS, "{shortest:?}");
    });
}

#[test]
fn user_timeout_ends_connection_to_silent_peer() {
    let tcp_options = TcpOptions {
        user_timeout: Some(300 * MS),
        ..none()
    };
    run_with_and_without_bundling(tcp_options, |wire| {
        assert_eq!(wire.option(USER_TIMEOUT), 300);
        let started_at = Instant::now();
        wire.sends("1:101");
        let failure = wire.wait_for_failure();
        assert_eq!(failure.raw_os_error(), Some(libc::ETIMEDOUT), "{failure}");
        // The connection's clock may have ticked just before.
        assert!(started_at.elapsed() >= 250 * MS);
    });
}

#[test]
fn congestion_control_comes_from_rule() {
    let cubic = TcpOptions {
        congestion: "cubic".parse().ok(),
        ..none()
    };
    setup(Mode::TcpOptions, none()).run(|wire| assert_eq!(wire.congestion_control(), "reno"));
    run_with_and_without_bundling(cubic, |wire| {
        assert_eq!(wire.congestion_control(), "cubic");
        wire.sends("1:101");
    });
}

#[test]
fn refused_tcp_option_is_counted_and_others_are_set() {
    let tcp_options = TcpOptions {
        linear_timeouts: true,
        congestion: "nosuch".parse().ok(),
        ..none()
    };
    run_with_and_without_bundling(tcp_options, |wire| {
        assert_eq!(wire.congestion_control(), "reno");
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 1);
        let totals = wire.totals();
        let once = |tcp_option| [(tcp_option, 1)].into();
        assert_eq!(totals.tcp_options_set, once(TcpOption::LinearTimeouts));
        assert_eq!(totals.tcp_options_refused, once(TcpOption::Congestion));
    });
}

#[test]
fn connection_with_only_tcp_options_is_not_tracked() {
    let tcp_options = TcpOptions {
        linear_timeouts: true,
        ..none()
    };
    setup(Mode::TcpOptions, tcp_options).run(|wire| {
        wire.sends("1:101 101:201 201:301");
        wire.assert_outcomes(&[]);
        assert_eq!(wire.totals().connections, 0);
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 1);
    });
}

#[test]
fn kernel_defaults_stay_without_tcp_options() {
    setup(Mode::Bundle(unlimited()), none()).run(|wire| {
        assert_eq!(wire.option(LINEAR_TIMEOUTS), 0);
        assert_eq!(wire.option(USER_TIMEOUT), 0);
        assert!(wire.totals().tcp_options_set.is_empty());
    });
}

#[test]
fn review_sets_lasting_tcp_options_on_older_connection() {
    let tcp_options = TcpOptions {
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
    for mode in [Mode::Bundle(unlimited()), Mode::TcpOptions] {
        let setup = Setup {
            bundlers: vec![],
            ..setup(mode, none())
        };
        setup.run(|wire| {
            wire.attach(&bundler(mode, tcp_options));
            assert_eq!(wire.option(LINEAR_TIMEOUTS), 0);
            wire.adopt();
            assert_has(wire);
            wire.replace_rules(&Bundler::with_rules(&[]));
            assert_has(wire);
            wire.detach();
            assert_has(wire);
        });
    }
}

/// Accepted sockets would inherit the options, regardless of their own rule.
#[test]
fn review_sets_no_tcp_options_on_reused_listener() {
    let tcp_options = TcpOptions {
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
            tcp_options,
            ..Rule::all(unlimited())
        };
        wire.replace_rules(&Bundler::with_rules(&[rule]));
        assert_eq!(wire.option(USER_TIMEOUT), 0);
        assert!(wire.totals().tcp_options_set.is_empty());
    });
}

/// A peer port that no other test uses, because connections of all namespaces are listed.
const PORT: u16 = 7993;

#[test]
fn flows_list_tcp_options_of_each_connection() {
    let first = TcpOptions {
        rto_min: Some(20 * MS),
        congestion: "cubic".parse().ok(),
        ..none()
    };
    let second = TcpOptions {
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
        assert_eq!(listed().tcp_options, first);
        wire.replace_rules(&bundler(mode, second));
        let nodelay = true;
        assert_eq!(listed().tcp_options, TcpOptions { nodelay, ..first });
        assert_eq!(listed().tcp_options_refused, [TcpOption::Congestion]);
    });
}
