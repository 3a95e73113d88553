//! The limit of `--max-connections` and the slots for sockets that request bundling.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Stdio};
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
use crate::namespaces::{Name, Resident};
use crate::succession::ends_well;

/// Starts pillion on loopback and waits until it has adopted existing connections. A single user
/// may take half of the slots.
fn attach(namespace: &Namespace, arguments: &[&str]) -> Child {
    let mut all = vec!["attach", "--dev", "lo"];
    all.extend(arguments);
    let mut attach = pillion_in(namespace, &all);
    let mut attach = attach.stderr(Stdio::piped()).spawn().unwrap();
    // Reads single bytes, so that later lines stay in the pipe.
    let said = attach.stderr.as_mut().unwrap();
    let mut byte = [0];
    let mut first = Vec::new();
    while said.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        first.extend(byte);
    }
    let first = String::from_utf8(first).unwrap();
    assert!(first.starts_with("pillion: bundling"), "{first}");
    attach
}

fn end(mut attach: Child) -> Vec<String> {
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(attach.wait().unwrap().success());
    let said = BufReader::new(attach.stderr.take().unwrap()).lines();
    said.map(Result::unwrap).collect()
}

/// Opens `count` connections and returns both ends of each.
fn connect(namespace: &Namespace, count: usize) -> Vec<(TcpStream, TcpStream)> {
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

fn bundled_in(namespace: &Namespace) -> usize {
    let inode = fs::metadata(namespace.path()).unwrap().ino();
    let flows = list_flows().expect("the list");
    let in_it = |netns: Option<u32>| netns.map(u64::from) == Some(inode);
    flows.iter().filter(|flow| in_it(flow.netns)).count()
}

#[test]
fn what_finds_no_place_stays_plain_until_others_have_ended() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "8"]);
    let first = connect(&namespace, 5);
    assert_eq!(bundled_in(&namespace), 4);
    drop(first);
    let second = connect(&namespace, 2);
    eventually("the connections are adopted", || bundled_in(&namespace) == 4);
    drop(second);
    let third = connect(&namespace, 1);
    eventually("the next connection is adopted", || bundled_in(&namespace) == 2);
    drop(third);
    let said = end(attach).join("\n");
    assert!(
        said.contains("more connections than --max-connections allows"),
        "{said}"
    );
}

#[test]
fn that_there_is_no_place_is_said_once_and_so_is_that_there_is_one_again() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = attach(&namespace, &["--all", "--max-connections", "8"]);
    let mut said = BufReader::new(attach.stderr.take().unwrap()).lines();
    let mut hear = |what: &str| {
        let line = said.find(|line| !line.as_ref().unwrap().contains("bundling all"));
        let line = line.unwrap().unwrap();
        assert!(line.contains(what), "{line}");
    };
    let connections = connect(&namespace, 5);
    hear("others stay plain");
    drop(connections);
    hear("there is room for all");
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert!(attach.wait().unwrap().success());
}

/// Half of four slots gives a user sixteen fractions, and a quarter more.
#[test]
fn what_applications_ask_for_takes_parts_of_places() {
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
    end(attach);
}

#[test]
fn connections_that_a_rule_leaves_alone_take_no_places_from_others() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("pillion.toml");
    let listener = namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let left_alone = listener.as_ref().unwrap().local_addr().unwrap();
    let port = left_alone.port();
    let of_two = format!(
        "[[rule]]\nmode = \"leave-alone\"\nports = [{port}]\n[[rule]]\nmode = \"bundle\"\n"
    );
    fs::write(&rules, of_two).unwrap();
    let rules = rules.to_str().unwrap();
    let attach = attach(&namespace, &["--config", rules, "--max-connections", "8"]);
    let connect_there = move || [(); 6].map(|()| TcpStream::connect(left_alone).unwrap());
    let first = namespace.enter(connect_there).unwrap();
    assert_eq!(bundled_in(&namespace), 0);
    let second = connect(&namespace, 1);
    assert_eq!(bundled_in(&namespace), 2);
    drop((first, second, listener));
    end(attach);
}

#[test]
fn what_a_listener_declines_holds_for_what_it_accepts_while_places_are_full() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "4"]);
    let first = connect(&namespace, 1);
    assert_eq!(bundled_in(&namespace), 2);
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
    assert_eq!(bundled_in(&namespace), 1);
    end(attach);
}

#[test]
fn an_application_may_decline_though_there_is_no_place_to_remember_it_in() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "4"]);
    let connections = connect(&namespace, 1);
    assert_eq!(bundled_in(&namespace), 2);
    let declining = &connections[0].0;
    set(declining, BUNDLE, 0).expect("opt-out is accepted");
    assert_eq!(get(declining, BUNDLE).unwrap(), 0);
    // Connections over the limit make pillion check all connections again.
    let refused = connect(&namespace, 1);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(get(declining, BUNDLE).unwrap(), 0);
    drop(refused);
    end(attach);
}

#[test]
fn what_an_application_sets_in_the_place_of_a_companion_holds_while_places_are_full() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let options = ["--all", "--user-timeout", "5000", "--max-connections", "4"];
    let attach = attach(&namespace, &options);
    let connections = connect(&namespace, 1);
    let own = &connections[0].0;
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 5000);
    setsockopt(own, TcpUserTimeout, &7000).unwrap();
    let refused = connect(&namespace, 1);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 7000);
    drop(refused);
    end(attach);
}

