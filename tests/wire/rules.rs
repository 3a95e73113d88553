//! Tests each condition of a rule, which rule decides, and how a rule change affects existing
//! connections.

use std::fs;

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding};
use pillion_bpf::host::pillion;
use pillion_bpf::{Direction, HELPER_PORTS, Mode, Options, Policy, Rule};
use pillion_tests::{Bundler, Ip, Opening, Setup, StateCounter, Wire, unlimited};

/// Bundles every connection without a limit.
fn rule() -> Rule {
    Rule::all(unlimited())
}

fn setup(opening: Opening, rules: &[Rule]) -> Setup {
    Setup {
        opening,
        bundlers: vec![Bundler::with_rules(rules)],
        ..Setup::default()
    }
}

/// Returns whether the rules cover the connection. The peer's port is 7777; the local port is 8888
/// if the peer opened the connection.
fn covers(opening: Opening, rules: &[Rule]) -> bool {
    let mut covered = false;
    setup(opening, rules).run(|wire| {
        wire.sends("1:101");
        covered = wire.totals().connections == 1;
    });
    covered
}

fn assert_covers(opening: Opening, rule: &Rule, expected: bool) {
    // Without root the test does not run.
    let expected = expected && nix::unistd::Uid::effective().is_root();
    let rules = std::slice::from_ref(rule);
    assert_eq!(covers(opening, rules), expected, "{rule:?}, {opening:?}");
}

