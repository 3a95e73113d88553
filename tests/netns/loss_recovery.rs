//! Bundling next to TCP's loss recovery: hidden losses, bundled retransmissions, filtered ACKs, and
//! receivers without DSACK.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use pillion_bpf::{Counters, LossRule, Options, Outcome};
use pillion_lab::Namespace;
use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::{HostPair, limit_one, sysctl, tcp_info};
use serde_json::Value;

use crate::common::*;
use crate::stream::attach_with;

/// Round-trip time of [`lossy_pair`].
const RTT: Duration = Duration::from_millis(40);

#[test]
fn hidden_losses_are_found_and_reduce_window() {
    needs_root!();
    let pair = lossy_pair(0.08);
    let mut receiver = receive(&pair, 7777, 10);
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let arguments = [
        "run",
        "--max-packets",
        "0",
        "--reaction",
        "cwr",
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
        "15ms:2ms",
        "--duration",
        "8s",
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
    let lost = pair.path.stats().forward.lost.packets;
    let (found, reports) = (count("hidden_losses"), count("dsacks_removed"));
    let saved = Duration::from_micros(count("time_saved_us"));
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
    let values = counters.map(|name| netstat(sender, name));
    let retransmissions = retransmitted_segments(sender);
    println!("{counters:?} {values:?}, {retransmissions} retransmitted");
    assert_eq!(values[2..], [0, 0], "{counters:?}");
    assert!(
        values[1] <= values[0] && values[0] <= retransmissions,
        "{values:?} of {retransmissions}"
    );
    assert_eq!(count("acks_dropped"), 0);
}

/// Returns the segments that TCP retransmitted in a namespace. Some are spurious if the host
/// stalled for longer than a time-out.
fn retransmitted_segments(namespace: &Namespace) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
    let text = namespace.enter(read).expect("enter");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let mut pairs = names.split(' ').zip(values.split(' '));
    let (_, value) = pairs
        .find(|(name, _)| *name == "RetransSegs")
        .expect("the counter");
    value.parse().expect("a number")
}

#[test]
fn bundled_retransmissions_repair_losses_on_very_lossy_path() {
    needs_root!();
    let pair = lossy_pair(0.3);
    let sender = &pair.sender.namespace;
    // Without these, TCP would merge segments to retransmit them, and probe for lost ones.
    let quiet = || {
        pillion_tests::sysctl("net.ipv4.tcp_retrans_collapse", "0");
        pillion_tests::sysctl("net.ipv4.tcp_early_retrans", "0");
    };
    sender.enter(quiet).expect("enter");
    let mut receiver = receive(&pair, 7777, 10);
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.json");
    let run = "run --published --thin always --max-packets 0 --bundle-retransmissions --stats";
    let run: Vec<_> = run.split(' ').collect();
    let send = "traffic send --to 10.77.0.2:7777 --streams 10 --itt exponential:30ms --duration 3s \
                --congestion reno --drain-timeout 120s";
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
    assert!(
        stats["piggyback_repaired_segments"]
            .as_u64()
            .expect("a count")
            > 5
    );
    assert_eq!(stats["acks_dropped"], 0);
    assert_eq!(netstat(sender, "TCPDSACKUndo"), 0);
}

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
fn run_filtered(filtered: bool, loss: f64) -> (Value, u64) {
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
    let mut receiver = receive(&pair, 7777, 1);
    let folder = tempfile::tempdir().expect("a folder");
    let stats = folder.path().join("stats.json");
    let send =
        "traffic send --to 10.77.0.2:7777 --itt 20ms --size 100 --duration 15s --congestion reno";
    let sent = pillion_in(sender, &["run", "--max-packets", "1", "--stats"])
        .arg(&stats)
        .args(["--", PILLION_LAB])
        .args(send.split(' '))
        .output()
        .expect("a sender");
    assert!(sent.status.success(), "{}", stderr(&sent));
    let received = receiver.wait().expect("the receiver");
    assert!(received.success(), "every byte is verified");
    let lost = pair.path.stats().forward.lost.packets;
    let stats = read_json(&stats);
    println!("filtered: {filtered}; {lost} packets lost; {stats}");
    (stats, lost)
}

#[test]
fn thinned_acks_soon_stop_bundling() {
    needs_root!();
    let outcome = |stats: &Value, name: &str| stats["outcomes"][name].as_u64().unwrap_or(0);
    let (all, lost) = run_filtered(false, 0.05);
    assert_eq!(outcome(&all, "acks_thinned"), 0);
    assert!(all["hidden_losses"].as_u64().expect("a count") * 2 > lost);
    // No losses here: they would shrink the window, which few ACKs cannot grow again.
    let (few, _) = run_filtered(true, 0.0);
    let (bundled, thinned) = (outcome(&few, "bundled"), outcome(&few, "acks_thinned"));
    // pillion decides within the first sixty packets.
    assert!(bundled < 150 && thinned > 100, "{bundled}, {thinned}");
}

