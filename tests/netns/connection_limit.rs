//! The limit of `--max-connections` and the slots for sockets that request bundling.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::sockopt::TcpUserTimeout;
use nix::sys::socket::{getsockopt, setsockopt};
use nix::unistd::{Pid, Uid, setfsuid};
use pillion_bpf::host::pillion::{BUNDLE, get, set};
use pillion_bpf::list_flows;
use pillion_lab::Namespace;

use crate::common::*;
use crate::devices::Attach;
use crate::handover::exits_successfully;
use crate::namespaces::{NetnsName, Sleeper};

/// Log line of a process that reaches its connection limit.
const LIMIT_REACHED: &str = "warning: connection limit reached (--max-connections, or half of it \
                             for one user): further connections are not bundled";

/// Starts pillion on loopback and waits until it has adopted existing connections. A single user
/// may take half of the slots.
fn attach(namespace: &Namespace, arguments: &[&str]) -> Child {
    let mut all = vec!["attach", "--dev", "lo"];
    all.extend(arguments);
    let mut attach = pillion_in(namespace, &all);
    let mut attach = attach.stderr(Stdio::piped()).spawn().unwrap();
    // Reads single bytes, so that later lines stay in the pipe.
    let log = attach.stderr.as_mut().unwrap();
    let mut byte = [0];
    let mut first = Vec::new();
    while log.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        first.extend(byte);
    }
    let first = String::from_utf8(first).unwrap();
    assert!(first.starts_with("pillion: bundling"), "{first}");
    attach
}

fn stop(mut attach: Child) -> Vec<String> {
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
    let log = BufReader::new(attach.stderr.take().unwrap()).lines();
    log.map(Result::unwrap).collect()
}

/// Opens `count` connections and returns both ends of each.
pub fn connect(namespace: &Namespace, count: usize) -> Vec<(TcpStream, TcpStream)> {
    let pairs = namespace.enter(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let pair = |_| {
            let near = TcpStream::connect(to).unwrap();
            (near, listener.accept().unwrap().0)
        };
        (0..count).map(pair).collect()
    });
    pairs.unwrap()
}

fn bundled_flows(namespace: &Namespace) -> usize {
    let inode = fs::metadata(namespace.path()).unwrap().ino();
    let flows = list_flows().expect("the list");
    let is_inside = |netns: Option<u32>| netns.map(u64::from) == Some(inode);
    flows.iter().filter(|flow| is_inside(flow.netns)).count()
}

#[test]
fn connection_over_limit_stays_plain_until_slot_is_free() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "8"]);
    let first = connect(&namespace, 5);
    assert_eq!(bundled_flows(&namespace), 4);
    drop(first);
    let second = connect(&namespace, 2);
    eventually("the connections are adopted", || {
        bundled_flows(&namespace) == 4
    });
    drop(second);
    let third = connect(&namespace, 1);
    eventually("the next connection is adopted", || {
        bundled_flows(&namespace) == 2
    });
    drop(third);
    let log = stop(attach).join("\n");
    assert!(log.contains(LIMIT_REACHED), "{log}");
}

#[test]
fn full_and_free_slots_are_logged_once_each() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = attach(&namespace, &["--all", "--max-connections", "8"]);
    let mut log = BufReader::new(attach.stderr.take().unwrap()).lines();
    let mut expect_log = |expected: &str| {
        let line = log.find(|line| !line.as_ref().unwrap().contains("bundling all"));
        let line = line.unwrap().unwrap();
        assert_eq!(line, format!("pillion: {expected}"));
    };
    let connections = connect(&namespace, 5);
    expect_log(LIMIT_REACHED);
    drop(connections);
    expect_log("connection limit no longer reached");
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
}

/// Later tries of the same connections do not count; each takes five seconds.
#[test]
fn limit_hits_count_refused_connections() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("pillion.toml");
    fs::write(&rules, "[[rule]]\nport = \"1-65535\"\n").unwrap();
    let rules = rules.to_str().unwrap();
    let older = connect(&namespace, 1);
    let mut attach = attach(&namespace, &["--config", rules, "--max-connections", "4"]);
    let newer = connect(&namespace, 2);
    thread::sleep(Duration::from_secs(7));
    let status = pillion_in(&namespace, &["status", "--json"]).output();
    let status: serde_json::Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    assert_eq!(status[0]["active_connections"], 2, "{status}");
    assert_eq!(status[0]["totals"]["connection_limit_hits"], 4, "{status}");
    // The log of the reload agrees.
    send_signal(&attach, Signal::SIGHUP);
    let mut log = BufReader::new(attach.stderr.take().unwrap()).lines();
    let line = log.find_map(|line| Some(line.unwrap()).filter(|it| it.contains("reloaded")));
    let line = line.unwrap();
    let expected = "1 rule; 2 connections covered, 4 without a slot (--max-connections)";
    assert!(line.ends_with(expected), "{line}");
    // A free slot goes to a refused connection.
    drop(older);
    eventually("a refused connection is adopted", || {
        bundled_flows(&namespace) == 2
    });
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
    drop(newer);
}

