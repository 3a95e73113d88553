//! The queue probe in the lab kernel counts every packet.

use std::path::Path;

use serde_json::Value;

use crate::common::*;

/// Queueing disciplines that drop in different ways: on arrival, at the head of the queue, on
/// dequeue, and from other streams.
const DISCIPLINES: [&str; 5] = [
    "pfifo limit 5",
    "pfifo_head_drop limit 5",
    "codel limit 100",
    "fq_codel limit 8",
    "sfq limit 8",
];

/// Returns a script that sends greedy streams through 2 Mbit/s, in packets of one segment. The queue is
/// empty when it ends.
fn probe_script(number: usize, discipline: &str) -> String {
    format!(
        "ip netns add a; ip netns add b
        ip link add va netns a type veth peer name vb netns b
        for host in a b; do ip -n $host link set v$host up gso_max_segs 1; done
        ip -n a address add 10.0.0.1/24 dev va
        ip -n b address add 10.0.0.2/24 dev vb
        tc -n b qdisc add dev vb root netem delay 30ms
        tc -n a qdisc add dev va root handle 1: htb default 1
        tc -n a class add dev va parent 1: classid 1:1 htb rate 2mbit
        tc -n a qdisc add dev va parent 1:1 {discipline}
        ip netns exec b pillion-lab traffic receive --listen 10.0.0.2:7000 --streams 6 > /dev/null &
        tc -n a -s -j qdisc show dev va root > /results/before{number}
        pillion-lab queue va --netns a --json -- ip netns exec a sh -c 'sleep 1
            pillion-lab traffic send --to 10.0.0.2:7000 --kind greedy --streams 6 --duration 2s \\
                --congestion reno > /dev/null
            sleep 1' > /results/queue{number}
        tc -n a -s -j qdisc show dev va root > /results/after{number}
        wait; ip netns delete a; ip netns delete b
        "
    )
}

fn read(folder: &Path, name: String) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

#[test]
fn queue_probe_counts_match_qdisc_counters() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lines = DISCIPLINES.iter().enumerate();
    let lines: String = lines
        .map(|(number, name)| probe_script(number, name))
        .collect();
    shell(
        &["--tool", "sleep", "--results", folder.to_str().unwrap()],
        &lines,
    );
    for (number, discipline) in DISCIPLINES.iter().enumerate() {
        let queue = read(folder, format!("queue{number}"));
        let [before, after] =
            ["before", "after"].map(|when| read(folder, format!("{when}{number}")));
        let qdisc_count = |name: &str| {
            let [before, after] = [&before, &after].map(|it| it[0][name].as_u64().unwrap());
            after - before
        };
        let all = &queue["all"];
        let probed = |name: &str| all[name].as_u64().unwrap();
        assert_eq!(
            probed("sent"),
            qdisc_count("packets"),
            "{discipline}: {all}"
        );
        assert_eq!(
            probed("sent_bytes"),
            qdisc_count("bytes"),
            "{discipline}: {all}"
        );
        let dropped = probed("refused") + probed("dropped");
        assert_eq!(dropped, qdisc_count("drops"), "{discipline}: {all}");
        assert!(dropped > 0, "{discipline}: {all}");
        assert_eq!(
            probed("offered"),
            probed("sent") + dropped,
            "{discipline}: {all}"
        );
        assert_eq!(
            probed("unseen") + probed("unannounced"),
            0,
            "{discipline}: {all}"
        );
        // The other disciplines may drop any packet, including the arriving one.
        match *discipline {
            "pfifo limit 5" => assert_eq!(probed("dropped"), 0, "{all}"),
            "pfifo_head_drop limit 5" | "codel limit 100" => {
                assert_eq!(probed("refused"), 0, "{all}");
            }
            _ => {}
        }
    }
}
