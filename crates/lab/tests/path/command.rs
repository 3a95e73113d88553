//! `pillion-lab path` between two hosts. Needs root.

use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::Namespace;
use pillion_lab::path::PathStats;

use crate::common::{address, configure, inside, ip, root};

fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_pillion-lab"))
        .arg("path")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn has_device() -> bool {
    let show = Command::new("ip").args(["link", "show", "path"]).output();
    show.unwrap().status.success()
}

/// Starts a path between two new namespaces, and waits for its devices.
fn start_between(namespaces: &[Namespace; 2], options: &[&str]) -> Child {
    let ends = namespaces
        .each_ref()
        .map(|it| it.path().display().to_string());
    let path = start(&[&[ends[0].as_str(), ends[1].as_str()], options].concat());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !namespaces.iter().all(|it| inside(it, has_device)) {
        assert!(Instant::now() < deadline, "no devices");
        thread::sleep(Duration::from_millis(20));
    }
    path
}

#[test]
fn path_command_loses_packets_until_interrupted() {
    if !root("path_command_loses_packets_until_interrupted") {
        return;
    }
    let namespaces = [(); 2].map(|()| Namespace::create().unwrap());
    let path = start_between(&namespaces, &["--rtt", "20ms", "--loss-back", "100%"]);
    let [near, far] = [0, 1].map(|host: usize| {
        inside(&namespaces[host], || {
            configure("path", host, 1 - host);
            let socket = UdpSocket::bind((address(host), 9)).unwrap();
            socket.connect((address(1 - host), 9)).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(2)))
                .unwrap();
            socket
        })
    });
    let mut datagram = [0; 1];
    for _ in 0..3 {
        near.send(&datagram).unwrap();
        far.recv(&mut datagram).unwrap();
        far.send(&datagram).unwrap();
    }
    assert!(near.recv(&mut datagram).is_err());
    kill(Pid::from_raw(path.id().cast_signed()), Signal::SIGINT).unwrap();
    let Output { status, stdout, .. } = path.wait_with_output().unwrap();
    assert!(status.success());
    let stats: PathStats = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(stats.forward.delivered.packets, 3);
    assert_eq!(stats.backward.lost.packets, 3);
    assert!(!inside(&namespaces[0], has_device));
}

#[test]
fn path_command_ends_when_device_is_deleted() {
    if !root("path_command_ends_when_device_is_deleted") {
        return;
    }
    let namespaces = [(); 2].map(|()| Namespace::create().unwrap());
    let path = start_between(&namespaces, &[]);
    inside(&namespaces[1], || ip("link delete path"));
    let Output { status, stdout, .. } = path.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(3));
    let stats: PathStats = serde_json::from_slice(&stdout).unwrap();
    assert_eq!(stats.device_gone.as_deref(), Some("path"));
}

#[test]
fn path_command_reports_round_trip_above_maximum() {
    let Output { status, stderr, .. } = start(&["1", "1", "--rtt", "121s"])
        .wait_with_output()
        .unwrap();
    assert_eq!(status.code(), Some(2));
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(stderr.contains("forward.delay"), "{stderr}");
}