/// Memory cgroup of version 1 or 2, removed on drop.
struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Creates a cgroup with this limit; `None` if the host has no memory controller.
    fn create(bytes: u64) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.split_once(":memory:/"));
        let own = own.map_or("", |it| it.1);
        let name = format!("pillion-test-{}", std::process::id());
        for mount in mounts {
            let cgroup = Path::new(mount).join(own).join(&name);
            for limit in ["memory.limit_in_bytes", "memory.max"] {
                let is_hierarchy = Path::new(mount).join(own).join("cgroup.procs").exists();
                if is_hierarchy && fs::create_dir(&cgroup).is_ok() {
                    let cgroup = Self(cgroup.clone());
                    if fs::write(cgroup.0.join(limit), bytes.to_string()).is_ok() {
                        return Some(cgroup);
                    }
                }
            }
        }
        None
    }

    /// Builds a `pillion` command inside a namespace and this cgroup.
    fn pillion_in(&self, namespace: &Namespace, arguments: &[&str]) -> Command {
        let mut command = pillion_in(namespace, arguments);
        let procs = self.0.join("cgroup.procs");
        // SAFETY: between fork and exec it only makes system calls.
        unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
        command
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let removed = || fs::remove_dir(&self.0).is_ok();
        if std::thread::panicking() {
            return;
        }
        within(Duration::from_secs(5), "the cgroup is removed", removed);
    }
}

#[test]
fn too_small_memory_limit_is_refused() {
    needs_root!();
    let Some(cgroup) = MemoryCgroup::create(16 << 20) else {
        println!("left out without a memory controller");
        return;
    };
    let namespace = namespace_with_loopback();
    for command in [
        &["advise", "--dev", "lo", "--duration", "1s"][..],
        &["run", "--dev", "lo", "--", "true"],
    ] {
        let output = cgroup.pillion_in(&namespace, command).output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        let expected = "pillion: error: the cgroup's memory limit leaves 1";
        assert!(message.starts_with(expected), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
}

/// More connections than the memory limit allows would have pillion killed at the start.
#[test]
fn memory_limit_lowers_connection_limit() {
    const LIMIT: u64 = 24 << 20;
    const CONNECTIONS: usize = 4500;
    needs_root!();
    let Some(cgroup) = MemoryCgroup::create(LIMIT) else {
        println!("left out without a memory controller");
        return;
    };
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, max.min(1 << 16), max).unwrap();
    let namespace = namespace_with_loopback();
    let connections = connect(&namespace, CONNECTIONS);
    let mut attach = cgroup.pillion_in(&namespace, &["attach", "--dev", "lo", "--all"]);
    let mut attach = attach.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(attach.stderr.take().unwrap()).lines();
    let expected = "pillion: warning: --max-connections lowered from 65536 to ";
    let lines: Vec<String> = log.by_ref().take(2).map(Result::unwrap).collect();
    let warning = lines.iter().find(|it| it.starts_with(expected));
    let warning = warning.unwrap_or_else(|| panic!("{lines:?}")).clone();
    let rest = &warning[expected.len()..];
    let lowered: usize = rest.split(':').next().unwrap().parse().unwrap();
    assert!((1000..2000).contains(&lowered), "{warning}");
    assert_eq!(bundled_flows(&namespace), lowered / 2);
    let status = pillion_in(&namespace, &["status", "--json"]).output();
    let status: serde_json::Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
    assert_eq!(
        format!(
            "pillion: warning: {}",
            status[0]["notes"][0].as_str().unwrap()
        ),
        warning
    );
    send_signal(&attach, Signal::SIGTERM);
    assert!(attach.wait().unwrap().success());
    drop(connections);
}

/// Half of four slots gives a user sixteen fractions, and a quarter more.
#[test]
fn socket_requests_take_fractions_of_slots() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--max-connections", "4"]);
    let sockets = namespace.enter(|| {
        let listen = |_| TcpListener::bind("127.0.0.1:0").unwrap();
        [(); 21].map(listen)
    });
    let sockets = sockets.unwrap();
    for socket in &sockets[..20] {
        set(socket, BUNDLE, 1).expect("a slot is free");
    }
    let error = set(&sockets[20], BUNDLE, 1).expect_err("no slot is free");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    drop(sockets);
    stop(attach);
}

