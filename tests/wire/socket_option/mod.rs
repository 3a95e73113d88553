//! Tests the application's socket option: when its socket starts and stops bundling, and the
//! results that it reads.

mod memory;
mod values;

use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding};
use pillion_bpf::host::pillion::{self, BUNDLE, MAX_BYTES, MAX_PACKETS, MODE};
use pillion_bpf::{Direction, Level, LossRule, Mode, Options, Reaction, Rule};
use pillion_tests::{Bundler, Ip, Opening, Setup, Wire, isolated, sysctl, unlimited};

fn under(bundler: Bundler) -> Setup {
    Setup {
        bundlers: vec![bundler],
        ..Setup::default()
    }
}

/// Has no rules: the application decides.
fn allowed() -> Setup {
    under(Bundler::with_default(Mode::OnRequest(unlimited())))
}

fn rule(mode: Mode) -> Rule {
    Rule {
        mode,
        ..Rule::default()
    }
}

fn set(wire: &Wire, option: i32, value: i32) {
    pillion::set(&wire.socket(), option, value).expect("the option is set");
}

fn get(wire: &Wire, option: i32) -> i32 {
    pillion::get(&wire.socket(), option).expect("the option is read")
}

fn stats(wire: &Wire) -> pillion::Stats {
    pillion::stats(&wire.socket()).expect("the statistics are read")
}

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    let error = result.expect_err("it is refused");
    error.raw_os_error().expect("by the kernel")
}

#[test]
fn application_switches_bundling_on_and_off() {
    allowed().run_on_each_socket(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(get(wire, BUNDLE), 0);
        set(wire, BUNDLE, 1);
        assert_eq!(get(wire, BUNDLE), 1);
        wire.sends("201:301 201:401 201:501");
        set(wire, BUNDLE, 0);
        assert_eq!(get(wire, BUNDLE), 0);
        wire.sends("501:601 601:701");
        set(wire, BUNDLE, 1);
        wire.sends("701:801 701:901");
        wire.assert_outcomes(&[(Bundled, 3), (NoHistory, 2)]);
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn request_before_connect_or_listen_holds_from_first_byte() {
    for opening in [Opening::Active, Opening::Passive] {
        for ip in [Ip::V4, Ip::V6] {
            let tcp_options = vec![(MAX_PACKETS, 1), (BUNDLE, 1)];
            let setup = Setup {
                ip,
                opening,
                tcp_options,
                ..allowed()
            };
            setup.run(|wire| {
                wire.sends("1:101 1:201 101:301");
                assert_eq!(get(wire, BUNDLE), 1);
                assert_eq!(stats(wire).state, pillion::BY_APPLICATION);
            });
        }
    }
}

#[test]
fn fast_open_connection_is_switched_during_handshake() {
    allowed().run(|wire| {
        wire.accept_with_data(7778, 10);
        set(wire, BUNDLE, 1);
        assert_eq!(get(wire, BUNDLE), 1);
        wire.sends("1:101 1:201");
        set(wire, BUNDLE, 0);
        wire.sends("201:301");
        assert_eq!(stats(wire).bundled, 1);
    });
}

#[test]
fn application_can_decline_bundling() {
    for opening in [Opening::Active, Opening::Passive] {
        let setup = Setup {
            opening,
            tcp_options: vec![(BUNDLE, 0)],
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101 101:201");
            assert_eq!(wire.totals().connections, 0);
            assert_eq!(stats(wire).state, pillion::OFF);
            set(wire, BUNDLE, 1);
            wire.sends("201:301 201:401");
            assert_eq!(stats(wire).state, pillion::BY_RULE);
        });
    }
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        set(wire, BUNDLE, 0);
        wire.sends("201:301");
    });
}

