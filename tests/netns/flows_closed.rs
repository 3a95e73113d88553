//! `pillion flows --closed`: closed connections.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::host::interruption::retry;
use pillion_lab::Namespace;
use serde_json::Value;

use crate::common::*;

/// Number of closed connections that pillion stores.
const KEPT: usize = 1024;

struct Attached {
    namespace: Namespace,
    inode: u64,
    attach: Option<Child>,
}

impl Attached {
    /// Starts pillion after `before`, so that whatever this creates is older.
    fn after<T: Send>(before: impl FnOnce() -> T + Send) -> (Self, T) {
        let namespace = namespace_with_loopback();
        let inode = || fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let (older, inode) = namespace.enter(|| (before(), inode())).unwrap();
        let mut attach = pillion_in(&namespace, &["attach", "--all", "--dev", "lo"]);
        let attach = attach.stderr(Stdio::null()).spawn().unwrap();
        await_attached(attach.id());
        let attached = Self {
            namespace,
            inode,
            attach: Some(attach),
        };
        (attached, older)
    }

    fn begin() -> Self {
        Self::after(|| ()).0
    }

    /// Stops pillion; the namespace stays.
    fn end(&mut self) {
        if let Some(mut attach) = self.attach.take() {
            let _ = kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM);
            let _ = attach.wait();
        }
    }

    /// Returns the closed connections of this namespace.
    fn closed(&self) -> Vec<Value> {
        let mut flows = pillion_in(&self.namespace, &["flows", "--closed", "--json"]);
        let output = flows.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let mut all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        all.retain(|flow| flow["netns"] == self.inode);
        all
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.end();
    }
}

fn ends() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [near, listener.accept().unwrap().0]
}

/// One end of a connection. The local address is not unique: the kernel reuses its port for
/// connections to other peers.
#[derive(Clone, Copy)]
struct End {
    local: SocketAddr,
    peer: SocketAddr,
}

impl End {
    fn of(stream: &TcpStream) -> Self {
        Self {
            local: stream.local_addr().unwrap(),
            peer: stream.peer_addr().unwrap(),
        }
    }

    fn place(&self, flows: &[Value]) -> Option<usize> {
        let [local, peer] = [self.local, self.peer].map(|it| it.to_string());
        let is_it = |it: &Value| it["local"] == local.as_str() && it["peer"] == peer.as_str();
        flows.iter().position(is_it)
    }

    fn is_in(&self, flows: &[Value]) -> bool {
        self.place(flows).is_some()
    }
}

/// Sends four bytes and closes both ends. Returns the sending end.
fn close([mut near, mut far]: [TcpStream; 2]) -> End {
    near.write_all(b"move").unwrap();
    far.read_exact(&mut [0; 4]).unwrap();
    let end = End::of(&near);
    drop(near);
    assert_eq!(retry(|| far.read(&mut [0])).unwrap(), 0);
    end
}

#[test]
fn a_connection_that_has_ended_is_told_as_it_was() {
    needs_root!();
    let attached = Attached::begin();
    assert_eq!(attached.closed(), Vec::<Value>::new());
    let open = attached.namespace.enter(ends).unwrap();
    assert!(!End::of(&open[0]).is_in(&attached.closed()), "it is open");
    let end = close(open);
    eventually("the connection is listed", || end.is_in(&attached.closed()));
    let closed = attached.closed();
    let flow = &closed[end.place(&closed).unwrap()];
    assert_eq!(flow["new_bytes"], 4);
    assert_eq!(flow["data_packets"], 1);
    assert_eq!(flow["process"], Value::Null);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let closed_at = flow["closed_at"].as_u64().unwrap();
    assert!((now - 60..=now).contains(&closed_at), "{closed_at} {now}");
    let listed = pillion_in(&attached.namespace, &["flows", "--json"]);
    let live = { listed }.output().unwrap();
    let live: Vec<Value> = serde_json::from_slice(&live.stdout).unwrap();
    assert!(!end.is_in(&live));
    let table = pillion_in(&attached.namespace, &["flows", "--closed"]);
    let table = { table }.output().unwrap();
    let table = stdout(&table);
    let line = table
        .lines()
        .find(|line| line.contains(&end.local.to_string()));
    assert!(line.is_some_and(|line| line.contains("s ago")), "{table}");
}

#[test]
fn one_that_is_older_than_pillion_is_told_where_the_kernel_can() {
    needs_root!();
    let (attached, older) = Attached::after(ends);
    let older = close(older);
    let newer = attached.namespace.enter(|| close(ends())).unwrap();
    eventually("the newer connection is listed", || newer.is_in(&attached.closed()));
    let release = nix::sys::utsname::uname().unwrap();
    let release = release.release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|it| it.parse().unwrap_or(0));
    let version = [numbers.next(), numbers.next()].map(Option::unwrap_or_default);
    let is_told = older.is_in(&attached.closed());
    assert_eq!(is_told, version >= [6, 12], "{release}");
}

#[test]
fn the_last_ones_are_kept_and_go_with_their_pillion() {
    needs_root!();
    let mut attached = Attached::begin();
    let all = attached.namespace.enter(|| {
        let all = (0..KEPT).map(|_| close(ends()));
        all.collect::<Vec<_>>()
    });
    let all = all.unwrap();
    let newest = all[KEPT - 1];
    // The kernel may report the last ones late.
    eventually("the newest connection is listed", || newest.is_in(&attached.closed()));
    let closed = attached.closed();
    assert_eq!(closed.len(), KEPT);
    let ends = |it: &Value| (it["local"].to_string(), it["peer"].to_string());
    let told: BTreeSet<_> = closed.iter().map(ends).collect();
    assert_eq!(told.len(), KEPT, "no duplicates");
    // Each connection has two ends, so half of the connections are dropped.
    assert!(!all[0].is_in(&closed));
    let older = all[KEPT - 100].place(&closed);
    let older = older.expect("one of the last hundred is listed");
    assert!(Some(older) < newest.place(&closed), "the newest is last");
    attached.end();
    eventually("the closed connections are removed", || attached.closed().is_empty());
}

#[test]
fn the_container_is_known_though_no_process_has_it_open() {
    needs_root!();
    let attached = Attached::begin();
    let cgroup = own_cgroup().join("flows-closed-test.service");
    fs::create_dir_all(&cgroup).unwrap();
    let arguments = "exec 3<>/dev/tcp/127.0.0.1/";
    let listener = attached
        .namespace
        .enter(|| TcpListener::bind("127.0.0.1:0").unwrap())
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!(
        "echo $$ > {}/cgroup.procs && {arguments}{port} && echo hello >&3",
        cgroup.display()
    );
    let mut shell = attached.namespace.command("bash");
    let status = shell.args(["-c", &script]).status().unwrap();
    assert!(status.success());
    drop(listener.accept().unwrap());
    let peer = format!("127.0.0.1:{port}");
    let told = || {
        let closed = attached.closed();
        closed.into_iter().find(|it| it["peer"] == peer.as_str())
    };
    eventually("the connection is listed", || told().is_some());
    assert_eq!(told().unwrap()["unit"], "flows-closed-test.service");
    fs::remove_dir(&cgroup).unwrap();
    assert_ne!(told().unwrap()["unit"], "flows-closed-test.service");
}