#[test]
fn excluded_connections_take_no_slots() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("pillion.toml");
    let listener = namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let excluded = listener.as_ref().unwrap().local_addr().unwrap();
    let port = excluded.port();
    let text =
        format!("[[rule]]\nmode = \"never\"\nport = [{port}]\n[[rule]]\nmode = \"bundle\"\n");
    fs::write(&rules, text).unwrap();
    let rules = rules.to_str().unwrap();
    let attach = attach(&namespace, &["--config", rules, "--max-connections", "8"]);
    let connect_there = move || [(); 6].map(|()| TcpStream::connect(excluded).unwrap());
    let first = namespace.enter(connect_there).unwrap();
    assert_eq!(bundled_flows(&namespace), 0);
    let second = connect(&namespace, 1);
    assert_eq!(bundled_flows(&namespace), 2);
    drop((first, second, listener));
    stop(attach);
}

#[test]
fn listener_opt_out_applies_to_accepted_socket_without_slot() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "4"]);
    let first = connect(&namespace, 1);
    assert_eq!(bundled_flows(&namespace), 2);
    let listener = namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let listener = listener.unwrap();
    set(&listener, BUNDLE, 0).expect("a slot is free");
    let to = listener.local_addr().unwrap();
    let near = namespace.enter(move || TcpStream::connect(to).unwrap());
    let near = near.unwrap();
    let accepted = listener.accept().unwrap().0;
    drop(first);
    eventually("the other end is adopted", || {
        get(&near, BUNDLE).unwrap() == 1
    });
    assert_eq!(get(&accepted, BUNDLE).unwrap(), 0);
    assert_eq!(bundled_flows(&namespace), 1);
    stop(attach);
}

#[test]
fn opt_out_works_without_free_slot() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "4"]);
    let connections = connect(&namespace, 1);
    assert_eq!(bundled_flows(&namespace), 2);
    let opted_out = &connections[0].0;
    set(opted_out, BUNDLE, 0).expect("opt-out is accepted");
    assert_eq!(get(opted_out, BUNDLE).unwrap(), 0);
    // Connections over the limit make pillion check all connections again.
    let refused = connect(&namespace, 1);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(get(opted_out, BUNDLE).unwrap(), 0);
    drop(refused);
    stop(attach);
}

/// Options that set a TCP option, and leave two slots to one user.
const USER_TIMEOUT_FOR_FOUR: [&str; 5] = [
    "--all",
    "--user-timeout",
    "5000ms",
    "--max-connections",
    "4",
];

#[test]
fn tcp_option_set_by_application_holds_while_slots_are_full() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &USER_TIMEOUT_FOR_FOUR);
    let connections = connect(&namespace, 1);
    let own = &connections[0].0;
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 5000);
    setsockopt(own, TcpUserTimeout, &7000).unwrap();
    let refused = connect(&namespace, 1);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 7000);
    drop(refused);
    stop(attach);
}

#[test]
fn late_adoption_preserves_tcp_option_set_by_application() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &USER_TIMEOUT_FOR_FOUR);
    let first = connect(&namespace, 1);
    let late = connect(&namespace, 1);
    let own = &late[0].0;
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 5000);
    setsockopt(own, TcpUserTimeout, &7000).unwrap();
    drop(first);
    eventually("the connection is adopted", || {
        get(own, BUNDLE).unwrap() == 1
    });
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 7000);
    stop(attach);
}

#[test]
fn new_namespace_gets_tcp_options_without_free_slot() {
    needs_root!();
    let [own, first, second] = [(); 3].map(|()| namespace_with_loopback());
    let sleepers = [&first, &second].map(Sleeper::of);
    let suffix = format!("-places-{}", std::process::id());
    let _first_name = NetnsName::assign_with_suffix(&sleepers[0], &suffix);
    let pattern = format!("pillion-test-*{suffix}");
    let options = [
        "--all",
        "--user-timeout",
        "5000ms",
        "--max-connections",
        "4",
    ];
    let options = [&options, ["--netns", &pattern].as_slice()].concat();
    let attach = attach(&own, &options);
    let _full = connect(&first, 1);
    assert_eq!(bundled_flows(&first), 2);
    let late = connect(&second, 1);
    let _second_name = NetnsName::assign_with_suffix(&sleepers[1], &suffix);
    eventually("the TCP options are set", || {
        getsockopt(&late[0].0, TcpUserTimeout).unwrap() == 5000
    });
    assert_eq!(bundled_flows(&second), 0);
    let log = self::stop(attach).join("\n");
    assert!(log.contains(LIMIT_REACHED), "{log}");
}