#[test]
fn what_is_taken_in_late_keeps_what_its_application_has_set_in_the_place_of_a_companion() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let options = ["--all", "--user-timeout", "5000", "--max-connections", "4"];
    let attach = attach(&namespace, &options);
    let first = connect(&namespace, 1);
    let late = connect(&namespace, 1);
    let own = &late[0].0;
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 5000);
    setsockopt(own, TcpUserTimeout, &7000).unwrap();
    drop(first);
    eventually("the connection is adopted", || get(own, BUNDLE).unwrap() == 1);
    assert_eq!(getsockopt(own, TcpUserTimeout).unwrap(), 7000);
    end(attach);
}

#[test]
fn what_comes_with_a_namespace_has_companions_though_there_is_no_place_for_it() {
    needs_root!();
    let [own, first, second] = [(); 3].map(|()| namespace_with_loopback());
    let residents = [&first, &second].map(Resident::of);
    let end = format!("-places-{}", std::process::id());
    let _there = Name::give_with(&residents[0], &end);
    let pattern = format!("pillion-test-*{end}");
    let options = ["--all", "--user-timeout", "5000", "--max-connections", "4"];
    let options = [&options, ["--netns", &pattern].as_slice()].concat();
    let attach = attach(&own, &options);
    let _full = connect(&first, 1);
    assert_eq!(bundled_in(&first), 2);
    let late = connect(&second, 1);
    let _comes = Name::give_with(&residents[1], &end);
    eventually("the TCP options are set", || {
        getsockopt(&late[0].0, TcpUserTimeout).unwrap() == 5000
    });
    assert_eq!(bundled_in(&second), 0);
    let said = self::end(attach).join("\n");
    assert!(said.contains("others stay plain"), "{said}");
}

#[test]
fn sockets_that_have_ended_take_no_places() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--max-connections", "60"]);
    for _ in 0..50 {
        let socket = namespace.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
        set(&socket.unwrap(), BUNDLE, 1).expect("a slot is free");
        thread::sleep(Duration::from_millis(150));
    }
    let said = end(attach).join("\n");
    assert!(!said.contains("--max-connections"), "{said}");
}

/// If the kernel refuses to iterate over socket storage, they are found only in their own
/// namespace.
#[test]
fn what_nobody_has_accepted_yet_takes_places_in_every_namespace() {
    needs_root!();
    let [here, there] = [(); 2].map(|()| namespace_with_loopback());
    let resident = Resident::of(&there);
    let pid = resident.pid();
    let options = ["--dev", "lo", "--max-connections", "8", "--netns", &pid];
    let attach = Attach::begin_in(&here, &options);
    let listener = there.enter(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let to = listener.as_ref().unwrap().local_addr().unwrap();
    let connect = || there.enter(move || [(); 2].map(|()| TcpStream::connect(to).unwrap()));
    let first = connect().unwrap();
    // Wait until unused slots have been counted once or twice.
    thread::sleep(Duration::from_millis(2500));
    let second = connect().unwrap();
    assert_eq!(attach.end()["connections"], 4);
    drop((listener, first, second));
}

/// Users beyond the table's capacity share one limit.
#[test]
fn more_users_than_can_be_told_apart_keep_no_successor_from_its_work() {
    const USERS: u32 = 4200;
    needs_root!();
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(1 << 16), most).unwrap();
    let namespace = namespace_with_loopback();
    let mut attach = attach(&namespace, &["--max-connections", "16384"]);
    let ask = |user: u32| {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: three integers; only this thread becomes another user.
        let become_user = unsafe { libc::syscall(libc::SYS_setresuid, user, 0, 0) };
        assert_eq!(become_user, 0);
        set(&socket, BUNDLE, 1).expect("a slot is free");
        socket
    };
    let ask = move || (100_000..100_000 + USERS).map(ask).collect::<Vec<_>>();
    let thread = namespace.enter(|| thread::spawn(ask)).unwrap();
    let sockets = thread.join().unwrap();
    kill(Pid::from_raw(attach.id().cast_signed()), Signal::SIGUSR2).unwrap();
    assert!(ends_well(&mut attach));
    let status = || {
        pillion_in(&namespace, &["status", "--json"])
            .output()
            .unwrap()
    };
    thread::sleep(Duration::from_millis(2500));
    let status: serde_json::Value = serde_json::from_slice(&status().stdout).unwrap();
    let successor = status[0]["pid"].as_i64().expect("pillion is ready");
    kill(Pid::from_raw(successor as i32), Signal::SIGTERM).unwrap();
    assert_eq!(status[0]["last_error"], serde_json::Value::Null, "{status}");
    drop(sockets);
}

/// An accepted socket belongs to the user who accepts it, but the listener's user took its slot.
#[test]
fn a_place_is_that_of_the_user_who_took_it_whoever_has_the_socket_later() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let attach = attach(&namespace, &["--all", "--max-connections", "16"]);
    let another = Uid::from_raw(1);
    let accepted = namespace.enter(move || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        setfsuid(another);
        let pair = |()| {
            let near = TcpStream::connect(to).unwrap();
            (near, listener.accept().unwrap().0)
        };
        [(); 4].map(pair)
    });
    // Wait until unused slots have been counted once or twice.
    thread::sleep(Duration::from_millis(2500));
    let more = connect(&namespace, 5);
    assert_eq!(bundled_in(&namespace), 12, "root has listened four times");
    drop((accepted, more));
    end(attach);
}

/// `run` retries only connections of its command.
#[test]
fn where_the_commands_connections_find_no_place_those_of_others_are_let_be() {
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
        "55555",
    ];
    let mut run = pillion_in(&namespace, &options);
    let output = run.args(["--", "bash", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("more connections than --max-connections allows"));
    for end in [&others[0].0, &others[0].1] {
        assert_eq!(getsockopt(end, TcpUserTimeout).unwrap(), 0);
    }
}
