//! Tests which connections are bundled, from when, and until when.

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding};
use pillion_bpf::Rule;
use pillion_tests::{Bundler, Ip, Opening, Setup, unlimited};

fn rules(rules: &[Rule]) -> Setup {
    Setup {
        bundlers: vec![Bundler::with_rules(rules)],
        ..Setup::default()
    }
}

fn policy(ports: &[u16], peers: &[&str]) -> Setup {
    let peers = peers.iter().map(|peer| peer.parse().expect("a prefix"));
    rules(&[Rule {
        ports: ports.iter().map(|port| *port..=*port).collect(),
        peers: peers.collect(),
        ..Rule::all(unlimited())
    }])
}

fn is_covered(setup: Setup) {
    setup.run(|wire| {
        wire.sends("1:101 1:201");
        assert_eq!(wire.totals().connections, 1);
    });
}

fn is_not_covered(setup: Setup) {
    setup.run(|wire| {
        wire.sends("1:101 101:201");
        assert_eq!(wire.totals().connections, 0);
        wire.assert_outcomes(&[]);
    });
}

#[test]
fn port_covers_connections_to_and_from_it() {
    is_covered(policy(&[1, 7777], &[]));
    let opening = Opening::Passive;
    is_covered(Setup {
        opening,
        ..policy(&[8888], &[])
    });
    is_covered(Setup {
        opening,
        ..policy(&[7777], &[])
    });
    is_not_covered(policy(&[1, 8888], &[]));
}

#[test]
fn prefix_covers_peers_in_it() {
    is_covered(policy(&[], &["10.0.0.0/24"]));
    is_covered(policy(&[], &["192.0.2.0/24", "10.0.0.2/32"]));
    is_not_covered(policy(&[], &["10.0.0.1/32"]));
    is_not_covered(policy(&[], &["fd00::/64"]));
    let ip = Ip::V6;
    is_covered(Setup {
        ip,
        ..policy(&[], &["fd00::/64"])
    });
    is_not_covered(Setup {
        ip,
        ..policy(&[], &["fd00::1/128", "10.0.0.0/8"])
    });
}

#[test]
fn ipv4_prefix_covers_ipv4_peers_of_ipv6_socket() {
    for opening in [Opening::Active, Opening::Passive] {
        let ip = Ip::Mapped;
        is_covered(Setup {
            ip,
            opening,
            ..policy(&[], &["10.0.0.0/24"])
        });
        is_not_covered(Setup {
            ip,
            opening,
            ..policy(&[], &["10.0.1.0/24"])
        });
    }
}

#[test]
fn port_and_prefix_must_both_match() {
    is_covered(policy(&[7777], &["10.0.0.0/24"]));
    is_not_covered(policy(&[1], &["10.0.0.0/24"]));
    is_not_covered(policy(&[7777], &["10.0.1.0/24"]));
}

#[test]
fn older_connection_is_bundled_after_adoption() {
    let bundler = policy(&[7777], &["10.0.0.0/24", "fd00::/64"])
        .bundlers
        .remove(0);
    let setup = Setup {
        bundlers: vec![],
        ..Setup::default()
    };
    setup.run_on_each_socket(|wire| {
        wire.sends("1:101 101:201");
        wire.attach(&bundler);
        wire.sends("201:301");
        wire.adopt();
        wire.sends("301:401 301:501");
        wire.assert_outcomes(&[(Bundled, 1), (NoHistory, 1)]);
        wire.ack(501);
        wire.sends("501:601 501:701");
        assert_eq!(wire.totals().connections, 1);
    });
}

/// After the handshake of a TCP Fast Open connection, no further event announces it.
#[test]
fn fast_open_connection_is_adopted_during_handshake() {
    let setup = Setup {
        bundlers: vec![],
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.accept_with_data(7778, 10);
        wire.attach(&Bundler::unlimited());
        wire.adopt();
        wire.ack(1);
        wire.sends("1:101 1:201");
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn uncovered_older_connection_is_not_adopted() {
    let setup = Setup {
        bundlers: vec![],
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.attach(&policy(&[1], &[]).bundlers[0]);
        wire.adopt();
        wire.sends("1:101 101:201");
        assert_eq!(wire.totals().connections, 0);
    });
}

#[test]
fn half_closed_connection_is_not_adopted() {
    let setup = Setup {
        bundlers: vec![],
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.shutdown();
        wire.expect("1:1F");
        wire.attach(&Bundler::unlimited());
        wire.adopt();
        assert_eq!(wire.totals().connections, 0);
    });
}

#[test]
fn adoption_leaves_bundled_connections_unchanged() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.adopt();
        wire.sends("1:301");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1)]);
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn reused_socket_starts_afresh() {
    Setup::default().run_on_ip_variants(|wire| {
        wire.sends("1:101 1:201");
        wire.reconnect(7777);
        wire.sends("1:51 1:101");
        assert_eq!(wire.totals().connections, 2);
    });
}

#[test]
fn reused_socket_outside_rules_is_released() {
    policy(&[7777], &[]).run(|wire| {
        wire.sends("1:101 1:201");
        wire.reconnect(7778);
        wire.sends("1:101 101:201");
        wire.reconnect(7777);
        wire.sends("1:101 1:201");
        assert_eq!(wire.totals().connections, 2);
    });
}

#[test]
fn connection_continues_plain_after_detach() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.detach();
        wire.sends("201:301 301:401");
    });
}
