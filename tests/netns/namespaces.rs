//! `pillion attach --netns`: other network namespaces, which appear and vanish.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command};
use std::{fs, thread};

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{SockaddrStorage, connect};
use nix::unistd::Pid;
use pillion_bpf::host::interruption::retry;
use pillion_bpf::host::pillion::{BUNDLE, get, set};
use pillion_lab::Namespace;
use pillion_tests::disconnect;
use serde_json::Value;

use crate::attach::send_to;
use crate::common::*;
use crate::devices::{Attach, Hosts};
use crate::hooks::shown;

/// Idle process in a namespace.
pub struct Resident(Child);

impl Resident {
    pub fn of(namespace: &Namespace) -> Self {
        let mut sleep = namespace.command("sleep");
        Self(sleep.arg("300").spawn().unwrap())
    }

    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Name of a process's namespace, as `ip netns` assigns it.
pub struct Name(pub String);

impl Name {
    pub fn give(resident: &Resident) -> Self {
        Self::give_with(resident, "")
    }

    /// Assigns a name with this suffix.
    pub fn give_with(resident: &Resident, end: &str) -> Self {
        let pid = resident.pid();
        let name = format!("pillion-test-{pid}{end}");
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

impl Drop for Name {
    fn drop(&mut self) {
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.0])
            .status();
    }
}

#[test]
fn streams_of_the_namespaces_named_are_bundled_and_of_no_other() {
    needs_root!();
    let [one, two, own] = [(); 3].map(|()| clean_pair());
    let residents = [&one, &two].map(|pair| Resident::of(&pair.sender.namespace));
    let name = Name::give(&residents[0]);
    let options = ["--netns", &name.0, "--netns", &residents[1].pid()];
    let attach = Attach::begin_in(&own.sender.namespace, &options);
    thread::scope(|scope| {
        for pair in [&one, &two, &own] {
            scope.spawn(move || send_to(pair, &[7001]));
        }
    });
    let stats = attach.end();
    assert_eq!(stats["connections"], 4);
    // One pair has 400 segments.
    assert!(
        stats["outcomes"]["bundled"].as_u64().unwrap() > 400,
        "{stats}"
    );
}

#[test]
fn a_connection_of_a_namespace_that_is_older_than_pillion_is_taken_in_and_listed() {
    needs_root!();
    let pair = clean_pair();
    let resident = Resident::of(&pair.sender.namespace);
    let receiver = &pair.receiver.namespace;
    let listener = receiver.enter(|| TcpListener::bind("10.77.0.2:7777"));
    let listener = listener.unwrap().unwrap();
    let sender = &pair.sender.namespace;
    let stream = sender.enter(|| TcpStream::connect("10.77.0.2:7777"));
    let mut stream = stream.unwrap().unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let elsewhere = namespace_with_loopback();
    let attach = Attach::begin_in(&elsewhere, &["--netns", &resident.pid()]);
    let listed = pillion(&["flows", "--json"]);
    let flows: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
    let file = format!("/proc/{}/ns/net", resident.pid());
    let inode = fs::metadata(file).unwrap().ino();
    assert!(flows.iter().any(|flow| flow["netns"] == inode), "{flows:?}");
    for _ in 0..20 {
        stream.write_all(&[7; 100]).unwrap();
    }
    drop(stream);
    assert_eq!(accepted.read_to_end(&mut Vec::new()).unwrap(), 2000);
    let stats = attach.end();
    assert_eq!(stats["connections"], 1);
    assert!(
        stats["outcomes"]["bundled"].as_u64().unwrap() > 0,
        "{stats}"
    );
}

#[test]
fn a_name_stands_for_whatever_namespace_has_it() {
    needs_root!();
    let hosts = [Hosts::create(), Hosts::create()];
    let residents = [&hosts[0], &hosts[1]].map(|hosts| Resident::of(&hosts.near));
    let name = Name::give(&residents[0]);
    let elsewhere = namespace_with_loopback();
    let options = ["--netns", &name.0, "--dev", "a0", "--dev", "v0"];
    hosts[0].join("v0");
    let mut attach = Attach::begin_in(&elsewhere, &options);
    let links = attach.links();
    name.delete();
    attach.says(&format!("network namespace {} has gone", name.0));
    assert_eq!(attach.links(), links - 4);
    Name::attach(&name.0, &residents[1].pid());
    attach.says(&format!(
        "network namespace {} has come: bundling there, too",
        name.0
    ));
    attach.says(&format!("a0 in {} has come: bundling there, too", name.0));
    hosts[1].join("v0");
    attach.says(&format!("v0 in {} has come: bundling there, too", name.0));
    hosts[1].ip("link set v0 up");
    hosts[1].send_by("v0", 50);
    let stats = attach.end();
    assert_eq!(stats["connections"], 1);
    assert_eq!(stats["new_bytes"], 5000);
}

#[test]
fn the_namespace_of_a_process_is_let_go_of_when_that_ends() {
    needs_root!();
    let elsewhere = namespace_with_loopback();
    let namespace = Namespace::create().unwrap();
    let resident = Resident::of(&namespace);
    let pid = resident.pid();
    let ip = |inside: &Namespace, arguments: &str| {
        let mut ip = inside.command("ip");
        ip.args(arguments.split(' ')).output().unwrap()
    };
    let pair = format!("link add v0 type veth peer name v1 netns {pid}");
    assert!(ip(&elsewhere, &pair).status.success());
    assert!(ip(&namespace, "link set v1 up").status.success());
    drop(namespace);
    let mut attach = Attach::begin_in(&elsewhere, &["--netns", &pid]);
    let links = attach.links();
    drop(resident);
    attach.says(&format!("network namespace {pid} has gone"));
    assert_eq!(attach.links(), links - 2);
    eventually("the namespace and v0 are destroyed", || {
        !stdout(&ip(&elsewhere, "link show")).contains("v0")
    });
    attach.end();
}

#[test]
fn filters_in_other_namespaces_go_with_pillion_however_it_ends() {
    needs_root!();
    let hosts = Hosts::create();
    let resident = Resident::of(&hosts.near);
    let elsewhere = namespace_with_loopback();
    let before = shown(&hosts, "a0");
    let options = ["--netns", &resident.pid(), "--hook", "clsact"];
    let attach = Attach::begin_in(&elsewhere, &options);
    assert!(shown(&hosts, "a0").contains("pillion"));
    attach.end();
    assert_eq!(shown(&hosts, "a0"), before);
    let mut attach = Attach::begin_in(&elsewhere, &options);
    let pid = Pid::from_raw(attach.process.id().cast_signed());
    kill(pid, Signal::SIGKILL).unwrap();
    attach.process.wait().unwrap();
    eventually("the filters are removed", || {
        !shown(&hosts, "a0").contains("pillion")
    });
}

/// Connects two sockets over loopback and returns both ends.
fn ends(host: &Namespace) -> [TcpStream; 2] {
    let ends = host.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0]
    });
    ends.unwrap()
}

