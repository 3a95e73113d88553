//! A share of the connections that stays plain, and the withdrawal of bundling that harms.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use pillion_tests::HostPair;
use serde_json::Value;

use crate::common::*;
use crate::config::AttachWithRules;
use crate::handover::{NewProcess, exits_successfully, ready_pids};
use crate::service::{ServiceGuard, scrape, status, unix_endpoint, value};

const PORT: u16 = 7001;

/// Stops the traffic, also after a failed assertion.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Messages of a connection, one every 20 ms.
const MESSAGES: usize = 250;

/// Sends on ten connections at a time, and replaces those that are complete or reset.
fn send_until(stop: &AtomicBool) {
    let connect = || {
        let stream = TcpStream::connect(("10.77.0.2", PORT)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    };
    let mut streams = [(); 10].map(|()| connect());
    let mut round = 0;
    while !stop.load(Ordering::Relaxed) {
        for (index, stream) in streams.iter_mut().enumerate() {
            let is_complete = (round + index * 25) % MESSAGES == MESSAGES - 1;
            if is_complete || stream.write_all(&[7; 120]).is_err() {
                *stream = connect();
            }
        }
        round += 1;
        thread::sleep(Duration::from_millis(20));
    }
}

/// Accepts connections, and reads all data.
fn receive_until(stop: &AtomicBool, listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    let (mut streams, mut buffer) = (Vec::new(), [0; 4096]);
    while !stop.load(Ordering::Relaxed) {
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            streams.push(stream);
        }
        streams.retain_mut(|stream| {
            loop {
                match stream.read(&mut buffer) {
                    Ok(1..) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    _ => return false,
                }
            }
        });
        thread::sleep(Duration::from_millis(10));
    }
}

/// Makes a middlebox reset connections that send larger packets than plain ones.
fn turn_harmful(pair: &HostPair) {
    let resets = "table ip filter {
        chain input {
            type filter hook input priority 0
            tcp dport 7001 meta length > 250 reject with tcp reset
        }
    }";
    let set = pair.receiver.namespace.run("nft", &["-f", "-"], resets);
    let set = set.expect("nft runs");
    assert!(set.status.success(), "{}", stderr(&set));
}

const TIMEOUT: Duration = Duration::from_secs(90);

/// Waits until the new process of a hand-over is the only one.
fn await_new_process(namespace: &Namespace, old: u32) -> NewProcess {
    let mut new_process = None;
    within(TIMEOUT, "the new process is ready", || {
        new_process = match ready_pids(namespace)[..] {
            [pid] if pid != old => Some(NewProcess(pid)),
            _ => None,
        };
        new_process.is_some()
    });
    new_process.unwrap()
}

#[test]
fn path_that_turns_harmful_withdraws_bundling() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let (_folder, socket, endpoint) = unix_endpoint();
    let options = ["--holdback", "50%", "--metrics", &endpoint];
    let service = ServiceGuard::start(namespace, &options);
    let listen = || TcpListener::bind(("10.77.0.2", PORT)).unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let counter = |name: &str, arm: &str| {
        let sample = format!("pillion_holdback_{name}_total{{rule=\"1\",arm=\"{arm}\"}}");
        value(&scrape(&socket), &sample)
    };
    let condition = || {
        value(
            &scrape(&socket),
            "pillion_condition{condition=\"withdrawn\"}",
        )
    };
    let has_line = |line: &str| {
        let (_, text) = status(namespace);
        text.lines().any(|it| it.starts_with(line))
    };
    let stop = AtomicBool::new(false);
    let compared = "  holdback 50% of rule 1: no clear difference; lateness in ms: ";
    let withdrawn = "  holdback 50% of rule 1: bundling withdrawn; lateness in ms: ";
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| receive_until(&stop, &listener));
        for _ in 0..4 {
            scope.spawn(|| namespace.enter(|| send_until(&stop)).unwrap());
        }
        within(TIMEOUT, "a window is complete", || has_line(compared));
        assert_eq!(status(namespace).0, Some(0));
        let connections = ["bundled", "plain"].map(|arm| counter("connections", arm));
        assert!(connections.iter().all(|it| *it > 5.0), "{connections:?}");
        assert_eq!(
            (counter("cut_connections", "bundled"), condition()),
            (0.0, 0.0)
        );
        turn_harmful(&pair);
        within(TIMEOUT, "bundling is withdrawn", || has_line(withdrawn));
        let degraded =
            "  degraded: bundling was withdrawn from a rule: plain connections were better";
        within(TIMEOUT, "status fails", || {
            status(namespace).0 == Some(1) && has_line(degraded)
        });
        // On a busy machine, waiting messages leave in segments as large as bundles.
        let cut = ["bundled", "plain"].map(|arm| counter("cut_connections", arm));
        assert!(cut[0] > cut[1], "{cut:?}");
        assert_eq!(condition(), 1.0);
        // The hand-over passes the withdrawal on: no connection of any age is bundled.
        kill(Pid::from_raw(service.pid().cast_signed()), Signal::SIGUSR2).unwrap();
        let _new_process = await_new_process(namespace, service.pid());
        within(TIMEOUT, "the withdrawal is shown", || has_line(withdrawn));
        let outcome = |name: &str| {
            let sample = format!("pillion_data_segments_total{{outcome=\"{name}\"}}");
            value(&scrape(&socket), &sample)
        };
        within(TIMEOUT, "segments leave", || {
            outcome("suppressed") > 1_000.0
        });
        assert_eq!(outcome("bundled"), 0.0);
    });
}

