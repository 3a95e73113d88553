//! `pillion attach --netns`: other network namespaces, which appear and vanish.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command};
use std::{fs, thread};

use nix::sys::signal::Signal;
use nix::sys::socket::{SockaddrStorage, connect};
use pillion_bpf::host::interruption::retry;
use pillion_bpf::host::pillion::{BUNDLE, get, set};
use pillion_lab::Namespace;
use pillion_tests::disconnect;
use serde_json::Value;

use crate::attach::send_to;
use crate::common::*;
use crate::devices::{Attach, Hosts};
use crate::hooks::tc_state;

/// Idle process in a namespace.
pub struct Sleeper(Child);

impl Sleeper {
    pub fn of(namespace: &Namespace) -> Self {
        let mut sleep = namespace.command("sleep");
        Self(sleep.arg("300").spawn().unwrap())
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Name of a process's namespace, as `ip netns` assigns it.
pub struct NetnsName(pub String);

impl NetnsName {
    pub fn assign(sleeper: &Sleeper) -> Self {
        Self::assign_with_suffix(sleeper, "")
    }

    /// Assigns a name with this suffix.
    pub fn assign_with_suffix(sleeper: &Sleeper, suffix: &str) -> Self {
        let pid = sleeper.pid();
        let name = format!("pillion-test-{pid}{suffix}");
        Self::attach(&name, &pid);
        Self(name)
    }

    pub fn attach(name: &str, pid: &str) {
        let mut ip = Command::new("ip");
        let status = ip.args(["netns", "attach", name, pid]).status();
        assert!(status.unwrap().success());
    }

    pub fn delete(&self) {
        let mut ip = Command::new("ip");
        let status = ip.args(["netns", "delete", &self.0]).status();
        assert!(status.unwrap().success());
    }
}

impl Drop for NetnsName {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.0])
            .status();
    }
}

#[test]
fn only_streams_of_named_namespaces_are_bundled() {
    needs_root!();
    let [one, two, own] = [(); 3].map(|()| clean_pair());
    let sleepers = [&one, &two].map(|pair| Sleeper::of(&pair.sender.namespace));
    let name = NetnsName::assign(&sleepers[0]);
    let options = ["--netns", &name.0, "--netns", &sleepers[1].pid()];
    let attach = Attach::start_in(&own.sender.namespace, &options);
    thread::scope(|scope| {
        for pair in [&one, &two, &own] {
            scope.spawn(move || send_to(pair, &[7001]));
        }
    });
    let stats = attach.stop();
    assert_eq!(stats["connections"], 4);
    // One pair has 400 segments.
    assert!(
        stats["outcomes"]["bundled"].as_u64().unwrap() > 400,
        "{stats}"
    );
}

#[test]
fn older_connection_of_namespace_is_adopted_and_listed() {
    needs_root!();
    let pair = clean_pair();
    let sleeper = Sleeper::of(&pair.sender.namespace);
    let receiver = &pair.receiver.namespace;
    let listener = receiver.enter(|| TcpListener::bind("10.77.0.2:7777"));
    let listener = listener.unwrap().unwrap();
    let sender = &pair.sender.namespace;
    let stream = sender.enter(|| TcpStream::connect("10.77.0.2:7777"));
    let mut stream = stream.unwrap().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let own = namespace_with_loopback();
    let attach = Attach::start_in(&own, &["--netns", &sleeper.pid()]);
    let listed = pillion(&["flows", "--json"]);
    let flows: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let file = format!("/proc/{}/ns/net", sleeper.pid());
    let inode = fs::metadata(file).unwrap().ino();
    assert!(flows.iter().any(|flow| flow["netns"] == inode), "{flows:?}");
    for _ in 0..20 {
        stream.write_all(&[7; 100]).unwrap();
    }
    drop(stream);
    assert_eq!(accepted.read_to_end(&mut Vec::new()).unwrap(), 2000);
    let stats = attach.stop();
    assert_eq!(stats["connections"], 1);
    assert!(
        stats["outcomes"]["bundled"].as_u64().unwrap() > 0,
        "{stats}"
    );
}

