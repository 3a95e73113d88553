//! The application's own switch: from when to when its socket bundles, and what it is
//! told.

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

/// No rules: all is left to the application.
fn allowed() -> Setup {
    under(Bundler::always(Mode::Allow(unlimited())))
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
fn bundling_begins_and_ends_when_the_application_says_so() {
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
fn a_wish_before_connect_or_on_a_listener_holds_from_the_first_byte() {
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
                assert_eq!(stats(wire).standing, pillion::BY_APPLICATION);
            });
        }
    }
}

#[test]
fn a_connection_that_begins_with_data_is_switched_before_its_handshake_ends() {
    allowed().run(|wire| {
        wire.reaccept_with_data(7778, 10);
        set(wire, BUNDLE, 1);
        assert_eq!(get(wire, BUNDLE), 1);
        wire.sends("1:101 1:201");
        set(wire, BUNDLE, 0);
        wire.sends("201:301");
        assert_eq!(stats(wire).bundled, 1);
    });
}

#[test]
fn an_application_may_decline_what_the_rules_want() {
    for opening in [Opening::Active, Opening::Passive] {
        let setup = Setup {
            opening,
            tcp_options: vec![(BUNDLE, 0)],
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101 101:201");
            assert_eq!(wire.totals().connections, 0);
            assert_eq!(stats(wire).standing, pillion::OFF);
            set(wire, BUNDLE, 1);
            wire.sends("201:301 201:401");
            assert_eq!(stats(wire).standing, pillion::BY_RULE);
        });
    }
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        set(wire, BUNDLE, 0);
        wire.sends("201:301");
    });
}

#[test]
fn what_the_rules_refuse_is_not_permitted() {
    let refused = rule(Mode::LeaveAlone);
    let elsewhere = Rule {
        ports: vec![1..=1],
        ..rule(Mode::Bundle(unlimited()))
    };
    for bundler in [
        Bundler::by(&[]),
        Bundler::by(&[elsewhere]),
        Bundler {
            rules: vec![refused],
            otherwise: Mode::Allow(unlimited()),
        },
    ] {
        let number = u32::from(matches!(bundler.otherwise, Mode::Allow(_)));
        under(bundler).run(|wire| {
            let on = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(errno(on), libc::EPERM);
            set(wire, BUNDLE, 0);
            wire.sends("1:101 101:201");
            assert_eq!(get(wire, BUNDLE), 0);
            assert_eq!(stats(wire).standing, pillion::REFUSED);
            assert_eq!(stats(wire).rule, number);
            assert_eq!(wire.totals().connections, 0);
        });
    }
}

/// Linux reads bytes twice there, and then no more, where segments overlap.
#[test]
fn a_connection_that_its_peer_began_with_mptcp_is_bundled_neither_by_a_rule_nor_on_request() {
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
                assert_eq!(stats(wire).standing, pillion::REFUSED);
                wire.sends("201:301 301:401");
                wire.replace_rules(&Bundler::by(&[]));
                wire.replace_rules(&Bundler::unlimited());
                wire.sends("401:501 501:601");
                wire.assert_outcomes(&[]);
                // The next one with that socket is of its own making.
                wire.reconnect(7778);
                wire.sends("1:101 1:201");
            });
        }
    }
}

/// They evict the note of the peer's SYN, so that nothing is known of it.
#[test]
fn connection_without_note_of_its_syn_is_not_bundled() {
    for multipath in [true, false] {
        let setup = Setup {
            opening: Opening::Passive,
            multipath,
            spoofed_syns: 6000,
            ..Setup::default()
        };
        setup.run(|wire| {
            wire.sends("1:101 101:201");
            let on = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(errno(on), libc::EPERM);
            wire.sends("201:301 301:401");
        });
    }
}

/// Its note is read at establishment, not when the first packet leaves.
#[test]
fn later_syns_do_not_keep_a_connection_from_being_bundled() {
    let setup = Setup {
        opening: Opening::Passive,
        ..Setup::default()
    };
    setup.run(|wire| {
        let listener = TcpListener::bind("0.0.0.0:8889").expect("a listener");
        wire.flood(8889, 6000);
        drop(listener);
        wire.sends("1:101 1:201");
    });
}

#[test]
fn who_takes_over_bundles_no_connection_that_its_peer_began_with_mptcp() {
    for multipath in [true, false] {
        let setup = Setup {
            opening: Opening::Passive,
            multipath,
            // A long RTO: nothing must be retransmitted while the bundler starts.
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
fn before_there_is_a_connection_only_what_no_rule_grants_is_refused() {
    let wish = |wire: &Wire| {
        let socket = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        );
        let socket = socket.expect("a socket");
        let result = pillion::set(&socket, BUNDLE, 1);
        assert_eq!(wire.totals().connections, 0);
        result.map(|()| pillion::get(&socket, BUNDLE).expect("the wish"))
    };
    under(Bundler::by(&[])).run(|wire| assert_eq!(errno(wish(wire)), libc::EPERM));
    let elsewhere = Rule {
        ports: vec![1..=1],
        ..rule(Mode::Allow(unlimited()))
    };
    under(Bundler::by(&[elsewhere])).run(|wire| assert_eq!(wish(wire).expect("kept"), 1));
    let setup = Setup {
        tcp_options: vec![(BUNDLE, 1)],
        ..under(Bundler {
            rules: vec![rule(Mode::LeaveAlone)],
            otherwise: Mode::Allow(unlimited()),
        })
    };
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(get(wire, BUNDLE), 0);
    });
}

