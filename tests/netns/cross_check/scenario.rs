//! Real traffic over a lossy, disturbed path, captured at both ends.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pillion_lab::path::{DirectionStats, PathConfig, PathStats, Volume};
use pillion_tests::{Host, HostPair};
use pillion_trace::input;
use serde_json::Value;
use tempfile::TempDir;

use super::capture::{Capture, CapturedSegment, PacketDirection};
use crate::common::*;

/// Traffic of a scenario.
pub struct Traffic {
    /// Options of `pillion run`; `None` for plain TCP.
    pub bundling: Option<&'static [&'static str]>,
    /// Options of `pillion-lab traffic send`.
    pub streams: &'static [&'static str],
    /// Number of streams.
    pub count: &'static str,
}

/// Everything recorded during a scenario.
pub struct Scenario {
    /// Path counters from before the first stream until after the last.
    pub ledger: PathStats,
    /// Traces at the sender and at the receiver.
    pub traces: [PathBuf; 2],
    /// The receiver's message records, without their header line.
    pub records: String,
    /// The receiver's report.
    pub received: Value,
    /// The bundler's statistics.
    pub stats: Option<Value>,
    /// Data segments sent by the sender, and data segments received by the receiver.
    pub captured: [Vec<CapturedSegment>; 2],
    _folder: TempDir,
}

/// Ports without a listener. A refused connection marks a moment in both traces: before the streams
/// on the first port, after them on the second.
pub const MARKER_PORTS: [u16; 2] = [9, 10];
const PORT: u16 = 7777;

/// Runs the traffic over the path and records it.
pub fn run(path: &PathConfig, traffic: &Traffic) -> Scenario {
    let pair = HostPair::create(path);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let traces = [file("here"), file("there")];
    let hosts = [&pair.sender, &pair.receiver];
    let tcpdumps = [0, 1].map(|end| tcpdump(hosts[end], &traces[end]));
    send_marker(&pair, MARKER_PORTS[0]);
    let before = wait_until_idle(&pair);
    let captures = [
        (0, PacketDirection::Outgoing),
        (1, PacketDirection::Incoming),
    ]
    .map(|(end, direction)| Capture::start(hosts[end], direction));
    let (records, received, stats) = stream(&pair, traffic, folder.path());
    let ledger = difference(&wait_until_idle(&pair), &before);
    send_marker(&pair, MARKER_PORTS[1]);
    for (tcpdump, trace) in tcpdumps.into_iter().zip(&traces) {
        stop_tcpdump(tcpdump, trace);
    }
    Scenario {
        ledger,
        records,
        received,
        stats,
        captured: captures.map(Capture::finish),
        traces,
        _folder: folder,
    }
}

fn tcpdump(host: &Host, trace: &Path) -> Child {
    let mut command = host.namespace.command("tcpdump");
    command
        .args("-i tap0 -Z root -B 65536 -s 128 -U --immediate-mode".split(' '))
        .args(["--time-stamp-precision=nano", "-w"])
        .arg(trace)
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("tcpdump; `make setup` installs it");
    let log = BufReader::new(child.stderr.as_mut().expect("its errors"));
    let listening = |line: &String| line.contains("listening on");
    assert!(
        log.lines()
            .map_while(Result::ok)
            .any(|line| listening(&line)),
        "tcpdump does not listen"
    );
    child
}

/// Stops a capture once it contains the last marker.
fn stop_tcpdump(mut tcpdump: Child, trace: &Path) {
    eventually("the capture is complete", || {
        let Ok(packets) = input::open(trace) else {
            return false;
        };
        let refusal =
            |packet: pillion_trace::Packet| packet.flags.rst && packet.from.port == MARKER_PORTS[1];
        packets.into_iter().any(refusal)
    });
    let pid = nix::unistd::Pid::from_raw(tcpdump.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::SIGINT).expect("tcpdump runs");
    assert!(tcpdump.wait().expect("tcpdump").success());
}

fn send_marker(pair: &HostPair, port: u16) {
    let to = SocketAddr::from((pair.receiver.address, port));
    let refused = pair.sender.namespace.enter(move || TcpStream::connect(to));
    let error = refused.expect("enter").expect_err("no listener");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

/// Returns the path's counters once all connections have ended and the path is empty.
fn wait_until_idle(pair: &HostPair) -> PathStats {
    eventually("all connections have ended", || {
        [&pair.sender, &pair.receiver].iter().all(|host| {
            let table = || fs::read_to_string("/proc/thread-self/net/tcp");
            let table = host.namespace.enter(table).expect("enter");
            table.expect("the table").lines().skip(1).all(is_idle)
        })
    });
    let is_empty = |counts: &DirectionStats| counts.inside.packets == 0;
    eventually("the path is empty", || {
        let ledger = pair.path.stats();
        is_empty(&ledger.forward) && is_empty(&ledger.backward)
    });
    pair.path.stats()
}

/// True for a connection of the kernel's table that sends nothing more.
fn is_idle(line: &str) -> bool {
    const TIME_WAIT: &str = "06";
    line.split_whitespace().nth(3) == Some(TIME_WAIT)
}

/// Sends and receives. Returns the records, the receiver's report and the bundler's statistics.
fn stream(pair: &HostPair, traffic: &Traffic, folder: &Path) -> (String, Value, Option<Value>) {
    let [records, stats] = ["records", "account"].map(|name| folder.join(name));
    let to = SocketAddr::from((pair.receiver.address, PORT)).to_string();
    let receive = ["traffic", "receive", "--json", "--streams", traffic.count];
    let receiver = lab_in(&pair.receiver.namespace, &receive)
        .args(["--listen", &to, "--records"])
        .arg(&records)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a receiver");
    await_listening(&pair.receiver.namespace, PORT);
    let send = ["traffic", "send", "--to", &to, "--streams", traffic.count];
    let sender_output = match traffic.bundling {
        None => lab_in(&pair.sender.namespace, &send),
        Some(options) => {
            let mut run = pillion_in(&pair.sender.namespace, &["run", "--stats"]);
            run.arg(&stats).args(options).args(["--", PILLION_LAB]);
            run.args(send);
            run
        }
    }
    .args(traffic.streams)
    .output()
    .expect("a sender");
    assert!(sender_output.status.success(), "{}", stderr(&sender_output));
    let received = receiver.wait_with_output().expect("the receiver");
    let received = serde_json::from_slice(&received.stdout).expect("a report");
    let (_, records) = fs::read_to_string(records)
        .expect("records")
        .split_once('\n')
        .map(|(header, rest)| (header.to_owned(), rest.to_owned()))
        .expect("records");
    let stats = traffic.bundling.map(|_| read_json(&stats));
    (records, received, stats)
}

fn difference(after: &PathStats, before: &PathStats) -> PathStats {
    let volume = |after: Volume, before: Volume| Volume {
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
    };
    let counts = |after: &DirectionStats, before: &DirectionStats| DirectionStats {
        received: volume(after.received, before.received),
        delivered: volume(after.delivered, before.delivered),
        lost: volume(after.lost, before.lost),
        duplicated: volume(after.duplicated, before.duplicated),
        reordered: volume(after.reordered, before.reordered),
        queue_full: volume(after.queue_full, before.queue_full),
        device_refused: volume(after.device_refused, before.device_refused),
        ..DirectionStats::default()
    };
    PathStats {
        forward: counts(&after.forward, &before.forward),
        backward: counts(&after.backward, &before.backward),
        device_gone: after.device_gone.clone(),
    }
}
