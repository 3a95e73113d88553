//! Conditions in `pillion status` and the metrics: how pillion can be useless or degraded.

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use pillion_lab::Namespace;
use pillion_tests::HostPair;

use crate::common::*;
use crate::namespaces::Sleeper;
use crate::service::{ServiceGuard, scrape, status, unix_endpoint, value};

/// Waits until `status` has this exit status and this line.
fn expect_status(namespace: &Namespace, code: i32, line: &str) {
    // Long enough for programs to be loaded on a busy machine.
    within(Duration::from_secs(60), line, || {
        let (found, text) = status(namespace);
        found == Some(code) && text.lines().any(|it| it == line)
    });
}

#[test]
fn full_service_fails_status() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (_folder, socket, endpoint) = unix_endpoint();
    let options = [
        "--dev",
        "lo",
        "--max-connections",
        "4",
        "--metrics",
        &endpoint,
    ];
    let service = ServiceGuard::start(&namespace, &options);
    let condition = "pillion_condition{condition=\"full\"}";
    assert_eq!(value(&scrape(&socket), condition), 0.0);
    let connections = namespace.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:7001").unwrap();
        let to = listener.local_addr().unwrap();
        (TcpStream::connect(to).unwrap(), listener.accept().unwrap())
    });
    // Both ends take all slots of one user, and none is refused.
    let line = "  degraded: --max-connections is reached: further connections stay plain";
    expect_status(&namespace, 1, line);
    assert_eq!(value(&scrape(&socket), condition), 1.0);
    drop(connections);
    expect_status(&namespace, 3, "  attached to lo");
    assert_eq!(value(&scrape(&socket), condition), 0.0);
    service.stop();
}

#[test]
fn replaced_binary_is_noted() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let (folder, socket, endpoint) = unix_endpoint();
    let program = folder.path().join("pillion");
    let copy = || Command::new("cp").arg(PILLION).arg(&program).status();
    assert!(copy().unwrap().success());
    let mut attach = namespace.command(program.to_str().unwrap());
    attach.args(["attach", "--all", "--dev", "lo", "--metrics", &endpoint]);
    let mut service = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(service.id());
    let line = "  note: the program's file was replaced: hand over to the new version";
    eventually("the service is ready", || status(&namespace).0 == Some(3));
    assert!(!status(&namespace).1.contains(line));
    fs::remove_file(&program).unwrap();
    assert!(copy().unwrap().success());
    expect_status(&namespace, 3, line);
    let condition = "pillion_condition{condition=\"stale_binary\"}";
    assert_eq!(value(&scrape(&socket), condition), 1.0);
    send_signal(&service, Signal::SIGTERM);
    assert!(service.wait().unwrap().success());
}

#[test]
fn trial_is_shown_and_noted_by_service() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let (folder, socket, endpoint) = unix_endpoint();
    let state = folder.path().join("state");
    let trial = ["trial", "--quiet", "--state", state.to_str().unwrap()];
    let mut trial = pillion_in(namespace, &trial);
    let trial = trial.stdout(Stdio::null()).stderr(Stdio::null());
    let mut trial = trial.spawn().unwrap();
    expect_status(namespace, 1, "  attached to tap0");
    let (_, text) = status(namespace);
    assert!(text.contains("no `pillion attach`"), "{text}");
    let header = format!(", process {}, for ", trial.id());
    assert!(
        text.contains("pillion trial ") && text.contains(&header),
        "{text}"
    );
    let service = ServiceGuard::start(namespace, &["--metrics", &endpoint]);
    let note = "  note: `pillion trial` is running here, and segments bundled by both distort its \
                result";
    expect_status(namespace, 3, note);
    let condition = "pillion_condition{condition=\"trial\"}";
    assert_eq!(value(&scrape(&socket), condition), 1.0);
    send_signal(&trial, Signal::SIGTERM);
    assert!(trial.wait().unwrap().success());
    assert_eq!(value(&scrape(&socket), condition), 0.0);
    service.stop();
}

#[test]
fn namespace_served_from_outside_shows_its_service() {
    needs_root!();
    let [outside, inside, other] = [(); 3].map(|()| namespace_with_loopback());
    let sleeper = Sleeper::of(&inside);
    let options = ["--dev", "lo", "--netns", &sleeper.pid()];
    let service = ServiceGuard::start(&outside, &options);
    let line = "  bundling connections with port 7001";
    expect_status(&inside, 3, line);
    expect_status(&outside, 3, line);
    let (code, text) = status(&other);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no `pillion attach`"), "{text}");
    service.stop();
}

/// Connects the sender to port 7001 of the receiver, without Nagle's algorithm.
fn connect_to_receiver(pair: &HostPair) -> (TcpStream, TcpStream) {
    let listen = || TcpListener::bind("10.77.0.2:7001").unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let connect = || TcpStream::connect("10.77.0.2:7001").unwrap();
    let near = pair.sender.namespace.enter(connect).unwrap();
    near.set_nodelay(true).unwrap();
    (near, listener.accept().unwrap().0)
}

#[test]
fn segments_that_leave_elsewhere_are_noted() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let service = ServiceGuard::start(namespace, &["--dev", "lo"]);
    let (mut near, _far) = connect_to_receiver(&pair);
    for _ in 0..150 {
        near.write_all(&[7; 100]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    let line = "  note: more than half of the segments leave by devices without pillion";
    expect_status(namespace, 0, line);
    service.stop();
}

#[test]
fn segments_to_peers_without_sack_are_noted() {
    needs_root!();
    let pair = clean_pair();
    let namespace = &pair.sender.namespace;
    let mut sysctl = namespace.command("sysctl");
    let set = sysctl.args(["-q", "-w", "net.ipv4.tcp_sack=0"]).status();
    assert!(set.unwrap().success());
    let service = ServiceGuard::start(namespace, &[]);
    let (mut near, _far) = connect_to_receiver(&pair);
    for _ in 0..300 {
        near.write_all(&[7; 100]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    let line = "  note: most segments with data outstanding cannot be bundled: `pillion flows` lists \
                the reasons";
    expect_status(namespace, 0, line);
    service.stop();
}

#[test]
fn rule_or_device_without_match_is_a_condition() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let ip = |words: &str| {
        let mut ip = namespace.command("ip");
        assert!(ip.args(words.split(' ')).status().unwrap().success());
    };
    ip("link add d0 type veth peer name e0");
    for (options, missing) in [
        (
            ["--cgroup", "/pillion-no-such"],
            "no cgroup named /pillion-no-such",
        ),
        (
            ["--dev", "d0"],
            "no network device `d0` exists: nothing is bundled there",
        ),
    ] {
        let (_folder, socket, endpoint) = unix_endpoint();
        let options = [&options[..], &["--dev", "lo", "--metrics", &endpoint]].concat();
        let service = ServiceGuard::start(&namespace, &options);
        ip("link set d0 name d1");
        expect_status(&namespace, 3, "  note: a part of the rules covers nothing");
        assert!(status(&namespace).1.contains(missing));
        let condition = "pillion_condition{condition=\"unmatched_rules\"}";
        assert_eq!(value(&scrape(&socket), condition), 1.0);
        ip("link set d1 name d0");
        service.stop();
    }
}