#[test]
fn namespace_name_follows_whichever_namespace_has_it() {
    needs_root!();
    let hosts = [Hosts::create(), Hosts::create()];
    let sleepers = [&hosts[0], &hosts[1]].map(|hosts| Sleeper::of(&hosts.near));
    let name = NetnsName::assign(&sleepers[0]);
    let own = namespace_with_loopback();
    let options = ["--netns", &name.0, "--dev", "a0", "--dev", "v0"];
    hosts[0].join("v0");
    let mut attach = Attach::start_in(&own, &options);
    let links = attach.links();
    name.delete();
    attach.expect_line(&format!("detached from network namespace {}", name.0));
    assert_eq!(attach.links(), links - 4);
    NetnsName::attach(&name.0, &sleepers[1].pid());
    attach.wait_for_line(&format!("attached to network namespace {}", name.0));
    attach.wait_for_line(&format!("attached to a0 in {}", name.0));
    hosts[1].join("v0");
    attach.wait_for_line(&format!("attached to v0 in {}", name.0));
    hosts[1].ip("link set v0 up");
    hosts[1].send_over("v0", 50);
    let stats = attach.stop();
    assert_eq!(stats["connections"], 1);
    assert_eq!(stats["new_bytes"], 5000);
}

#[test]
fn namespace_of_pid_is_released_when_process_exits() {
    needs_root!();
    let own = namespace_with_loopback();
    let namespace = Namespace::create().unwrap();
    let sleeper = Sleeper::of(&namespace);
    let pid = sleeper.pid();
    let ip = |inside: &Namespace, arguments: &str| {
        let mut ip = inside.command("ip");
        ip.args(arguments.split(' ')).output().unwrap()
    };
    let pair = format!("link add v0 type veth peer name v1 netns {pid}");
    assert!(ip(&own, &pair).status.success());
    assert!(ip(&namespace, "link set v1 up").status.success());
    drop(namespace);
    let mut attach = Attach::start_in(&own, &["--netns", &pid]);
    let links = attach.links();
    drop(sleeper);
    attach.expect_line(&format!("detached from network namespace {pid}"));
    assert_eq!(attach.links(), links - 2);
    eventually("the namespace and v0 are destroyed", || {
        !stdout(&ip(&own, "link show")).contains("v0")
    });
    attach.stop();
}

#[test]
fn filters_in_other_namespaces_are_removed_at_exit_and_kill() {
    needs_root!();
    let hosts = Hosts::create();
    let sleeper = Sleeper::of(&hosts.near);
    let own = namespace_with_loopback();
    let before = tc_state(&hosts, "a0");
    let options = ["--netns", &sleeper.pid(), "--hook", "clsact"];
    let attach = Attach::start_in(&own, &options);
    assert!(tc_state(&hosts, "a0").contains("pillion"));
    attach.stop();
    assert_eq!(tc_state(&hosts, "a0"), before);
    let mut attach = Attach::start_in(&own, &options);
    send_signal(&attach.process, Signal::SIGKILL);
    attach.process.wait().unwrap();
    eventually("the filters are removed", || {
        !tc_state(&hosts, "a0").contains("pillion")
    });
}

/// Connects two sockets over loopback and returns both ends.
fn connect_loopback(host: &Namespace) -> [TcpStream; 2] {
    let ends = host.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0]
    });
    ends.unwrap()
}

