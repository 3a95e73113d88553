//! Connections behind their own host's NAT: where packets arrive at a device, they have other ends
//! than their sockets.

use std::process::Stdio;

use pillion_lab::Namespace;

use crate::common::*;

/// Translates connections of this host's to one service, and has the rest of it be reached.
struct Nat {
    service: &'static str,
    server: &'static str,
    rules: &'static str,
    /// What `ip` is to do at the sender, and at the receiver.
    ip: [&'static [&'static str]; 2],
}

/// As kube-proxy does for a ClusterIP, and as a host does for a network behind it.
const IPV4: Nat = Nat {
    service: "10.96.0.1:80",
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

const IPV6: Nat = Nat {
    service: "[fd00:96::1]:80",
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

fn no_report_reaches_tcp_behind(nat: &Nat) {
    let pair = lossy_pair(0.05);
    let hosts = [&pair.sender.namespace, &pair.receiver.namespace];
    for (host, commands) in hosts.into_iter().zip(nat.ip) {
        configure(host, commands);
    }
    let [sender, receiver] = hosts;
    let translating = sender
        .run("nft", &["-f", "-"], nat.rules)
        .expect("nft runs");
    assert!(translating.status.success(), "{}", stderr(&translating));

    let listen = [
        "traffic",
        "receive",
        "--listen",
        nat.server,
        "--streams",
        "5",
    ];
    let mut receive = pillion_in(receiver, &listen);
    let mut receive = receive.stdout(Stdio::null()).spawn().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let mut arguments = vec!["run", "--stats", stats.to_str().unwrap()];
    arguments.extend(["--", PILLION, "traffic", "send"]);
    arguments.extend(["--to", nat.service, "--streams", "5", "--itt", "15:2"]);
    arguments.extend(["--duration", "5", "--congestion", "reno"]);
    let output = pillion_in(sender, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(receive.wait().unwrap().success(), "every byte is verified");

    let stats = read_json(&stats);
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
    no_report_reaches_tcp_behind(&IPV4);
}

#[test]
fn no_report_of_a_bundle_reaches_tcp_behind_this_hosts_own_nat_of_ipv6() {
    needs_root!();
    no_report_reaches_tcp_behind(&IPV6);
}