const DURATION: Duration = Duration::from_secs(8);
const ONE_WAY: Duration = Duration::from_millis(50);
const CLIENT_ITT: Duration = Duration::from_millis(20);
const SERVER_ITT: Duration = Duration::from_millis(50);
const MESSAGE: usize = 100;

/// Latencies, window and counters of a stream.
#[derive(Debug)]
struct StreamResult {
    p50: Duration,
    p90: Duration,
    cwnd: u32,
    counters: Option<Counters>,
}

/// Sends a message at each interval until `end`. Returns the send times.
fn send_messages(mut stream: &TcpStream, itt: Duration, end: Instant) -> Vec<Instant> {
    let mut next = Instant::now();
    let mut sent = Vec::new();
    while next < end {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        stream.write_all(&[1; MESSAGE]).expect("sent");
        next += itt;
    }
    sent
}

/// Reads messages until the stream ends. Returns the read times.
fn read_messages(mut stream: &TcpStream) -> Vec<Instant> {
    let mut received = Vec::new();
    while stream.read_exact(&mut [0; MESSAGE]).is_ok() {
        received.push(Instant::now());
    }
    received
}

/// Runs a client and a server that both send messages over a lossless path. With options, the
/// client's host bundles.
fn run_stream(options: Option<Options>) -> StreamResult {
    let direction = || Direction::delayed(ONE_WAY);
    let pair = HostPair::create(&PathConfig {
        forward: direction(),
        backward: direction(),
        seed: 1,
    });
    let address = SocketAddr::V4(SocketAddrV4::new(pair.receiver.address, 7777));
    let (listening, is_listening) = mpsc::channel();
    let server = pair.receiver.namespace.spawn(move || {
        sysctl("net.ipv4.tcp_dsack", "0");
        let listener = TcpListener::bind(address).expect("a listener");
        listening.send(()).expect("the client waits");
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        thread::scope(|scope| {
            scope.spawn(|| send_messages(&stream, SERVER_ITT, Instant::now() + DURATION));
            read_messages(&stream)
        })
    });
    is_listening.recv().expect("a server");
    let client = pair.sender.namespace.enter(move || {
        sysctl("net.ipv4.tcp_congestion_control", "reno");
        let attachment = options.map(attach_with);
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let reader = stream.try_clone().expect("another handle");
        thread::spawn(move || read_messages(&reader));
        let sent = send_messages(&stream, CLIENT_ITT, Instant::now() + DURATION);
        let cwnd = tcp_info(&stream).tcpi_snd_cwnd;
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("shutdown");
        let totals = attachment.map(|attachment| attachment.totals().expect("totals"));
        (sent, cwnd, totals.map(|totals| totals.counters))
    });
    let (sent, cwnd, counters) = client.expect("a client");
    let received = server.join().expect("a server").expect("its namespace");
    assert_eq!(sent.len(), received.len());
    let latencies = sent.iter().zip(&received);
    let mut latencies: Vec<_> = latencies.map(|(sent, at)| *at - *sent).collect();
    latencies.sort_unstable();
    let result = StreamResult {
        p50: latencies[latencies.len() / 2],
        p90: latencies[latencies.len() * 9 / 10],
        cwnd,
        counters,
    };
    println!("{result:?}");
    result
}

#[test]
fn stream_to_receiver_without_dsack_performs_like_plain_tcp() {
    needs_root!();
    let plain = run_stream(None);
    let bundled = run_stream(Some(Options::default()));
    let counters = bundled.counters.expect("a bundler");
    assert_eq!((counters.hidden_losses, counters.reactions), (0, 0));
    assert!(counters.of(Outcome::NoDsack) > counters.of(Outcome::Bundled));
    assert!(bundled.p50 < plain.p50 + CLIENT_ITT / 2);
    assert!(bundled.p90 < plain.p90 + CLIENT_ITT);
    assert!(bundled.cwnd >= 10);

    let published = run_stream(Some(Options {
        loss_rule: LossRule::Ack,
        ..limit_one()
    }));
    let reactions = published.counters.expect("a bundler").reactions;
    assert!(
        reactions > 10,
        "the published rule takes delayed ACKs for losses: {reactions}"
    );
}