#[test]
fn closed_sockets_take_no_slots() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--max-connections", "60"]);
    for _ in 0..50 {
        let socket = namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
        set(&socket.unwrap(), BUNDLE, 1).expect("a slot is free");
        thread::sleep(Duration::from_millis(150));
    }
    let log = stop(attach).join("\n");
    assert!(!log.contains("--max-connections"), "{log}");
}

/// If the kernel refuses to iterate over socket storage, they are found only in their own
/// namespace.
#[test]
fn unaccepted_connections_take_slots_in_every_namespace() {
    needs_root!();
    let [own, other] = [(); 2].map(|()| namespace_with_loopback());
    let sleeper = Sleeper::of(&other);
    let pid = sleeper.pid();
    let options = ["--dev", "lo", "--max-connections", "8", "--netns", &pid];
    let attach = Attach::start_in(&own, &options);
    let listener = other.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let to = listener.as_ref().unwrap().local_addr().unwrap();
    let connect = || other.enter(move || [(); 2].map(|()| TcpStream::connect(to).unwrap()));
    let first = connect().unwrap();
    // Wait until unused slots have been counted once or twice.
    thread::sleep(Duration::from_millis(2500));
    let second = connect().unwrap();
    assert_eq!(attach.stop()["connections"], 4);
    drop((listener, first, second));
}

/// Users beyond the table's capacity share one limit.
#[test]
fn too_many_users_do_not_prevent_handover() {
    const USERS: u32 = 4200;
    needs_root!();
    let (_, max) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, max.min(1 << 16), max).unwrap();
    let namespace = namespace_with_loopback();
    let mut attach = attach(&namespace, &["--max-connections", "16384"]);
    let request = |user: u32| {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: three integers; only this thread becomes another user.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, user, 0, 0) };
        assert_eq!(result, 0);
        set(&socket, BUNDLE, 1).expect("a slot is free");
        socket
    };
    let request = move || (100_000..100_000 + USERS).map(request).collect::<Vec<_>>();
    let thread = namespace.enter(|| thread::spawn(request)).unwrap();
    let sockets = thread.join().unwrap();
    send_signal(&attach, Signal::SIGUSR2);
    assert!(exits_successfully(&mut attach));
    let status = || {
        pillion_in(&namespace, &["status", "--json"])
            .output()
            .unwrap()
    };
    thread::sleep(Duration::from_millis(2500));
    let status: serde_json::Value = serde_json::from_slice(&status().stdout).unwrap();
    let new_process = status[0]["pid"].as_i64().expect("pillion is ready");
    kill(Pid::from_raw(new_process as i32), Signal::SIGTERM).unwrap();
    assert_eq!(status[0]["last_error"], serde_json::Value::Null, "{status}");
    drop(sockets);
}

/// An accepted socket belongs to the user who accepts it, but the listener's user took its slot.
#[test]
fn slot_counts_for_user_who_took_it() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "16"]);
    let other_user = Uid::from_raw(1);
    let accepted = namespace.enter(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        setfsuid(other_user);
        let pair = |()| {
            let near = TcpStream::connect(to).unwrap();
            (near, listener.accept().unwrap().0)
        };
        [(); 4].map(pair)
    });
    // Wait until unused slots have been counted once or twice.
    thread::sleep(Duration::from_millis(2500));
    let more = connect(&namespace, 5);
    assert_eq!(
        bundled_flows(&namespace),
        12,
        "root has listened four times"
    );
    drop((accepted, more));
    stop(attach);
}

/// `run` retries only connections of its command.
#[test]
fn run_without_slots_leaves_other_connections_alone() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let others = connect(&namespace, 1);
    let listener = namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.as_ref().unwrap().local_addr().unwrap().port();
    let script =
        format!("for fd in 3 4 5 6; do eval exec $fd'<>/dev/tcp/127.0.0.1/{port}'; done; sleep 3");
    let options = [
        "run",
        "--dev",
        "lo",
        "--max-connections",
        "2",
        "--user-timeout",
        "55555ms",
    ];
    let mut run = pillion_in(&namespace, &options);
    let output = run.args(["--", "bash", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains(LIMIT_REACHED),
        "{}",
        stderr(&output)
    );
    for end in [&others[0].0, &others[0].1] {
        assert_eq!(getsockopt(end, TcpUserTimeout).unwrap(), 0);
    }
}