#[test]
fn request_against_rules_is_not_permitted() {
    let refused = rule(Mode::Never);
    let unmatched = Rule {
        ports: vec![1..=1],
        ..rule(Mode::Bundle(unlimited()))
    };
    for bundler in [
        Bundler::with_rules(&[]),
        Bundler::with_rules(&[unmatched]),
        Bundler {
            rules: vec![refused],
            default_mode: Mode::OnRequest(unlimited()),
        },
    ] {
        let number = u32::from(matches!(bundler.default_mode, Mode::OnRequest(_)));
        under(bundler).run(|wire| {
            let on = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(errno(on), libc::EPERM);
            set(wire, BUNDLE, 0);
            wire.sends("1:101 101:201");
            assert_eq!(get(wire, BUNDLE), 0);
            assert_eq!(stats(wire).state, pillion::REFUSED);
            assert_eq!(stats(wire).rule, number);
            assert_eq!(wire.totals().connections, 0);
        });
    }
}

/// With overlapping segments, an MPTCP receiver on Linux reads bytes twice and then stalls.
#[test]
fn passive_mptcp_connection_is_never_bundled() {
    for ip in [Ip::V4, Ip::V6, Ip::Mapped] {
        for timestamps in [false, true] {
            let setup = Setup {
                ip,
                timestamps,
                opening: Opening::Passive,
                multipath: true,
                ..Setup::default()
            };
            setup.run(|wire| {
                wire.sends("1:101 101:201");
                assert_eq!(get(wire, BUNDLE), 0);
                let on = pillion::set(&wire.socket(), BUNDLE, 1);
                assert_eq!(errno(on), libc::EPERM);
                assert_eq!(stats(wire).state, pillion::REFUSED);
                wire.sends("201:301 301:401");
                wire.replace_rules(&Bundler::with_rules(&[]));
                wire.replace_rules(&Bundler::unlimited());
                wire.sends("401:501 501:601");
                wire.assert_outcomes(&[]);
                // The next connection of that socket is opened by this end.
                wire.reconnect(7778);
                wire.sends("1:101 1:201");
            });
        }
    }
}

/// The SYNs evict the record of the peer's SYN, so its options are unknown.
#[test]
fn connection_without_syn_record_is_not_bundled() {
    for multipath in [true, false] {
        let setup = Setup {
            opening: Opening::Passive,
            multipath,
            spoofed_syns: 6000,
            ..Setup::default()
        };
        setup.run(|wire| {
            // If the SYNs take seconds, the kernel repeats its SYN-ACK and starts with a window of
            // one segment.
            wire.sends("1:101");
            wire.ack(101);
            wire.sends("101:201 201:301");
            wire.ack(301);
            let on = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(errno(on), libc::EPERM);
            wire.sends("301:401 401:501");
        });
    }
}

/// The SYN record is read at establishment, not when the first packet leaves.
#[test]
fn later_syns_do_not_prevent_bundling() {
    let setup = Setup {
        opening: Opening::Passive,
        ..Setup::default()
    };
    setup.run(|wire| {
        let listener = TcpListener::bind("0.0.0.0:8889").expect("a listener");
        wire.flood_syns(8889, 6000);
        drop(listener);
        wire.sends("1:101 1:201");
    });
}

#[test]
fn new_process_bundles_no_passive_mptcp_connection() {
    for multipath in [true, false] {
        let setup = Setup {
            opening: Opening::Passive,
            multipath,
            // A long RTO: nothing may be retransmitted while the bundler starts.
            rtt: Duration::from_millis(900),
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101");
            wire.hand_over(&Bundler::unlimited());
            wire.sends("101:201");
            wire.sends(if multipath { "201:301" } else { "101:301" });
        });
    }
}

#[test]
fn early_request_fails_only_if_no_rule_allows_it() {
    let request_early = |wire: &Wire| {
        let socket = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        );
        let socket = socket.expect("a socket");
        let result = pillion::set(&socket, BUNDLE, 1);
        assert_eq!(wire.totals().connections, 0);
        result.map(|()| pillion::get(&socket, BUNDLE).expect("the request"))
    };
    under(Bundler::with_rules(&[])).run(|wire| assert_eq!(errno(request_early(wire)), libc::EPERM));
    let unmatched = Rule {
        ports: vec![1..=1],
        ..rule(Mode::OnRequest(unlimited()))
    };
    under(Bundler::with_rules(&[unmatched]))
        .run(|wire| assert_eq!(request_early(wire).expect("stored"), 1));
    let setup = Setup {
        tcp_options: vec![(BUNDLE, 1)],
        ..under(Bundler {
            rules: vec![rule(Mode::Never)],
            default_mode: Mode::OnRequest(unlimited()),
        })
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(get(wire, BUNDLE), 0);
    });
}

