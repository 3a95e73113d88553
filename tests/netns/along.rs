//! Segments bundled with retransmissions.

use std::process::Stdio;

use crate::common::*;

#[test]
fn a_stream_that_loses_much_arrives_whole_and_what_rode_along_repairs_it() {
    needs_root!();
    let pair = lossy_pair(0.3);
    let sender = &pair.sender.namespace;
    // Without these, TCP would merge segments to retransmit them, and probe for lost ones.
    let quiet = || {
        pillion_tests::sysctl("net.ipv4.tcp_retrans_collapse", "0");
        pillion_tests::sysctl("net.ipv4.tcp_early_retrans", "0");
    };
    sender.enter(quiet).expect("enter");
    let receive = "traffic receive --listen 10.77.0.2:7777 --streams 10";
    let receive: Vec<_> = receive.split(' ').collect();
    let mut receiver = lab_in(&pair.receiver.namespace, &receive)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a receiver");
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.json");
    let run = "run --published --thin always --max-packets 0 --retransmissions --stats";
    let run: Vec<_> = run.split(' ').collect();
    let send = "traffic send --to 10.77.0.2:7777 --streams 10 --itt exponential:30 --duration 3 \
                --congestion reno --drain-timeout 120";
    let sent = pillion_in(sender, &run)
        .arg(&stats)
        .args(["--", PILLION_LAB])
        .args(send.split(' '))
        .output()
        .expect("a sender");
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert!(stderr(&sent).contains(" retransmissions bundled"));
    let received = receiver.wait().expect("the receiver");
    assert!(received.success(), "every byte is verified");
    let stats = read_json(&stats);
    println!("{stats}");
    let bundled = stats["outcomes"]["retransmission_bundled"].as_u64();
    assert!(bundled.expect("a count") > 5);
    assert!(stats["repaired_along"].as_u64().expect("a count") > 5);
    assert_eq!(stats["acks_dropped"], 0);
    assert_eq!(netstat(sender, "TCPDSACKUndo"), 0);
}
