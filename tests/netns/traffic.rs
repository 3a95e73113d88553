//! `pillion traffic` by itself, over loopback.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::common::*;

/// A receiver, and the address that it says it listens on.
fn receiver(options: &[&str]) -> (Child, String) {
    let mut child = Command::new(PILLION)
        .args(["traffic", "receive", "--listen", "127.0.0.1:0"])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line
        .trim()
        .strip_prefix("pillion: listening on ")
        .expect(&line)
        .to_owned();
    (child, address)
}

#[test]
fn what_is_sent_is_received_verified_and_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records");
    let (child, address) = receiver(&[
        "--streams",
        "5",
        "--json",
        "--records",
        records.to_str().unwrap(),
    ]);
    let options = [
        "--streams",
        "5",
        "--itt",
        "10:1",
        "--duration",
        "1",
        "--size",
        "64",
    ];
    let sent = pillion(
        &[
            &["traffic", "send", "--json", "--to", &address],
            &options[..],
        ]
        .concat(),
    );
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = child.wait_with_output().unwrap();
    assert!(received.status.success());
    let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
    let received: serde_json::Value = serde_json::from_slice(&received.stdout).unwrap();
    assert_eq!(sent["messages"], received["messages"]);
    let messages = sent["messages"].as_u64().unwrap();
    assert!(
        (400..=600).contains(&messages),
        "5 streams, 1 s, each 10 ms: {messages}"
    );
    let csv = pillion(&["traffic", "records", records.to_str().unwrap()]);
    assert!(csv.status.success(), "{}", stderr(&csv));
    let csv = stdout(&csv);
    assert_eq!(csv.lines().count() as u64, 1 + messages);
    assert!(csv.starts_with("measured,stream,sequence,size,sent_ns,latency_us\ndelivery,0,0,64,"));
}

#[test]
fn a_receiver_that_nobody_listens_at_is_named() {
    let output = pillion(&["traffic", "send", "--to", "127.0.0.1:1", "--duration", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("127.0.0.1:1"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_list_of_writes_is_sent_again_at_its_speed() {
    let folder = tempfile::tempdir().unwrap();
    let writes = folder.path().join("writes.csv");
    std::fs::write(&writes, "gap_ms,size\n0,100\n20,1000\n5,3\n").unwrap();
    let (child, address) = receiver(&["--streams", "2", "--json"]);
    let file = writes.to_str().unwrap();
    let options = ["--speed", "2", "--copies", "2", "--to", &address];
    let sent = pillion(&[&["traffic", "replay", file], &options[..]].concat());
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = child.wait_with_output().unwrap();
    assert!(received.status.success());
    let received: serde_json::Value = serde_json::from_slice(&received.stdout).unwrap();
    assert_eq!(received["messages"], 6);
}

#[test]
fn profiles_are_listed_and_an_unknown_one_is_refused() {
    let listed = pillion(&["traffic", "profiles", "--json"]);
    let profiles: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(profiles.as_array().unwrap().len(), 20);
    let table = stdout(&pillion(&["traffic", "profiles"]));
    assert_eq!(table.lines().count(), 1 + 20);
    let unknown = pillion(&[
        "traffic",
        "send",
        "--to",
        "127.0.0.1:1",
        "--profile",
        "nope",
    ]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("no profile `nope`; there are: anarchy-online, "));
}