/// Otherwise each accepted connection would take memory that no limit counts.
#[test]
fn listener_request_is_dropped_with_its_namespace() {
    needs_root!();
    let hosts = [(); 2].map(|()| namespace_with_loopback());
    let sleepers = hosts.each_ref().map(Sleeper::of);
    let names = sleepers.each_ref().map(NetnsName::assign);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = |name: &str| {
        let text = format!("netns = [\"{name}\"]\n[[rule]]\nthin = \"always\"\n");
        fs::write(&file, text).unwrap();
    };
    rules(&names[0].0);
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let mut attach = Attach::spawn(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    assert!(attach.next_line().contains("bundling by 1 rule"));
    let mut switch_to = |name: &str| {
        rules(name);
        send_signal(&attach.process, Signal::SIGHUP);
        while !attach.next_line().contains("reloaded") {}
    };
    let listener = hosts[0].enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let listener = listener.unwrap();
    let to = listener.local_addr().unwrap();
    let accept = || {
        let near = hosts[0].enter(move || TcpStream::connect(to).unwrap());
        [near.unwrap(), listener.accept().unwrap().0]
    };
    set(&listener, BUNDLE, 0).expect("opt-out is accepted");
    let [_near, before] = accept();
    assert_eq!(get(&before, BUNDLE).unwrap(), 0);
    switch_to(&names[1].0);
    let [_near, during] = accept();
    switch_to(&names[0].0);
    assert_eq!(get(&during, BUNDLE).unwrap(), 1);
    let [_near, after] = accept();
    assert_eq!(get(&after, BUNDLE).unwrap(), 1);
    attach.stop_without_stats();
}

#[test]
fn reload_switches_to_other_namespaces() {
    needs_root!();
    let hosts = [(); 2].map(|()| namespace_with_loopback());
    let sleepers = hosts.each_ref().map(Sleeper::of);
    let names = sleepers.each_ref().map(NetnsName::assign);
    let streams = hosts.each_ref().map(connect_loopback);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = |name: &str| {
        let text = format!("netns = [\"{name}\"]\n[[rule]]\nthin = \"always\"\n");
        fs::write(&file, text).unwrap();
    };
    rules(&names[0].0);
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let mut attach = Attach::spawn(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    let name = file.display();
    attach.expect_line(&format!(
        "bundling by 1 rule of {name} on lo in {}; end with Ctrl-C",
        names[0].0
    ));
    let is_covered = |stream: &[TcpStream; 2]| {
        let local = stream[0].local_addr().unwrap().to_string();
        let peer = stream[0].peer_addr().unwrap().to_string();
        let listed = pillion(&["flows", "--json"]);
        let flows: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
        flows
            .iter()
            .any(|it| it["local"] == local.as_str() && it["peer"] == peer.as_str())
    };
    assert!(is_covered(&streams[0]) && !is_covered(&streams[1]));

    let reload = |attach: &Attach| {
        send_signal(&attach.process, Signal::SIGHUP);
    };
    rules("pillion-test-of-nobody");
    reload(&attach);
    let log = attach.next_line();
    assert!(
        log.contains("not reloaded: the old rules stay in force: no network namespace"),
        "{log}"
    );
    assert!(is_covered(&streams[0]) && !is_covered(&streams[1]));

    // This socket will be connected again later.
    let [reused, _] = connect_loopback(&hosts[0]);
    disconnect(&reused);
    rules(&names[1].0);
    reload(&attach);
    attach.expect_line(&format!("reloaded {name}: 1 rule; 2 connections covered"));
    let destination = format!("network namespace {}", names[1].0);
    attach.expect_line(&format!("now bundling only in {destination}"));
    attach.expect_line(&format!("attached to lo in {}", names[1].0));
    assert!(!is_covered(&streams[0]) && is_covered(&streams[1]));
    // A connection in the namespace that is no longer covered.
    let [mut near, mut far] = connect_loopback(&hosts[0]);
    near.write_all(b"move").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    assert!(!is_covered(&[near, far]));
    let listener = hosts[0].enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let listener = listener.unwrap();
    let address = SockaddrStorage::from(listener.local_addr().unwrap());
    retry(|| connect(reused.as_raw_fd(), &address)).unwrap();
    assert!(!is_covered(&[reused, listener.accept().unwrap().0]));
    attach.stop_without_stats();
}

#[test]
fn reload_that_adds_namespaces_requires_restart() {
    needs_root!();
    let other = namespace_with_loopback();
    let sleeper = Sleeper::of(&other);
    let name = NetnsName::assign(&sleeper);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, "[[rule]]\n").unwrap();
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let mut attach = Attach::spawn(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    assert!(attach.next_line().contains("bundling by 1 rule"));
    fs::write(&file, format!("netns = \"{}\"\n[[rule]]\n", name.0)).unwrap();
    send_signal(&attach.process, Signal::SIGHUP);
    let log = attach.next_line();
    assert!(
        log.contains("not reloaded") && log.contains("need a restart"),
        "{log}"
    );
    attach.stop_without_stats();
}