#[test]
fn on_request_rule_checks_direction() {
    for (opening, direction, allowed) in [
        (Opening::Active, Direction::Connect, true),
        (Opening::Active, Direction::Accept, false),
        (Opening::Passive, Direction::Accept, true),
        (Opening::Passive, Direction::Connect, false),
    ] {
        let rules = [Rule {
            direction: Some(direction),
            ..rule(Mode::OnRequest(unlimited()))
        }];
        let setup = Setup {
            opening,
            ..under(Bundler::with_rules(&rules))
        };
        setup.run(|wire| {
            wire.sends("1:101");
            let request = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(request.is_ok(), allowed);
            assert_eq!(stats(wire).rule, u32::from(allowed));
            wire.sends(if allowed {
                "101:201 101:301"
            } else {
                "101:201 201:301"
            });
        });
    }
}

#[test]
fn application_can_lower_but_not_raise_limits() {
    let rule_options = Options {
        max_packets: Some(2),
        max_bytes: 400,
        reaction: Some(Reaction::TfrcSp),
        ..unlimited()
    };
    under(Bundler::with(rule_options)).run(|wire| {
        set(wire, MAX_PACKETS, 1);
        wire.sends("1:101 1:201 101:301");
        set(wire, MAX_PACKETS, 100);
        // Up to now one previous segment was enough, so that the others are erased.
        wire.sends("201:401 201:501");
        assert_eq!(get(wire, MAX_PACKETS), 2);
        set(wire, MAX_BYTES, 200);
        wire.sends("401:601");
        assert_eq!(get(wire, MAX_BYTES), 200);
        set(wire, MAX_BYTES, 100_000);
        assert_eq!(get(wire, MAX_BYTES), 400);
        set(wire, MAX_BYTES, 0);
        assert_eq!(get(wire, MAX_BYTES), 400);
        assert_eq!(get(wire, MODE), 0);
        set(wire, MODE, pillion::WAIT_FOR_LOSS);
        wire.sends("601:701");
        assert_eq!(get(wire, MODE), pillion::WAIT_FOR_LOSS);
        set(wire, MODE, pillion::REACT_CWR | pillion::ADAPTIVE);
        wire.sends("601:801 701:901");
        assert_eq!(get(wire, MODE), pillion::REACT_CWR | pillion::ADAPTIVE);
    });
}

