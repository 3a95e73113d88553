//! What each condition of a rule matches, which rule decides, and what a change of the
//! rules does to connections that exist.

use std::fs;

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding};
use pillion_bpf::host::pillion;
use pillion_bpf::{Direction, HELPER_PORTS, Mode, Options, Policy, Rule};
use pillion_tests::{Bundler, Ip, Opening, Setup, States, Wire, unlimited};

/// To bundle all, without a limit.
fn rule() -> Rule {
    Rule::all(unlimited())
}

fn setup(opening: Opening, rules: &[Rule]) -> Setup {
    Setup {
        opening,
        bundlers: vec![Bundler::by(rules)],
        ..Setup::default()
    }
}

/// The peer's port is 7777; that of this end is 8888 if the peer opened the connection.
fn covers(opening: Opening, rules: &[Rule]) -> bool {
    let mut covered = false;
    setup(opening, rules).run(|wire| {
        wire.sends("1:101");
        covered = wire.totals().connections == 1;
    });
    covered
}

fn assert_covers(opening: Opening, rule: &Rule, expected: bool) {
    // Without root there is no wire.
    let expected = expected && nix::unistd::Uid::effective().is_root();
    let rules = std::slice::from_ref(rule);
    assert_eq!(covers(opening, rules), expected, "{rule:?}, {opening:?}");
}

#[test]
fn a_port_range_includes_both_its_ends() {
    for (ports, expected) in [
        (7777..=7777, true),
        (7000..=7777, true),
        (7777..=8000, true),
        (7000..=7776, false),
        (7778..=8000, false),
        (0..=65535, true),
    ] {
        let ports = vec![ports];
        assert_covers(Opening::Active, &Rule { ports, ..rule() }, expected);
    }
}

#[test]
fn local_and_remote_ports_are_told_apart() {
    for (local, remote, expected) in [
        (None, Some(7777), true),
        (Some(8888), None, true),
        (Some(8888), Some(7777), true),
        (Some(7777), None, false),
        (None, Some(8888), false),
        (Some(8888), Some(7778), false),
    ] {
        let ports = |port: Option<u16>| port.map(|port| port..=port).into_iter().collect();
        let rule = Rule {
            local_ports: ports(local),
            remote_ports: ports(remote),
            ..rule()
        };
        assert_covers(Opening::Passive, &rule, expected);
    }
}

#[test]
fn a_network_covers_peers_of_its_own_family() {
    for (ip, peers, expected) in [
        (Ip::V6, "::/0", true),
        (Ip::V6, "0.0.0.0/0", false),
        (Ip::V4, "0.0.0.0/0", true),
        (Ip::V4, "::/0", false),
        (Ip::V4, "::/64", false),
        (Ip::V4, "::ffff:10.0.0.0/104", true),
        (Ip::Mapped, "::/0", false),
        (Ip::Mapped, "10.0.0.0/8", true),
    ] {
        let told = format!("{ip:?}, {peers}");
        let peers = vec![peers.parse().expect("a network")];
        let rule = Rule { peers, ..rule() };
        let setup = Setup {
            ip,
            ..setup(Opening::Active, &[rule])
        };
        setup.run(|wire| {
            wire.sends("1:101");
            let covered = wire.totals().connections == 1;
            assert_eq!(covered, expected, "{told}");
        });
    }
}

#[test]
fn a_direction_covers_the_connections_opened_so() {
    for (opening, direction, expected) in [
        (Opening::Active, Direction::Connect, true),
        (Opening::Active, Direction::Accept, false),
        (Opening::Passive, Direction::Accept, true),
        (Opening::Passive, Direction::Connect, false),
    ] {
        let direction = Some(direction);
        assert_covers(
            opening,
            &Rule {
                direction,
                ..rule()
            },
            expected,
        );
    }
}

#[test]
fn a_uid_covers_that_users_sockets() {
    for opening in [Opening::Active, Opening::Passive] {
        for (uid, expected) in [(0, true), (1000, false)] {
            let uid = Some(uid);
            assert_covers(opening, &Rule { uid, ..rule() }, expected);
        }
    }
}

#[test]
fn a_cgroup_covers_the_sockets_of_its_processes_and_of_those_below_it() {
    if !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let memberships = fs::read_to_string("/proc/self/cgroup").expect("/proc/self/cgroup");
    let own = memberships
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .expect("cgroup v2");
    for opening in [Opening::Active, Opening::Passive] {
        for (name, expected) in [(own, true), ("/", true), ("/pillion-none", false)] {
            let cgroups = vec![name.parse().expect("a cgroup's name")];
            assert_covers(opening, &Rule { cgroups, ..rule() }, expected);
        }
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let limited = Rule::all(Options {
        max_packets: Some(1),
        ..unlimited()
    });
    let elsewhere = Rule {
        ports: vec![1..=1],
        ..rule()
    };
    setup(Opening::Active, &[elsewhere, limited, rule()]).run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
    });
}

#[test]
fn a_rule_to_leave_alone_before_a_broad_one_makes_an_exception() {
    let exception = |ports: &[u16]| Rule {
        ports: ports.iter().map(|port| *port..=*port).collect(),
        mode: Mode::LeaveAlone,
        ..rule()
    };
    setup(Opening::Active, &[exception(&[1, 7777]), rule()]).run(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(wire.totals().connections, 0);
    });
    setup(Opening::Active, &[exception(&[1, 7778]), rule()]).run(|wire| {
        wire.sends("1:101 1:201");
    });
}

