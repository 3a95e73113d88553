//! Path with filtered ACKs, as in cable modems. Hidden losses cannot be detected there, so bundling
//! stops.

use std::process::Stdio;
use std::time::Duration;

use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
use serde_json::Value;

use crate::common::*;

/// Passes one of five ACKs at 50 a second, and all ACKs at low rates, so TCP's own recovery works.
const FILTER: &str = "
table ip filtered {
    chain in {
        type filter hook input priority 0
        tcp flags & (syn | fin | rst) == 0 ip length < 100 limit rate over 10/second burst 1 packets drop
    }
}
";

/// Runs a stream at this loss rate. Returns its statistics and the number of lost packets.
fn stats(filtered: bool, loss: f64) -> (Value, u64) {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_millis(40))
    };
    let pair = HostPair::create(&PathConfig {
        forward: direction(loss),
        backward: direction(0.0),
        seed: 1,
    });
    let sender = &pair.sender.namespace;
    if filtered {
        let output = sender.run("nft", &["-f", "-"], FILTER).expect("nft runs");
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let listen = "traffic receive --listen 10.77.0.2:7777 --streams 1";
    let mut receiver = lab_in(
        &pair.receiver.namespace,
        &listen.split(' ').collect::<Vec<_>>(),
    )
    .stdout(Stdio::null())
    .stderr(Stdio::null())
    .spawn()
    .expect("a receiver");
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.json");
    let send =
        "traffic send --to 10.77.0.2:7777 --itt 20 --size 100 --duration 15 --congestion reno";
    let sent = pillion_in(sender, &["run", "--stats"])
        .arg(&stats)
        .args(["--", PILLION_LAB])
        .args(send.split(' '))
        .output()
        .expect("a sender");
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = receiver.wait().expect("the receiver");
    assert!(received.success(), "every byte is verified");
    let lost = pair.path.ledger().forward.lost.packets;
    let stats = read_json(&stats);
    println!("filtered: {filtered}; {lost} packets lost; {stats}");
    (stats, lost)
}

#[test]
fn where_one_ack_of_five_comes_back_the_stream_is_not_bundled_for_long() {
    needs_root!();
    let outcome = |stats: &Value, name: &str| stats["outcomes"][name].as_u64().unwrap_or(0);
    let (all, lost) = stats(false, 0.05);
    assert_eq!(outcome(&all, "acks_thinned"), 0);
    assert!(all["hidden_losses"].as_u64().expect("a count") * 2 > lost);
    // No losses here: they would shrink the window, which few ACKs cannot grow again.
    let (few, _) = stats(true, 0.0);
    let (bundled, thinned) = (outcome(&few, "bundled"), outcome(&few, "acks_thinned"));
    // pillion decides within the first sixty packets.
    assert!(bundled < 150 && thinned > 100, "{bundled}, {thinned}");
}