#[test]
fn a_rule_that_allows_knows_who_opened_the_connection() {
    for (opening, direction, allowed) in [
        (Opening::Active, Direction::Connect, true),
        (Opening::Active, Direction::Accept, false),
        (Opening::Passive, Direction::Accept, true),
        (Opening::Passive, Direction::Connect, false),
    ] {
        let rules = [Rule {
            direction: Some(direction),
            ..rule(Mode::Allow(unlimited()))
        }];
        let setup = Setup {
            opening,
            ..under(Bundler::by(&rules))
        };
        setup.run(|wire| {
            wire.sends("1:101");
            let asked = pillion::set(&wire.socket(), BUNDLE, 1);
            assert_eq!(asked.is_ok(), allowed);
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
fn an_application_may_ask_for_less_than_the_rules_grant_and_never_for_more() {
    let granted = Options {
        max_packets: Some(2),
        max_bytes: 400,
        reaction: Reaction::TfrcSp,
        ..unlimited()
    };
    under(Bundler::with(granted)).run(|wire| {
        set(wire, MAX_PACKETS, 1);
        wire.sends("1:101 1:201 101:301");
        set(wire, MAX_PACKETS, 100);
        wire.sends("101:401");
        assert_eq!(get(wire, MAX_PACKETS), 2);
        set(wire, MAX_BYTES, 200);
        wire.sends("301:501");
        assert_eq!(get(wire, MAX_BYTES), 200);
        set(wire, MAX_BYTES, 100_000);
        assert_eq!(get(wire, MAX_BYTES), 400);
        set(wire, MAX_BYTES, 0);
        assert_eq!(get(wire, MAX_BYTES), 400);
        assert_eq!(get(wire, MODE), 0);
        set(wire, MODE, pillion::WAIT_FOR_LOSS);
        wire.sends("501:601");
        assert_eq!(get(wire, MODE), pillion::WAIT_FOR_LOSS);
        set(wire, MODE, pillion::REACT_CWR | pillion::ADAPTIVE);
        wire.sends("501:701 601:801");
        assert_eq!(get(wire, MODE), pillion::REACT_CWR | pillion::ADAPTIVE);
    });
}

/// What TFRC-SP allows is judged by all that was sent, whatever the reaction was meanwhile.
#[test]
fn nobody_is_measured_by_less_for_having_changed_the_reaction() {
    let granted = Options {
        reaction: Reaction::TfrcSp,
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    under(Bundler::with(granted)).run(|wire| {
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
        assert_eq!(totals.counters.reactions, 1, "{:?}", totals.decision);
        assert_eq!(totals.counters.reactions_spared, 0);
    });
}

/// The rate allowed after five hidden losses, all but the last of them under this mode.
fn allowed_after_losses(mode: i32) -> u32 {
    let granted = Options {
        reaction: Reaction::TfrcSp,
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    let mut allowed = 0;
    let setup = Setup {
        rtt: Duration::from_millis(20),
        ..under(Bundler::with(granted))
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
        allowed = wire.totals().decision.expect("a decision").rate_allowed;
    });
    allowed
}

#[test]
fn losses_that_another_reaction_answered_count_one_by_one() {
    let (all, at_last) = (
        allowed_after_losses(0),
        allowed_after_losses(pillion::REACT_CWR),
    );
    assert!(
        at_last < 2 * all && all < 2 * at_last,
        "{all} and {at_last} bytes/s"
    );
}

#[test]
fn what_the_rules_have_cautious_no_application_can_change() {
    let granted = Options {
        wait_for_loss: true,
        level: Level::Adaptive,
        ..unlimited()
    };
    let all = pillion::WAIT_FOR_LOSS | pillion::REACT_CWR | pillion::ADAPTIVE;
    under(Bundler::with(granted)).run(|wire| {
        assert_eq!(get(wire, MODE), all);
        set(wire, MODE, 0);
        assert_eq!(get(wire, MODE), all);
        wire.sends("1:101 101:201");
    });
}

#[test]
fn a_wish_outlives_the_connection_and_changes_of_the_rules() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201");
        wire.replace_rules(&Bundler::by(&[]));
        wire.sends("201:301");
        assert_eq!(get(wire, BUNDLE), 0);
        wire.replace_rules(&Bundler::by(&[rule(Mode::Allow(unlimited()))]));
        wire.sends("301:401 301:501");
        assert_eq!(stats(wire).rule, 1);
        wire.reconnect(7778);
        wire.sends("1:101 1:201");
    });
}

#[test]
fn once_switched_off_hidden_losses_of_bundles_on_their_way_still_count() {
    allowed().run(|wire| {
        set(wire, BUNDLE, 1);
        wire.sends("1:101 1:201 1:301");
        set(wire, BUNDLE, 0);
        wire.sends("301:401");
        wire.ack(101);
        // 1:201 was lost.
        wire.ack_duplicate(301, "1:101", "");
        wire.sends("401:501");
        let seen = stats(wire);
        assert_eq!((seen.hidden_losses, seen.reactions), (1, 1), "{seen:?}");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1)]);
    });
}

/// As long as bundles are on their way, the rules of the moment say what follows from what they hid.
#[test]
fn once_switched_off_a_connection_has_the_options_of_rules_that_change() {
    let lax = Options {
        reaction: Reaction::None,
        loss_rule: LossRule::Dsack,
        ..unlimited()
    };
    let strict = Options {
        reaction: Reaction::Cwr,
        ..lax
    };
    for off in [false, true] {
        under(Bundler::with(lax)).run(|wire| {
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
fn of_two_bundlers_both_hear_what_the_application_says() {
    let one = || Bundler::always(Mode::Allow(unlimited()));
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
        assert_eq!(stats(wire).bundled, 1);
    });
}