#[test]
fn the_last_of_a_full_table_of_rules_is_looked_at() {
    let elsewhere = Rule {
        ports: vec![1..=1; Policy::MAX_ROWS - 1],
        ..rule()
    };
    setup(Opening::Active, &[elsewhere, rule()]).run(|wire| wire.sends("1:101 1:201"));
}

#[test]
fn without_a_rule_nothing_is_bundled() {
    setup(Opening::Active, &[]).run(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(wire.totals().connections, 0);
    });
}

#[test]
fn of_an_older_connection_a_direction_is_not_known() {
    for direction in [Direction::Connect, Direction::Accept] {
        let direction = Some(direction);
        let mode = Mode::LeaveAlone;
        for rules in [
            vec![Rule {
                direction,
                ..rule()
            }],
            vec![
                Rule {
                    direction,
                    mode,
                    ..rule()
                },
                rule(),
            ],
        ] {
            setup(Opening::Active, &[]).run(|wire| {
                wire.replace_rules(&Bundler::by(&rules));
                wire.sends("1:101 101:201");
                assert_eq!(wire.totals().connections, 0);
            });
        }
    }
}

#[test]
fn other_rules_change_the_options_of_a_connection_that_keeps_its_history() {
    setup(Opening::Active, &[rule()]).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.replace_rules(&Bundler::with(Options {
            max_packets: Some(1),
            ..unlimited()
        }));
        wire.sends("201:401 301:501");
        wire.replace_rules(&Bundler::unlimited());
        wire.sends("1:601");
        wire.assert_outcomes(&[(Bundled, 5), (NothingOutstanding, 1)]);
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn a_connection_taken_in_keeps_its_direction_when_the_rules_change() {
    for (opening, direction) in [
        (Opening::Active, Direction::Connect),
        (Opening::Passive, Direction::Accept),
    ] {
        let direction = Some(direction);
        setup(opening, &[rule()]).run(|wire| {
            wire.sends("1:101 1:201");
            wire.replace_rules(&Bundler::by(&[Rule {
                direction,
                ..rule()
            }]));
            wire.sends("1:301");
        });
    }
}

#[test]
fn a_connection_no_longer_covered_is_let_go_and_may_be_taken_in_again() {
    setup(Opening::Active, &[rule()]).run(|wire| {
        wire.sends("1:101 1:201");
        wire.replace_rules(&Bundler::by(&[]));
        wire.sends("201:301 301:401");
        wire.replace_rules(&Bundler::unlimited());
        wire.sends("401:501 401:601");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (NoHistory, 1)]);
        assert_eq!(wire.totals().connections, 2);
    });
}

/// Its states are nothing that other programs had asked for.
#[test]
fn of_what_a_rule_leaves_alone_other_programs_are_told_nothing() {
    /// A peer's port that no other test uses: all connections of the host meet the program.
    const PORT: u16 = 7991;
    let left_alone = Rule {
        mode: Mode::LeaveAlone,
        ..rule()
    };
    for (rules, is_told) in [(vec![left_alone], false), (vec![rule()], true)] {
        setup(Opening::Active, &rules).run(|wire| {
            let states = States::begin(PORT);
            wire.reconnect(PORT);
            wire.sends("1:101");
            wire.reconnect(7777);
            assert_eq!(states.told() > 0, is_told);
        });
    }
}

/// NAT boxes rewrite payload there, of each of two segments that overlap on its own.
#[test]
fn helper_ports_are_left_alone_unless_a_rule_names_them() {
    let bundled = |wire: &mut Wire, port, rules: &[Rule]| {
        let before = wire.totals().connections;
        wire.replace_rules(&Bundler::by(rules));
        wire.reconnect(port);
        wire.sends("1:101");
        wire.totals().connections > before
    };
    setup(Opening::Active, &[rule()]).run(|wire| {
        for port in HELPER_PORTS {
            let of = |ports| Rule { ports, ..rule() };
            let range = port - 1..=port + 1;
            assert!(!bundled(wire, port, &[rule()]), "{port}");
            assert!(!bundled(wire, port, &[of(vec![range.clone()])]), "{port}");
            assert!(
                bundled(wire, port, &[of(vec![range, port..=port])]),
                "{port}"
            );
            let remote_ports = vec![port..=port];
            let remote = Rule {
                remote_ports,
                ..rule()
            };
            assert!(bundled(wire, port, &[remote]), "{port}");
            assert!(bundled(wire, port + 1, &[rule()]), "{port}");
        }
    });
}

#[test]
fn applications_are_refused_on_helper_ports() {
    let allow = Mode::Allow(unlimited());
    let named = Rule {
        ports: vec![21..=21],
        mode: allow,
        ..rule()
    };
    for (bundler, expected) in [
        (Bundler::always(allow), Err(libc::EPERM)),
        (
            Bundler::by(&[Rule {
                mode: allow,
                ..rule()
            }]),
            Err(libc::EPERM),
        ),
        (Bundler::by(&[named]), Ok(())),
    ] {
        let bundlers = vec![bundler];
        let setup = Setup {
            bundlers,
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.reconnect(21);
            let set = pillion::set(&wire.socket(), pillion::BUNDLE, 1);
            assert_eq!(set.map_err(|error| error.raw_os_error().unwrap()), expected);
            wire.sends("1:101");
            let stats = pillion::stats(&wire.socket()).unwrap();
            assert_eq!(stats.standing == pillion::REFUSED, expected.is_err());
            assert_eq!(wire.totals().connections, u64::from(expected.is_ok()));
            wire.reconnect(7777);
        });
    }
}