/// Otherwise each accepted connection would take memory that no limit counts.
#[test]
fn what_a_listener_asked_ends_as_its_namespace_is_left() {
    needs_root!();
    let hosts = [(); 2].map(|()| namespace_with_loopback());
    let residents = hosts.each_ref().map(Resident::of);
    let names = residents.each_ref().map(Name::give);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = |name: &str| {
        let text = format!("netns = [\"{name}\"]\n[[rule]]\nthin = \"always\"\n");
        fs::write(&file, text).unwrap();
    };
    rules(&names[0].0);
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let mut attach = Attach::of(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    assert!(attach.said().contains("bundling by 1 rule"));
    let mut go_over_to = |name: &str| {
        rules(name);
        let pid = Pid::from_raw(attach.process.id().cast_signed());
        kill(pid, Signal::SIGHUP).unwrap();
        while !attach.said().contains("reloaded") {}
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
    go_over_to(&names[1].0);
    let [_near, meanwhile] = accept();
    go_over_to(&names[0].0);
    assert_eq!(get(&meanwhile, BUNDLE).unwrap(), 1);
    let [_near, after] = accept();
    assert_eq!(get(&after, BUNDLE).unwrap(), 1);
    attach.interrupt();
}

#[test]
fn other_namespaces_of_the_file_are_gone_over_to_at_reload() {
    needs_root!();
    let hosts = [(); 2].map(|()| namespace_with_loopback());
    let residents = hosts.each_ref().map(Resident::of);
    let names = residents.each_ref().map(Name::give);
    let streams = hosts.each_ref().map(ends);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    let rules = |name: &str| {
        let text = format!("netns = [\"{name}\"]\n[[rule]]\nthin = \"always\"\n");
        fs::write(&file, text).unwrap();
    };
    rules(&names[0].0);
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let mut attach = Attach::of(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    let name = file.display();
    attach.says(&format!(
        "bundling by 1 rule of {name} on lo in {}; end with Ctrl-C",
        names[0].0
    ));
    let covered = |stream: &[TcpStream; 2]| {
        let local = stream[0].local_addr().unwrap().to_string();
        let peer = stream[0].peer_addr().unwrap().to_string();
        let listed = pillion(&["flows", "--json"]);
        let flows: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
        flows
            .iter()
            .any(|it| it["local"] == local.as_str() && it["peer"] == peer.as_str())
    };
    assert!(covered(&streams[0]) && !covered(&streams[1]));

    let reload = |attach: &Attach| {
        let pid = Pid::from_raw(attach.process.id().cast_signed());
        kill(pid, Signal::SIGHUP).unwrap();
    };
    rules("pillion-test-of-nobody");
    reload(&attach);
    let said = attach.said();
    assert!(
        said.contains("not reloaded: the old rules hold: no network namespace"),
        "{said}"
    );
    assert!(covered(&streams[0]) && !covered(&streams[1]));

    // This socket will be connected again later.
    let [reused, _] = ends(&hosts[0]);
    disconnect(&reused);
    rules(&names[1].0);
    reload(&attach);
    attach.says(&format!("reloaded {name}: 1 rule; 2 connections covered"));
    let place = format!("network namespace {}", names[1].0);
    attach.says(&format!("bundling in {place} now, and no longer elsewhere"));
    attach.says(&format!(
        "lo in {} has come: bundling there, too",
        names[1].0
    ));
    assert!(!covered(&streams[0]) && covered(&streams[1]));
    // A connection in the namespace that is no longer covered.
    let [mut near, mut far] = ends(&hosts[0]);
    near.write_all(b"move").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    assert!(!covered(&[near, far]));
    let listener = hosts[0].enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let listener = listener.unwrap();
    let address = SockaddrStorage::from(listener.local_addr().unwrap());
    retry(|| connect(reused.as_raw_fd(), &address)).unwrap();
    assert!(!covered(&[reused, listener.accept().unwrap().0]));
    attach.interrupt();
}

#[test]
fn who_began_without_other_namespaces_says_that_they_take_a_new_start() {
    needs_root!();
    let other = namespace_with_loopback();
    let resident = Resident::of(&other);
    let name = Name::give(&resident);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.toml");
    fs::write(&file, "[[rule]]\n").unwrap();
    let arguments = ["attach", "--dev", "lo", "--config", file.to_str().unwrap()];
    let own = namespace_with_loopback();
    let mut attach = Attach::of(pillion_in(&own, &arguments), tempfile::tempdir().unwrap());
    assert!(attach.said().contains("bundling by 1 rule"));
    fs::write(&file, format!("netns = \"{}\"\n[[rule]]\n", name.0)).unwrap();
    let pid = Pid::from_raw(attach.process.id().cast_signed());
    kill(pid, Signal::SIGHUP).unwrap();
    let said = attach.said();
    assert!(
        said.contains("not reloaded") && said.contains("a new start"),
        "{said}"
    );
    attach.interrupt();
}
