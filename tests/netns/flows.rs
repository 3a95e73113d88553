//! `pillion flows`: closed connections, and required privileges.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Output, Stdio};
use std::{fs, io};

use caps::Capability::{CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN};
use caps::{CapSet, Capability};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use serde_json::Value;

use crate::common::*;

/// Number of closed connections that pillion stores.
const CAPACITY: usize = 1024;

struct AttachedNamespace {
    namespace: Namespace,
    inode: u64,
    attach: Option<Child>,
}

impl AttachedNamespace {
    /// Starts pillion after `before`, so that whatever this creates is older.
    fn start_after<T: Send>(before: impl FnOnce() -> T + Send) -> (Self, T) {
        let namespace = namespace_with_loopback();
        let inode = || fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let (older, inode) = namespace.enter(|| (before(), inode())).unwrap();
        let mut attach = pillion_in(&namespace, &["attach", "--all", "--dev", "lo"]);
        let attach = attach.stderr(Stdio::null()).spawn().unwrap();
        await_attached(attach.id());
        let attach = Self {
            namespace,
            inode,
            attach: Some(attach),
        };
        (attach, older)
    }

    fn start() -> Self {
        Self::start_after(|| ()).0
    }

    /// Stops pillion; the namespace stays.
    fn stop(&mut self) {
        if let Some(mut attach) = self.attach.take() {
            let _ = kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM);
            let _ = attach.wait();
        }
    }

    /// Returns the open connections of this namespace.
    fn open(&self) -> Vec<Value> {
        self.flows(&["flows", "--json"])
    }

    /// Returns the closed connections of this namespace.
    fn closed(&self) -> Vec<Value> {
        self.flows(&["flows", "--closed", "--json"])
    }

    fn flows(&self, arguments: &[&str]) -> Vec<Value> {
        let output = pillion_in(&self.namespace, arguments).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let mut all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        all.retain(|flow| flow["netns"] == self.inode);
        all
    }
}

impl Drop for AttachedNamespace {
    fn drop(&mut self) {
        self.stop();
    }
}

fn connect_loopback() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

/// One end of a connection. The local address is not unique: the kernel reuses its port for
/// connections to other peers.
#[derive(Clone, Copy)]
struct Endpoint {
    local: SocketAddr,
    peer: SocketAddr,
}

impl Endpoint {
    fn of(stream: &TcpStream) -> Self {
        Self {
            local: stream.local_addr().unwrap(),
            peer: stream.peer_addr().unwrap(),
        }
    }

    fn position(&self, flows: &[Value]) -> Option<usize> {
        let [local, peer] = [self.local, self.peer].map(|it| it.to_string());
        let is_it = |it: &Value| it["local"] == local.as_str() && it["peer"] == peer.as_str();
        flows.iter().position(is_it)
    }

    fn is_listed(&self, flows: &[Value]) -> bool {
        self.position(flows).is_some()
    }
}

/// Sends four bytes and closes both ends. Returns the sending end.
fn close([mut near, mut far]: [TcpStream; 2]) -> Endpoint {
    near.write_all(b"move").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    let end = Endpoint::of(&near);
    drop(near);
    assert_eq!(retry(|| far.read(&mut [0])).unwrap(), 0);
    end
}

#[test]
fn closed_connection_is_listed_with_final_counters() {
    needs_root!();
    let attach = AttachedNamespace::start();
    assert_eq!(attach.closed(), Vec::<Value>::new());
    let open = attach.namespace.enter(connect_loopback).unwrap();
    assert!(
        !Endpoint::of(&open[0]).is_listed(&attach.closed()),
        "it is open"
    );
    let end = close(open);
    eventually("the connection is listed", || {
        end.is_listed(&attach.closed())
    });
    let closed = attach.closed();
    let flow = &closed[end.position(&closed).unwrap()];
    assert_eq!(flow["new_bytes"], 4);
    assert_eq!(flow["data_packets"], 1);
    assert_eq!(flow["process"], Value::Null);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let closed_at_s = flow["closed_at_s"].as_u64().unwrap();
    assert!(
        (now - 60..=now).contains(&closed_at_s),
        "{closed_at_s} {now}"
    );
    assert!(!end.is_listed(&attach.open()));
    let table = pillion_in(&attach.namespace, &["flows", "--closed"]);
    let table = { table }.output().unwrap();
    let table = stdout(&table);
    let line = table
        .lines()
        .find(|line| line.contains(&end.local.to_string()));
    assert!(line.is_some_and(|line| line.contains("s ago")), "{table}");
}