#[test]
fn run_compares_holdback_and_reports_it() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.receiver.namespace;
    let listen = ["traffic", "receive", "--listen", "10.77.0.2:7001"];
    let mut receiving = lab_in(namespace, &listen);
    let mut receiving = receiving.stdout(Stdio::null()).spawn().unwrap();
    await_listening(namespace, PORT);
    let run = ["run", "--holdback", "50%", "--", PILLION_LAB];
    let send = ["traffic", "send", "--to", "10.77.0.2:7001", "--itt", "30ms"];
    let streams = ["--streams", "30", "--duration", "25s"];
    let arguments = [&run[..], &send, &streams].concat();
    let output = pillion_in(&pair.sender.namespace, &arguments).output();
    receiving.kill().unwrap();
    receiving.wait().unwrap();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let log = stderr(&output);
    let line = log
        .lines()
        .find(|it| it.contains("holdback 50% of rule 1: "));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    assert!(line.contains("; lateness in ms: "), "{line}");
}

/// Returns the rules file with a rule for PORT.
fn rules(holdback: &str) -> String {
    format!("[[rule]]\nport = {PORT}\n{holdback}")
}

#[test]
fn reload_adds_changes_and_removes_holdback() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let mut old = AttachWithRules::start(&pair, &rules(""));
    // The loaded programs observe no connections.
    old.reload(&rules("holdback = \"5%\"\n"));
    let line = "pillion: `holdback` added: handing over to a process that compares connections";
    assert_eq!(old.line(), line);
    let new_process = await_new_process(namespace, old.process.id());
    assert!(exits_successfully(&mut old.process));
    let reload = |holdback: &str| {
        std::fs::write(old.file(), rules(holdback)).unwrap();
        kill(Pid::from_raw(new_process.0.cast_signed()), Signal::SIGHUP).unwrap();
    };
    let service = || {
        let json = pillion_in(namespace, &["status", "--json"])
            .output()
            .unwrap();
        let all: Value = serde_json::from_slice(&json.stdout).unwrap();
        all[0].clone()
    };
    let shares = || {
        let holdbacks = service()["holdbacks"].as_array().unwrap().clone();
        let shares = holdbacks
            .iter()
            .map(|it| it["holdback_ppm"].as_u64().unwrap());
        shares.collect::<Vec<_>>()
    };
    let outcome = |name: &str| service()["totals"]["outcomes"][name].as_u64().unwrap_or(0);
    let listen = || TcpListener::bind(("10.77.0.2", PORT)).unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| receive_until(&stop, &listener));
        scope.spawn(|| namespace.enter(|| send_until(&stop)).unwrap());
        within(TIMEOUT, "5 % are held back", || shares() == [50_000]);
        reload("holdback = \"50%\"\n");
        within(TIMEOUT, "half are held back", || {
            let plain = service()["holdbacks"][0]["plain"]["connections"].clone();
            shares() == [500_000] && outcome("suppressed") > 200 && plain.as_u64() > Some(0)
        });
        reload("");
        within(TIMEOUT, "none is held back", || shares().is_empty());
        let before = ["suppressed", "bundled"].map(outcome);
        within(TIMEOUT, "connections are bundled", || {
            outcome("bundled") > before[1] + 1_000
        });
        // The last readings before the reload may be older than it.
        let suppressed = outcome("suppressed") - before[0];
        assert!(suppressed < 100, "{before:?}, {suppressed}");
        // The programs of the next process observe no connections, so its reload hands over again.
        kill(Pid::from_raw(new_process.0.cast_signed()), Signal::SIGUSR2).unwrap();
        let second = await_new_process(namespace, new_process.0);
        std::fs::write(old.file(), rules("holdback = \"50%\"\n")).unwrap();
        kill(Pid::from_raw(second.0.cast_signed()), Signal::SIGHUP).unwrap();
        let _third = await_new_process(namespace, second.0);
        within(TIMEOUT, "half are held back again", || {
            outcome("suppressed") > 200
        });
    });
}
