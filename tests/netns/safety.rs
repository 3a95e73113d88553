//! Congestion control still learns of losses, and is not misled.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use pillion_lab::Namespace;

use crate::common::*;

/// Round-trip time of [`lossy_pair`].
const RTT: Duration = Duration::from_millis(40);

#[test]
fn hidden_losses_are_found_reacted_to_and_never_undone() {
    needs_root!();
    let pair = lossy_pair(0.08);
    let listen = [
        "traffic",
        "receive",
        "--listen",
        "10.77.0.2:7777",
        "--streams",
        "10",
    ];
    let mut receiver = lab_in(&pair.receiver.namespace, &listen);
    let mut receiver = receiver
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let arguments = [
        "run",
        "--max-packets",
        "0",
        "--stats",
        stats.to_str().unwrap(),
        "--",
        PILLION_LAB,
        "traffic",
        "send",
        "--to",
        "10.77.0.2:7777",
        "--streams",
        "10",
        "--itt",
        "15:2",
        "--duration",
        "8",
        "--congestion",
        "reno",
    ];
    let output = pillion_in(&pair.sender.namespace, &arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(receiver.wait().unwrap().success(), "every byte is verified");

    let stats = read_json(&stats);
    let count = |name: &str| stats[name].as_u64().unwrap();
    let lost = pair.path.ledger().forward.lost.packets;
    let (found, reports) = (count("hidden_losses"), count("dsacks_hidden"));
    let saved = Duration::from_micros(count("saved_us"));
    println!("{lost} packets lost; {stats}");
    assert!(lost > 150, "{lost} packets lost");
    assert!(found * 2 > lost, "of {lost} losses, {found} were found");
    assert!(found <= lost, "of {lost} losses, {found} were found");
    assert!(count("reactions") > 20 && count("reactions") <= found);
    assert!(reports > 1000);
    // Few segments were retransmitted as well; each other repair saved an RTT.
    assert!(saved > RTT * (found / 2) as u32, "{saved:?} for {found}");
    // TCP sees only DSACKs of its own retransmissions, and therefore ignores none.
    let sender = &pair.sender.namespace;
    let counters = [
        "TCPDSACKRecv",
        "TCPDSACKUndo",
        "TCPDSACKIgnoredDubious",
        "TCPSACKDiscard",
    ];
    let seen = counters.map(|name| netstat(sender, name));
    let again = retransmitted(sender);
    println!("{counters:?} {seen:?}, {again} retransmitted");
    assert_eq!(seen[2..], [0, 0], "{counters:?}");
    assert!(
        seen[1] <= seen[0] && seen[0] <= again,
        "{seen:?} of {again}"
    );
    assert_eq!(count("acks_dropped"), 0);
}

/// Returns the segments that TCP retransmitted in a namespace. Some are spurious if the host
/// stalled for longer than a time-out.
fn retransmitted(namespace: &Namespace) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let text = namespace.enter(read).expect("enter");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs.find(|(name, _)| *name == "RetransSegs").expect("the counter");
    value.parse().expect("a number")
}
