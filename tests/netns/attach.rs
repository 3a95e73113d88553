//! `pillion attach`: selected connections of the whole host, and no others.

use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use pillion_bpf::host::interruption::retry;
use pillion_tests::HostPair;
use serde_json::Value;

use crate::common::*;

/// Runs `work` while pillion is attached on the sender's host. Returns its statistics.
fn with_attach(pair: &HostPair, options: &[&str], work: impl FnOnce()) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats.json");
    let mut arguments = vec!["attach", "--stats", stats.to_str().unwrap()];
    arguments.extend(options);
    let mut attach = pillion_in(&pair.sender.namespace, &arguments)
        .spawn()
        .unwrap();
    await_attached(attach.id());
    work();
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
    read_json(&stats)
}

/// Starts a sender of two thin streams.
pub fn send(pair: &HostPair, port: u16, seconds: &str) -> Child {
    let to = format!("10.77.0.2:{port}");
    let arguments = [
        "traffic",
        "send",
        "--to",
        &to,
        "--streams",
        "2",
        "--itt",
        "10ms",
        "--duration",
        &format!("{seconds}s"),
    ];
    lab_in(&pair.sender.namespace, &arguments)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Sends to all ports concurrently; the receivers verify every byte.
pub fn send_to(pair: &HostPair, ports: &[u16]) {
    let receivers: Vec<_> = ports.iter().map(|port| receive(pair, *port, 2)).collect();
    let senders = ports.iter().map(|port| send(pair, *port, "2"));
    let senders: Vec<_> = senders.collect();
    for mut child in senders.into_iter().chain(receivers) {
        assert!(child.wait().unwrap().success());
    }
}

/// Runs `work` while two thin streams to port 7001 send, however long it takes on a busy machine.
pub fn with_streams(pair: &HostPair, work: impl FnOnce()) {
    let _ends = [receive(pair, 7001, 2), send(pair, 7001, "60")].map(KillOnDrop);
    work();
}

#[test]
fn port_rule_bundles_matching_connections_only() {
    needs_root!();
    let pair = clean_pair();
    let stats = with_attach(&pair, &["--port", "7001"], || send_to(&pair, &[7001, 7002]));
    assert_eq!(stats["connections"], 2);
    assert!(stats["outcomes"]["bundled"].as_u64().unwrap() > 200);
}

#[test]
fn peer_rule_bundles_matching_connections_only() {
    needs_root!();
    let pair = clean_pair();
    let near = with_attach(&pair, &["--peer", "10.77.0.0/24"], || {
        send_to(&pair, &[7001]);
    });
    assert_eq!(near["connections"], 2);
    let far = with_attach(&pair, &["--peer", "192.0.2.1"], || send_to(&pair, &[7001]));
    assert_eq!(far["connections"], 0);
}

#[test]
fn connections_of_other_namespaces_are_not_bundled() {
    needs_root!();
    let (pair, other) = (clean_pair(), clean_pair());
    let stats = with_attach(&pair, &["--all"], || send_to(&other, &[7001]));
    assert_eq!(stats["connections"], 0);
}

#[test]
fn two_processes_on_one_device_never_bundle_twice() {
    needs_root!();
    let pair = clean_pair();
    let mut inner = Value::Null;
    let outer = with_attach(&pair, &["--port", "7001"], || {
        inner = with_attach(&pair, &["--port", "7001"], || send_to(&pair, &[7001]));
    });
    let bundled = |stats: &Value| stats["outcomes"]["bundled"].as_u64().unwrap_or(0);
    let overlap = |stats: &Value| stats["outcomes"]["overlap"].as_u64().unwrap_or(0);
    // With tcx the one attached last runs first, with clsact the other one.
    let (first, second) = match bundled(&inner) {
        0 => (outer, inner),
        _ => (inner, outer),
    };
    assert!(bundled(&first) > 200, "{first}");
    assert_eq!(
        overlap(&second),
        bundled(&first),
        "what one bundled, the other leaves alone: {second}"
    );
}

#[test]
fn clsact_and_tcx_processes_never_bundle_twice() {
    needs_root!();
    let pair = clean_pair();
    let mut by_tcx = Value::Null;
    let by_clsact = with_attach(&pair, &["--port", "7001", "--hook", "clsact"], || {
        let options = ["--port", "7001", "--hook", "tcx", "--thin", "spifl:1"];
        by_tcx = with_attach(&pair, &options, || send_to(&pair, &[7001]));
    });
    let count = |stats: &Value, outcome| stats["outcomes"][outcome].as_u64().unwrap_or(0);
    // tcx runs first, and bundles only the second packet in flight.
    assert_eq!(count(&by_clsact, "overlap"), count(&by_tcx, "bundled"));
    assert!(count(&by_clsact, "bundled") > 100, "{by_clsact}");
}

#[test]
fn flows_lists_bundled_connections_and_outcomes() {
    needs_root!();
    let pair = clean_pair();
    with_attach(&pair, &["--port", "7001"], || {
        let mut seen = Vec::new();
        with_streams(&pair, || {
            eventually("both connections have bundled", || {
                let output = pillion(&["flows", "--json"]);
                let all: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
                seen = all
                    .into_iter()
                    .filter(|flow| flow["peer"] == "10.77.0.2:7001")
                    .collect();
                seen.len() == 2 && seen.iter().all(|flow| flow["outcomes"]["bundled"].is_u64())
            });
            assert!(stdout(&pillion(&["flows"])).contains("10.77.0.2:7001"));
        });
        let rtt = seen[0]["rtt_min_us"].as_u64().unwrap();
        assert!((40_000..200_000).contains(&rtt), "{rtt}");
    });
}

#[test]
fn dry_run_prints_plan_and_exits() {
    needs_root!();
    let pair = clean_pair();
    let arguments = [
        "attach",
        "--dry-run",
        "--port",
        "7001",
        "--peer",
        "192.0.2.0/24",
        "--nodelay",
        "--rto-min",
        "62.5ms",
    ];
    let output = pillion_in(&pair.sender.namespace, &arguments)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = stdout(&output);
    assert!(
        text.starts_with("would bundle connections with port 7001 and peer 192.0.2.0/24 on tap0\n"),
        "{text}"
    );
    let (_, options_line) = text.split_once("\nwith ").expect("the bundling options");
    assert!(
        options_line
            .starts_with("--nodelay --rto-min 62.5ms --thin dpifl:10 --thin-rtt min --level auto"),
        "{options_line}"
    );
}

#[test]
fn governor_thread_has_only_cap_bpf() {
    needs_root!();
    let pair = clean_pair();
    let mut attach = pillion_in(&pair.sender.namespace, &["attach", "--port", "7001"])
        .spawn()
        .unwrap();
    await_attached(attach.id());
    let governors = || -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", attach.id())).unwrap();
        tasks
            .filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok())
            .filter(|status| status.starts_with("Name:\tgovernor\n"))
            .collect()
    };
    let bpf = format!("CapPrm:\t{:016x}\n", caps::Capability::CAP_BPF.bitmask());
    // The thread sets its name and drops its capabilities once it is scheduled.
    eventually("the governor has dropped its capabilities", || {
        governors().iter().any(|status| status.contains(&bpf))
    });
    let statuses = governors();
    assert_eq!(statuses.len(), 1);
    assert!(statuses[0].contains(&bpf), "{}", statuses[0]);
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
}

/// Both ends call connect(), so TCP treats the connection as an accepted one.
#[test]
fn simultaneous_open_counts_as_connect() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\ndirection = \"connect\"\n").unwrap();
    let options = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut attach = pillion_in(&namespace, &options);
    let mut attach = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(attach.id());
    let connected = namespace.enter(|| {
        let socket = socket(
            AddressFamily::Inet,
            SockType::Stream,
            SockFlag::SOCK_CLOEXEC,
            None,
        );
        let socket = socket.unwrap();
        let own = SockaddrIn::new(127, 0, 0, 1, 7001);
        bind(socket.as_raw_fd(), &own).unwrap();
        retry(|| connect(socket.as_raw_fd(), &own)).expect("connect to itself");
        socket
    });
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
    assert!(
        stdout(&status).contains("covers 1 connection now"),
        "{status:?}"
    );
    drop(connected);
}
