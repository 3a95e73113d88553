//! Connections behind the host's own NAT: packets at a device have other endpoints than their
//! sockets.

use std::process::Stdio;

use pillion_lab::Namespace;
use pillion_tests::HostPair;

use crate::common::*;

/// Translation of the host's connections to one service, and the addresses and routes that it
/// needs.
struct Nat {
    server: &'static str,
    rules: &'static str,
    /// `ip` commands for the sender, and for the receiver.
    ip: [&'static [&'static str]; 2],
}

/// Like kube-proxy for a ClusterIP, and like a gateway for its network.
const IPV4: Nat = Nat {
    server: "10.77.0.2:7777",
    rules: "table ip nat {
        chain output {
            type nat hook output priority -100;
            ip daddr 10.96.0.1 tcp dport 80 dnat to 10.77.0.2:7777
        }
        chain postrouting {
            type nat hook postrouting priority 100;
            tcp dport 7777 snat to 10.77.0.1:20000-29999
        }
    }",
    ip: [&["route add 10.96.0.1 via 10.77.0.2"], &[]],
};

/// Translates the sender's own endpoint only where two connections would collide.
const SERVICE_ALONE: Nat = Nat {
    rules: "table ip nat {
        chain output {
            type nat hook output priority -100;
            ip daddr 10.96.0.1 tcp dport 80 dnat to 10.77.0.2:7777
        }
        chain postrouting { type nat hook postrouting priority 100; }
    }",
    ..IPV4
};

/// Service whose server uses the SIP port.
const HELPER_PORT: Nat = Nat {
    server: "10.77.0.2:5060",
    rules: "table ip nat {
        chain output {
            type nat hook output priority -100;
            ip daddr 10.96.0.1 tcp dport 80 dnat to 10.77.0.2:5060
        }
    }",
    ..IPV4
};

const IPV6: Nat = Nat {
    server: "[fd00:77::2]:7777",
    rules: "table ip6 nat {
        chain output {
            type nat hook output priority -100;
            ip6 daddr fd00:96::1 tcp dport 80 dnat to [fd00:77::2]:7777
        }
    }",
    ip: [
        &[
            "address add fd00:77::1/64 dev tap0 nodad",
            "neighbour add fd00:77::2 lladdr 02:00:00:00:00:02 dev tap0",
            "route add fd00:96::1 via fd00:77::2",
        ],
        &[
            "address add fd00:77::2/64 dev tap0 nodad",
            "neighbour add fd00:77::1 lladdr 02:00:00:00:00:01 dev tap0",
        ],
    ],
};

fn configure(namespace: &Namespace, commands: &[&str]) {
    let ipv6 = ["-w", "net.ipv6.conf.all.disable_ipv6=0"];
    let allowed = namespace.run("sysctl", &ipv6, "").expect("sysctl runs");
    assert!(allowed.status.success(), "{}", stderr(&allowed));
    for command in commands {
        let words: Vec<_> = command.split(' ').collect();
        let done = namespace.run("ip", &words, "").expect("ip runs");
        assert!(done.status.success(), "{command}: {}", stderr(&done));
    }
}

/// Creates two hosts where connections of the sender are translated.
fn translating_pair(nat: &Nat) -> HostPair {
    let pair = lossy_pair(0.05);
    let hosts = [&pair.sender.namespace, &pair.receiver.namespace];
    for (host, commands) in hosts.into_iter().zip(nat.ip) {
        configure(host, commands);
    }
    let translating = hosts[0]
        .run("nft", &["-f", "-"], nat.rules)
        .expect("nft runs");
    assert!(translating.status.success(), "{}", stderr(&translating));
    pair
}

/// Runs `send` in a shell, in which `$SEND` sends one stream. Returns the bundling counters.
fn send_through(nat: &Nat, pair: &HostPair, send: &str, streams: u32) -> serde_json::Value {
    let [sender, receiver] = [&pair.sender.namespace, &pair.receiver.namespace];
    let streams = streams.to_string();
    let listen = ["traffic", "receive", "--listen", nat.server, "--streams"];
    let mut receive = lab_in(receiver, &[&listen[..], &[&streams]].concat());
    let mut receive = receive.stdout(Stdio::null()).spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let set = format!(
        "SEND='{PILLION_LAB} traffic send --itt 15:2 --duration 5 --congestion reno'; {send}"
    );
    let arguments = ["run", "--stats", stats.to_str().unwrap(), "--"];
    let arguments = [&arguments[..], &["sh", "-c", &set]].concat();
    let output = pillion_in(sender, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(receive.wait().unwrap().success(), "every byte is verified");
    read_json(&stats)
}

#[test]
fn port_that_this_host_translates_to_a_helpers_is_left_alone() {
    needs_root!();
    let pair = translating_pair(&HELPER_PORT);
    let stats = send_through(&HELPER_PORT, &pair, "$SEND --to 10.96.0.1:80", 1);
    assert!(
        stats["outcomes"]["helper_port"].as_u64() > Some(100),
        "{stats}"
    );
    assert_eq!(stats["redundant_bytes"], 0, "{stats}");
}

/// Runs `send` with this number of streams, and checks that no DSACK of a bundle reaches TCP.
fn no_report_reaches_tcp_behind(nat: &Nat, send: &str, streams: u32) {
    let pair = translating_pair(nat);
    let sender = &pair.sender.namespace;
    let stats = send_through(nat, &pair, send, streams);
    let count = |name: &str| stats[name].as_u64().unwrap();
    println!("{stats}");
    assert!(count("hidden_losses") > 10, "{stats}");
    assert!(count("dsacks_hidden") > 300, "{stats}");
    let counters = ["TCPDSACKIgnoredDubious", "TCPDSACKUndo", "TCPSACKDiscard"];
    let seen = counters.map(|name| netstat(sender, name));
    assert_eq!(seen, [0, 0, 0], "{counters:?}");
}

#[test]
fn no_report_of_a_bundle_reaches_tcp_behind_this_hosts_own_nat() {
    needs_root!();
    no_report_reaches_tcp_behind(&IPV4, "$SEND --to 10.96.0.1:80 --streams 5", 5);
}

#[test]
fn no_report_of_a_bundle_reaches_tcp_behind_this_hosts_own_nat_of_ipv6() {
    needs_root!();
    no_report_reaches_tcp_behind(&IPV6, "$SEND --to [fd00:96::1]:80 --streams 5", 5);
}

/// One port connects to the service and to its server. The first connection's endpoints at the
/// device equal the second one's own, which are translated to avoid this.
#[test]
fn no_report_of_a_bundle_reaches_tcp_where_another_connection_has_the_translated_ends() {
    needs_root!();
    let send = "sysctl -qw net.ipv4.ip_local_port_range='40000 40000'
        $SEND --to 10.96.0.1:80 & sleep 1; $SEND --to 10.77.0.2:7777 && wait $!";
    no_report_reaches_tcp_behind(&SERVICE_ALONE, send, 2);
}
