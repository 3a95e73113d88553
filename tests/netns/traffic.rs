//! `pillion-lab traffic` by itself, over loopback.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::common::*;
use crate::trace::Conversation;

/// Starts a receiver. Returns it with the address on which it listens.
fn receiver(options: &[&str]) -> (Child, String) {
    let mut child = Command::new(PILLION_LAB)
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
        .strip_prefix("pillion-lab: listening on ")
        .expect(&line)
        .to_owned();
    (child, address)
}

#[test]
fn messages_are_received_verified_and_recorded() {
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
        "10ms:1ms",
        "--duration",
        "1s",
        "--size",
        "64",
    ];
    let sent = lab(&[
        &["traffic", "send", "--json", "--to", &address],
        &options[..],
    ]
    .concat());
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
    let csv = std::fs::read_to_string(records).unwrap();
    assert_eq!(csv.lines().count() as u64, 1 + messages);
    assert!(csv.starts_with("measured,stream,sequence,size,sent_ns,latency_us\ndelivery,0,0,64,"));
}

#[test]
fn datagrams_are_sent_at_rate_and_verified() {
    let (child, address) = receiver(&["--datagrams", "--streams", "2", "--json"]);
    let send = [
        "traffic",
        "send",
        "--json",
        "--kind",
        "datagrams",
        "--to",
        &address,
    ];
    let options = [
        "--streams",
        "2",
        "--rate",
        "1mbit",
        "--size",
        "500",
        "--duration",
        "1s",
    ];
    let sent = lab(&[&send[..], &options].concat());
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = child.wait_with_output().unwrap();
    assert!(received.status.success());
    let received: serde_json::Value = serde_json::from_slice(&received.stdout).unwrap();
    // One datagram every 4 ms on each of two streams.
    assert_eq!(received["messages"], 500);
}