#[test]
fn port_range_includes_both_ends() {
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
fn local_and_remote_ports_are_distinguished() {
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
fn network_covers_peers_of_its_own_family() {
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
        let variant = format!("{ip:?}, {peers}");
        let peers = vec![peers.parse().expect("a network")];
        let rule = Rule { peers, ..rule() };
        let setup = Setup {
            ip,
            ..setup(Opening::Active, &[rule])
        };
        setup.run(|wire| {
            wire.sends("1:101");
            let covered = wire.totals().connections == 1;
            assert_eq!(covered, expected, "{variant}");
        });
    }
}

#[test]
fn direction_covers_connections_opened_that_way() {
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
fn uid_covers_sockets_of_that_user() {
    for opening in [Opening::Active, Opening::Passive] {
        for (uid, expected) in [(0, true), (1000, false)] {
            let uid = Some(uid);
            assert_covers(opening, &Rule { uid, ..rule() }, expected);
        }
    }
}

#[test]
fn cgroup_covers_sockets_in_and_below_it() {
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
fn first_matching_rule_decides() {
    let limited = Rule::all(Options {
        max_packets: Some(1),
        ..unlimited()
    });
    let unmatched = Rule {
        ports: vec![1..=1],
        ..rule()
    };
    setup(Opening::Active, &[unmatched, limited, rule()]).run(|wire| {
        wire.sends("1:101 1:201 101:301 201:401");
    });
}

#[test]
fn never_rule_before_broad_rule_makes_exception() {
    let exception = |ports: &[u16]| Rule {
        ports: ports.iter().map(|port| *port..=*port).collect(),
        mode: Mode::Never,
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
fn last_rule_of_full_table_matches() {
    let unmatched = Rule {
        ports: vec![1..=1; Policy::MAX_ROWS - 1],
        ..rule()
    };
    setup(Opening::Active, &[unmatched, rule()]).run(|wire| wire.sends("1:101 1:201"));
}

#[test]
fn nothing_is_bundled_without_rules() {
    setup(Opening::Active, &[]).run(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(wire.totals().connections, 0);
    });
}

#[test]
fn direction_of_older_connection_is_unknown() {
    for direction in [Direction::Connect, Direction::Accept] {
        let direction = Some(direction);
        let mode = Mode::Never;
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
                wire.replace_rules(&Bundler::with_rules(&rules));
                wire.sends("1:101 101:201");
                assert_eq!(wire.totals().connections, 0);
            });
        }
    }
}

#[test]
fn replaced_rules_change_options_and_keep_history() {
    setup(Opening::Active, &[rule()]).run(|wire| {
        wire.sends("1:101 1:201 1:301");
        wire.replace_rules(&Bundler::with(Options {
            max_packets: Some(1),
            ..unlimited()
        }));
        wire.sends("201:401 301:501");
        wire.replace_rules(&Bundler::unlimited());
        // Segments that the rule for one previous segment did not need are erased.
        wire.sends("401:601 401:701");
        wire.assert_outcomes(&[(Bundled, 6), (NothingOutstanding, 1)]);
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn adopted_connection_keeps_direction_on_rule_change() {
    for (opening, direction) in [
        (Opening::Active, Direction::Connect),
        (Opening::Passive, Direction::Accept),
    ] {
        let direction = Some(direction);
        setup(opening, &[rule()]).run(|wire| {
            wire.sends("1:101 1:201");
            wire.replace_rules(&Bundler::with_rules(&[Rule {
                direction,
                ..rule()
            }]));
            wire.sends("1:301");
        });
    }
}

#[test]
fn uncovered_connection_is_released_and_can_return() {
    setup(Opening::Active, &[rule()]).run(|wire| {
        wire.sends("1:101 1:201");
        wire.replace_rules(&Bundler::with_rules(&[]));
        wire.sends("201:301 301:401");
        wire.replace_rules(&Bundler::unlimited());
        wire.sends("401:501 401:601");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1), (NoHistory, 1)]);
        assert_eq!(wire.totals().connections, 2);
    });
}

/// No other program requested callbacks for its states.
#[test]
fn never_rule_causes_no_state_callbacks_for_others() {
    /// A peer port that no other test uses, because the program sees all connections of the host.
    const PORT: u16 = 7991;
    let never_rule = Rule {
        mode: Mode::Never,
        ..rule()
    };
    for (rules, sees_states) in [(vec![never_rule], false), (vec![rule()], true)] {
        setup(Opening::Active, &rules).run(|wire| {
            let states = StateCounter::start(PORT);
            wire.reconnect(PORT);
            wire.sends("1:101");
            wire.reconnect(7777);
            assert_eq!(states.count() > 0, sees_states);
        });
    }
}

/// On these ports NAT boxes rewrite payload, separately in each of two overlapping segments.
#[test]
fn helper_ports_stay_plain_unless_named_by_rule() {
    let bundled = |wire: &mut Wire, port, rules: &[Rule]| {
        let before = wire.totals().connections;
        wire.replace_rules(&Bundler::with_rules(rules));
        wire.reconnect(port);
        wire.sends("1:101");
        wire.totals().connections > before
    };
    setup(Opening::Active, &[rule()]).run(|wire| {
        for port in HELPER_PORTS {
            let rule_for = |ports| Rule { ports, ..rule() };
            let range = port - 1..=port + 1;
            assert!(!bundled(wire, port, &[rule()]), "{port}");
            assert!(
                !bundled(wire, port, &[rule_for(vec![range.clone()])]),
                "{port}"
            );
            assert!(
                bundled(wire, port, &[rule_for(vec![range, port..=port])]),
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
fn application_requests_fail_on_helper_ports() {
    let allow = Mode::OnRequest(unlimited());
    let named = Rule {
        ports: vec![21..=21],
        mode: allow,
        ..rule()
    };
    for (bundler, expected) in [
        (Bundler::with_default(allow), Err(libc::EPERM)),
        (
            Bundler::with_rules(&[Rule {
                mode: allow,
                ..rule()
            }]),
            Err(libc::EPERM),
        ),
        (Bundler::with_rules(&[named]), Ok(())),
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
            assert_eq!(stats.state == pillion::REFUSED, expected.is_err());
            assert_eq!(wire.totals().connections, u64::from(expected.is_ok()));
            wire.reconnect(7777);
        });
    }
}