/// TFRC-SP counts all sent data, regardless of the reaction mode meanwhile.
#[test]
fn changed_reaction_does_not_reset_tfrc_measurement() {
    let rule_options = Options {
        reaction: Some(Reaction::TfrcSp),
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    under(Bundler::with(rule_options)).run(|wire| {
        set(wire, MODE, pillion::REACT_CWR);
        let mut at = 1;
        for _ in 0..120 {
            wire.sends(&format!("{at}:{}", at + 100));
            at += 100;
            wire.ack(at);
        }
        wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
        wire.ack(at + 200);
        set(wire, MODE, 0);
        wire.sends(&format!("{}:{}", at + 200, at + 300));
        let totals = wire.totals();
        assert_eq!(totals.counters.reactions, 1, "{:?}", totals.tfrc_decision);
        assert_eq!(totals.counters.reactions_suppressed, 0);
    });
}

/// Returns the allowed rate after five hidden losses, of which the first four happened in this
/// mode.
fn allowed_after_losses(mode: i32) -> u32 {
    let rule_options = Options {
        reaction: Some(Reaction::TfrcSp),
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    let mut allowed = 0;
    let setup = Setup {
        rtt: Duration::from_millis(20),
        ..under(Bundler::with(rule_options))
    };
    setup.run(|wire| {
        set(wire, MODE, mode);
        let mut at = 1;
        for loss in 0..5 {
            if loss == 4 {
                set(wire, MODE, 0);
            }
            wire.sends(&format!("{at}:{} {at}:{}", at + 100, at + 200));
            at += 200;
            wire.ack(at);
            thread::sleep(Duration::from_millis(50));
        }
        wire.sends(&format!("{at}:{}", at + 100));
        allowed = wire
            .totals()
            .tfrc_decision
            .expect("a decision")
            .tfrc_allowed_bytes_per_s;
    });
    allowed
}

#[test]
fn losses_under_other_reaction_count_individually() {
    let (all, last_only) = (
        allowed_after_losses(0),
        allowed_after_losses(pillion::REACT_CWR),
    );
    assert!(
        last_only < 2 * all && all < 2 * last_only,
        "{all} and {last_only} bytes/s"
    );
}

#[test]
fn application_cannot_override_cautious_rule() {
    let rule_options = Options {
        wait_for_loss: true,
        level: Some(Level::Adaptive),
        ..unlimited()
    };
    let all = pillion::WAIT_FOR_LOSS | pillion::REACT_CWR | pillion::ADAPTIVE;
    under(Bundler::with(rule_options)).run(|wire| {
        assert_eq!(get(wire, MODE), all);
        set(wire, MODE, 0);
        assert_eq!(get(wire, MODE), all);
        wire.sends("1:101 101:201");
    });
}

#[test]
fn request_survives_reconnect_and_rule_changes() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201");
        wire.replace_rules(&Bundler::with_rules(&[]));
        wire.sends("201:301");
        assert_eq!(get(wire, BUNDLE), 0);
        wire.replace_rules(&Bundler::with_rules(&[rule(Mode::OnRequest(unlimited()))]));
        wire.sends("301:401 301:501");
        assert_eq!(stats(wire).rule, 1);
        wire.reconnect(7778);
        wire.sends("1:101 1:201");
    });
}

#[test]
fn hidden_losses_in_flight_count_after_switch_off() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201 1:301");
        set(wire, BUNDLE, 0);
        wire.sends("301:401");
        wire.ack(101);
        // 1:201 was lost.
        wire.ack_duplicate(301, "1:101", "");
        wire.sends("401:501");
        let statistics = stats(wire);
        assert_eq!(
            (statistics.hidden_losses, statistics.reactions),
            (1, 1),
            "{statistics:?}"
        );
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1)]);
    });
}

/// While bundles are in flight, the current rules decide the reaction to their hidden losses.
#[test]
fn switched_off_connection_follows_rule_changes() {
    let no_reaction = Options {
        reaction: Some(Reaction::None),
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    let strict = Options {
        reaction: Some(Reaction::Cwr),
        ..no_reaction
    };
    for off in [false, true] {
        under(Bundler::with(no_reaction)).run(|wire| {
            wire.sends("1:101 1:201 1:301");
            if off {
                set(wire, BUNDLE, 0);
            }
            wire.replace_rules(&Bundler::with(strict));
            wire.ack(101);
            // 1:201 was lost.
            wire.ack_duplicate(301, "1:101", "");
            wire.sends("301:401");
            let counters = wire.totals().counters;
            assert_eq!((counters.hidden_losses, counters.reactions), (1, 1));
        });
    }
}

#[test]
fn both_bundlers_receive_application_request() {
    let one = || Bundler::with_default(Mode::OnRequest(unlimited()));
    let setup = Setup {
        bundlers: vec![one(), one()],
        ..Setup::default()
    };
    setup.run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201");
        assert_eq!(wire.totals_of(1).connections, 1);
        set(wire, BUNDLE, 0);
        wire.sends("201:301 301:401");
        assert_eq!(wire.totals_of(0).counters.of(Bundled), 1);
    });
}