#[test]
fn unreachable_receiver_is_named() {
    let output = lab(&["traffic", "send", "--to", "127.0.0.1:1", "--duration", "1s"]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("127.0.0.1:1"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn write_list_is_replayed_at_given_speed() {
    let folder = tempfile::tempdir().unwrap();
    let writes = folder.path().join("writes.csv");
    std::fs::write(&writes, "gap_ms,size\n0,100\n20,1000\n5,3\n").unwrap();
    let (child, address) = receiver(&["--streams", "2", "--json"]);
    let file = writes.to_str().unwrap();
    let options = ["--speed", "2", "--copies", "2", "--to", &address];
    let sent = lab(&[&["traffic", "replay", file], &options[..]].concat());
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = child.wait_with_output().unwrap();
    assert!(received.status.success());
    let received: serde_json::Value = serde_json::from_slice(&received.stdout).unwrap();
    assert_eq!(received["messages"], 6);
}

#[test]
fn writes_of_traced_connection_are_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let mut conversation = Conversation::start();
    conversation.data(110, 1, 101).pushed();
    // A bundle, and a write of two segments.
    conversation.data(130, 1, 201).pushed().ack(230, 201);
    conversation
        .data(240, 201, 1601)
        .data(240, 1601, 2001)
        .pushed();
    let [file, _] = conversation.write(folder.path());
    let file = file.to_str().unwrap();
    let records = folder.path().join("records");
    let records = records.to_str().unwrap();
    let (child, address) = receiver(&["--streams", "1", "--records", records]);
    let replay = ["traffic", "replay", file, "--to", &address];
    let sent = lab(&replay);
    let message = stderr(&sent);
    assert!(sent.status.success(), "{message}");
    let expected = "pillion-lab: 3 writes of connection 1: 192.0.2.1:40000 -> 198.51.100.1:80, ";
    assert!(message.starts_with(expected), "{message}");
    assert!(child.wait_with_output().unwrap().status.success());
    let csv = std::fs::read_to_string(records).unwrap();
    let sizes: Vec<_> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(3))
        .collect();
    assert_eq!(sizes, [Some("100"), Some("100"), Some("1800")]);

    let other = lab(&[&replay[..], &["--connection", "2"]].concat());
    assert_eq!(other.status.code(), Some(2));
    let expected = format!(
        "pillion-lab: error: {file}: no connection 2 with data: select one with --connection N, of\n1: 192.0"
    );
    assert!(stderr(&other).starts_with(&expected), "{}", stderr(&other));
    let list = folder.path().join("writes.csv");
    std::fs::write(&list, "gap_ms,size\n0,100\n").unwrap();
    let list = [
        "traffic",
        "replay",
        list.to_str().unwrap(),
        "--connection",
        "1",
    ];
    let refused = lab(&[&list[..], &["--to", &address]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("remove --connection"));
    let invalid = lab(&["traffic", "replay", PILLION_LAB, "--to", &address]);
    assert_eq!(invalid.status.code(), Some(2));
    let message = stderr(&invalid);
    assert!(message.contains("expected a packet trace"), "{message}");
}

#[test]
fn profiles_are_listed_and_unknown_profile_is_rejected() {
    let listed = lab(&["traffic", "profiles", "--json"]);
    let profiles: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(profiles.as_array().unwrap().len(), 20);
    let table = stdout(&lab(&["traffic", "profiles"]));
    assert_eq!(table.lines().count(), 1 + 20);
    let unknown = lab(&[
        "traffic",
        "send",
        "--to",
        "127.0.0.1:1",
        "--profile",
        "nope",
    ]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("unknown profile `nope`; known: anarchy-online, "));
}

#[test]
fn groups_of_file_are_sent_concurrently_and_reported_apart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mix.toml");
    let text = "\
duration = 1
[[group]]
name = \"early\"
streams = 2
itt = 50
[[group]]
name = \"late\"
kind = \"isochronous\"
start = 0.5
itt = 50
";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let checked = lab(&["traffic", "send", "--config", file, "--check-config"]);
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert_eq!(stdout(&checked), "valid: 3 streams in 2 groups\n");
    let (child, address) = receiver(&["--streams", "3"]);
    let sent = lab(&[
        "traffic", "send", "--to", &address, "--config", file, "--json",
    ]);
    assert!(sent.status.success(), "{}", stderr(&sent));
    assert!(child.wait_with_output().unwrap().status.success());
    let sent: serde_json::Value = serde_json::from_slice(&sent.stdout).unwrap();
    let group = |number: usize| {
        let group = &sent["groups"][number];
        (group["name"].as_str(), group["messages"].as_u64())
    };
    assert_eq!(group(0), (Some("early"), Some(2 * 20)));
    assert_eq!(group(1), (Some("late"), Some(10)));
}

#[test]
fn all_errors_of_file_are_reported_and_nothing_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mix.toml");
    std::fs::write(&file, "[[group]]\nitt = 0\nduration = 0\n").unwrap();
    let name = file.to_str().unwrap();
    let output = lab(&["traffic", "send", "--to", "127.0.0.1:1", "--config", name]);
    assert_eq!(output.status.code(), Some(2));
    let message = stderr(&output);
    let lines: Vec<_> = message.lines().collect();
    assert_eq!(lines.len(), 2, "{message}");
    assert!(lines[0].starts_with(&format!("{name}:2:7: ")), "{message}");
    assert!(lines[1].starts_with(&format!("{name}:3:12: ")), "{message}");
}

#[test]
fn killed_receiver_breaks_all_streams_and_is_reported() {
    let (mut child, address) = receiver(&[]);
    let sender = Command::new(PILLION_LAB)
        .args(["traffic", "send", "--to", &address, "--streams", "3"])
        .args(["--itt", "20ms", "--duration", "60s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let port = address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap();
    eventually("all streams are connected", || established_to(port) == 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let sent = sender.wait_with_output().unwrap();
    let message = stderr(&sent);
    assert_eq!(sent.status.code(), Some(1), "{message}");
    assert!(
        message.ends_with("pillion-lab: warning: 3 of 3 streams failed\n"),
        "{message}"
    );
    assert!(message.contains("the receiver"), "{message}");
    assert!(stdout(&sent).contains(" on 3 streams"));
}

/// Returns the number of established connections to a port of this host, at the client's end.
fn established_to(port: u16) -> usize {
    const ESTABLISHED: &str = "01";
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let socket = format!(":{port:04X} {ESTABLISHED} ");
    table.matches(&socket).count()
}

#[test]
fn socket_option_without_attach_is_error() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let arguments = ["traffic", "send", "--to", "127.0.0.1:1", "--pillion", "on"];
    let output = lab_in(&namespace, &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    let expected = "pillion-lab: error: pillion's socket option PILLION_BUNDLE: ENOPROTOOPT";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("start `pillion attach`"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}
