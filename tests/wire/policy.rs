//! Which connections are bundled, from when on, and until when.

use pillion_bpf::Outcome::{Bundled, NoHistory, NothingOutstanding};
use pillion_bpf::Rule;
use pillion_tests::{Bundler, Ip, Opening, Setup, unlimited};

fn rules(rules: &[Rule]) -> Setup {
    Setup {
        bundlers: vec![Bundler::by(rules)],
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
fn a_port_covers_the_connections_to_it_and_from_it() {
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
fn a_prefix_covers_the_peers_in_it() {
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
fn an_ipv4_prefix_covers_an_ipv6_sockets_ipv4_peers() {
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
fn an_older_connection_is_bundled_from_its_adoption_on() {
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

/// Nothing tells of it again, once its handshake has ended (TCP Fast Open).
#[test]
fn an_older_connection_that_began_with_data_is_adopted_before_its_handshake_has_ended() {
    let setup = Setup {
        bundlers: vec![],
        ..Setup::default()
    };
    setup.run(|wire| {
        wire.reaccept_with_data(7778, 10);
        wire.attach(&Bundler::unlimited());
        wire.adopt();
        wire.ack(1);
        wire.sends("1:101 1:201");
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn an_older_connection_that_is_not_covered_is_not_adopted() {
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
fn a_connection_that_sends_no_more_is_not_adopted() {
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
fn adoption_leaves_connections_that_are_bundled_already_as_they_are() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.adopt();
        wire.sends("1:301");
        wire.assert_outcomes(&[(Bundled, 2), (NothingOutstanding, 1)]);
        assert_eq!(wire.totals().connections, 1);
    });
}

#[test]
fn a_socket_used_again_starts_afresh() {
    Setup::default().run_everywhere(|wire| {
        wire.sends("1:101 1:201");
        wire.reconnect(7777);
        wire.sends("1:51 1:101");
        assert_eq!(wire.totals().connections, 2);
    });
}

#[test]
fn a_socket_used_again_for_what_is_not_covered_is_let_go() {
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
fn without_the_bundler_a_connection_goes_on_plain() {
    Setup::default().run(|wire| {
        wire.sends("1:101 1:201");
        wire.detach();
        wire.sends("201:301 301:401");
    });
}
