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
const DNAT_ONLY: Nat = Nat {
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
        let output = namespace.run("ip", &words, "").expect("ip runs");
        assert!(output.status.success(), "{command}: {}", stderr(&output));
    }
}

/// Creates two hosts where connections of the sender are translated.
fn nat_pair(nat: &Nat) -> HostPair {
    let pair = lossy_pair(0.05);
    let hosts = [&pair.sender.namespace, &pair.receiver.namespace];
    for (host, commands) in hosts.into_iter().zip(nat.ip) {
        configure(host, commands);
    }
    let output = hosts[0]
        .run("nft", &["-f", "-"], nat.rules)
        .expect("nft runs");
    assert!(output.status.success(), "{}", stderr(&output));
    pair
}

/// Runs `send` in a shell, in which `$SEND` sends one stream. Returns the bundling counters.
fn send_translated(nat: &Nat, pair: &HostPair, send: &str, streams: u32) -> serde_json::Value {
    let [sender, receiver] = [&pair.sender.namespace, &pair.receiver.namespace];
    let streams = streams.to_string();
    let listen = ["traffic", "receive", "--listen", nat.server, "--streams"];
    let mut receive = lab_in(receiver, &[&listen[..], &[&streams]].concat());
    let mut receive = receive.stdout(Stdio::null()).spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let set = format!(
        "SEND='{PILLION_LAB} traffic send --itt 15ms:2ms --duration 5s --congestion reno'; {send}"
    );
    let stats_path = stats.to_str().unwrap();
    let arguments = ["run", "--stats", stats_path, "--"];
    let arguments = [&arguments[..], &["sh", "-c", &set]].concat();
    let output = pillion_in(sender, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(receive.wait().unwrap().success(), "every byte is verified");
    read_json(&stats)
}

#[test]
fn port_translated_to_helper_port_is_not_bundled() {
    needs_root!();
    let pair = nat_pair(&HELPER_PORT);
    let stats = send_translated(&HELPER_PORT, &pair, "$SEND --to 10.96.0.1:80", 1);
    assert!(
        stats["outcomes"]["helper_port"].as_u64() > Some(100),
        "{stats}"
    );
    assert_eq!(stats["redundant_bytes"], 0, "{stats}");
}

/// Runs `send` with this number of streams, and checks that no DSACK of a bundle reaches TCP.
fn check_dsacks_hidden(nat: &Nat, send: &str, streams: u32) {
    let pair = nat_pair(nat);
    let sender = &pair.sender.namespace;
    let stats = send_translated(nat, &pair, send, streams);
    let count = |name: &str| stats[name].as_u64().unwrap();
    println!("{stats}");
    assert!(count("hidden_losses") > 10, "{stats}");
    assert!(count("dsacks_removed") > 300, "{stats}");
    let counters = ["TCPDSACKIgnoredDubious", "TCPDSACKUndo", "TCPSACKDiscard"];
    let values = counters.map(|name| netstat(sender, name));
    assert_eq!(values, [0, 0, 0], "{counters:?}");
}

#[test]
fn dsacks_of_bundles_are_hidden_behind_ipv4_nat() {
    needs_root!();
    check_dsacks_hidden(&IPV4, "$SEND --to 10.96.0.1:80 --streams 5", 5);
}

#[test]
fn dsacks_of_bundles_are_hidden_behind_ipv6_nat() {
    needs_root!();
    check_dsacks_hidden(&IPV6, "$SEND --to [fd00:96::1]:80 --streams 5", 5);
}

/// One port connects to the service and to its server. The first connection's endpoints at the
/// device equal the second one's own, which are translated to avoid this.
#[test]
fn dsacks_are_hidden_despite_equal_translated_endpoints() {
    needs_root!();
    let send = "sysctl -qw net.ipv4.ip_local_port_range='40000 40000'
        $SEND --to 10.96.0.1:80 & sleep 1; $SEND --to 10.77.0.2:7777 && wait $!";
    check_dsacks_hidden(&DNAT_ONLY, send, 2);
}