#[test]
fn older_connection_is_listed_on_kernels_from_6_12() {
    needs_root!();
    let (attach, older) = AttachedNamespace::start_after(connect_loopback);
    let end = Endpoint::of(&older[0]);
    eventually("the older connection is covered", || {
        end.is_listed(&attach.open())
    });
    let older = close(older);
    let newer = attach
        .namespace
        .enter(|| close(connect_loopback()))
        .unwrap();
    eventually("the newer connection is listed", || {
        newer.is_listed(&attach.closed())
    });
    let release = nix::sys::utsname::uname().unwrap();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|it| it.parse().unwrap_or(0));
    let version = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
    let listed_now = older.is_listed(&attach.closed());
    assert_eq!(listed_now, version >= [6, 12], "{release}");
}

#[test]
fn closed_list_is_bounded_and_removed_with_process() {
    needs_root!();
    let mut attach = AttachedNamespace::start();
    let all = attach.namespace.enter(|| {
        let all = (0..CAPACITY).map(|_| close(connect_loopback()));
        all.collect::<Vec<_>>()
    });
    let all = all.unwrap();
    let newest = all[CAPACITY - 1];
    // The kernel may report the last ones late.
    eventually("the newest connection is listed", || {
        newest.is_listed(&attach.closed())
    });
    let closed = attach.closed();
    assert_eq!(closed.len(), CAPACITY);
    let ends = |it: &Value| (it["local"].to_string(), it["peer"].to_string());
    let listed: BTreeSet<_> = closed.iter().map(ends).collect();
    assert_eq!(listed.len(), CAPACITY, "no duplicates");
    // Each connection has two ends, so half of the connections are dropped.
    assert!(!all[0].is_listed(&closed));
    let older = all[CAPACITY - 100].position(&closed);
    let older = older.expect("one of the last hundred is listed");
    assert!(Some(older) < newest.position(&closed), "the newest is last");
    attach.stop();
    eventually("the closed connections are removed", || {
        attach.closed().is_empty()
    });
}

#[test]
fn closed_connection_shows_cgroup_without_process() {
    needs_root!();
    let attach = AttachedNamespace::start();
    let cgroup = own_cgroup().join("flows-closed-test.service");
    fs::create_dir_all(&cgroup).unwrap();
    let arguments = "exec 3<>/dev/tcp/127.0.0.1/";
    let listener = attach
        .namespace
        .enter(|| TcpListener::bind("127.0.0.1:0").unwrap())
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "echo $$ > {}/cgroup.procs && {arguments}{port} && echo hello >&3",
        cgroup.display()
    );
    let mut shell = attach.namespace.command("bash");
    let status = shell.args(["-c", &script]).status().unwrap();
    assert!(status.success());
    drop(listener.accept().unwrap());
    let peer = format!("127.0.0.1:{port}");
    let listed = || {
        let closed = attach.closed();
        closed.into_iter().find(|it| it["peer"] == peer.as_str())
    };
    eventually("the connection is listed", || listed().is_some());
    assert_eq!(listed().unwrap()["unit"], "flows-closed-test.service");
    fs::remove_dir(&cgroup).unwrap();
    assert_ne!(listed().unwrap()["unit"], "flows-closed-test.service");
}

/// Runs `flows` with only these capabilities.
fn flows_with(capabilities: &[Capability]) -> Output {
    let namespace = namespace_with_loopback();
    let mut flows = pillion_in(&namespace, &["flows"]);
    let mut others = caps::all();
    others.retain(|it| !capabilities.contains(it));
    let drop_others = move || {
        let mut others = others.iter();
        others
            .try_for_each(|it| caps::drop(None, CapSet::Bounding, *it))
            .map_err(io::Error::other)
    };
    // SAFETY: between fork and exec only system calls are made.
    unsafe { flows.pre_exec(drop_others) };
    flows.output().unwrap()
}

#[test]
fn flows_without_privilege_fails_instead_of_empty_list() {
    needs_root!();
    let output = flows_with(&[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN]);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(stdout(&output), "");
    assert!(message.contains("CAP_SYS_ADMIN"), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn flows_works_with_documented_capabilities() {
    needs_root!();
    let output = flows_with(&[CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_SYS_ADMIN]);
    assert!(output.status.success(), "{}", stderr(&output));
}
