//! Hand-over from one pillion to the next without a gap.

mod rules;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigHandler, Signal, kill};
use nix::unistd::Pid;
use pillion_bpf::host::pillion::{self as option, BUNDLE, MAX_BYTES};
use pillion_lab::Namespace;
use tempfile::TempDir;

use crate::common::*;
use crate::manager::{Manager, signal};

/// Waits for the exit and returns whether it was successful.
pub fn ends_well(pillion: &mut Child) -> bool {
    within(Duration::from_secs(60), "the process exits", || {
        pillion.try_wait().unwrap().is_some()
    });
    pillion.wait().unwrap().success()
}

/// Returns the PIDs of the ready pillions in a namespace.
fn at_work(namespace: &Namespace) -> Vec<u32> {
    let json = pillion_in(namespace, &["status", "--json"])
        .output()
        .unwrap();
    let all: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    all.iter()
        .filter(|it| it["at_work"] == true)
        .map(|it| it["pid"].as_u64().unwrap() as u32)
        .collect()
}

/// New process of a hand-over, which is not a child of the test. Stopped when dropped.
struct Successor(u32);

impl Drop for Successor {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.cast_signed()), Signal::SIGTERM);
    }
}

#[test]
fn a_successor_takes_over_connections_that_are_under_way_without_a_gap() {
    needs_root!();
    let (manager, pair) = (Manager::new(), clean_pair());
    let namespace = &pair.sender.namespace;
    let attach = ["attach", "--port", "7001", "--metrics", "127.0.0.1:9274"];
    let mut service = manager.start(namespace, &attach);
    manager.hear("READY=1");
    let listen = || TcpListener::bind("10.77.0.2:7001").unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let connect = || TcpStream::connect("10.77.0.2:7001").unwrap();
    let mut here = namespace.enter(connect).unwrap();
    let (mut there, _) = listener.accept().unwrap();
    let status = || stdout(&pillion_in(namespace, &["status"]).output().unwrap());
    eventually("the connection is covered", || {
        status().contains("covers 1 connection now")
    });
    signal(&service, Signal::SIGUSR2);
    let ready = manager.hear("MAINPID=");
    let pid = ready.split_once("MAINPID=").unwrap().1;
    let successor = Successor(pid.split('\n').next().unwrap().parse().unwrap());
    assert_ne!(successor.0, service.id());
    assert!(ends_well(&mut service));
    assert_eq!(at_work(namespace), [successor.0]);
    let told = status();
    assert!(told.contains("covers 1 connection now, 1 since"), "{told}");
    here.write_all(b"as before").unwrap();
    let mut heard = [0; 9];
    there.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"as before");
    drop(successor);
    eventually("no pillion is left", || at_work(namespace).is_empty());
}

#[test]
fn who_opened_a_connection_is_known_to_the_successor() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\ndirection = \"accept\"\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut service = manager.start(&namespace, &config);
    manager.hear("READY=1");
    let connected = namespace.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    });
    signal(&service, Signal::SIGUSR2);
    manager.hear("MAINPID=");
    assert!(ends_well(&mut service));
    let successor = Successor(at_work(&namespace)[0]);
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    assert!(
        stdout(&status).contains("covers 1 connection now"),
        "{status:?}"
    );
    drop((connected, successor));
    eventually("no pillion is left", || at_work(&namespace).is_empty());
}

#[test]
fn of_two_requests_for_a_successor_one_is_granted() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let mut service = manager.start(&namespace, &["attach", "--all", "--dev", "lo"]);
    let says = BufReader::new(service.stderr.take().unwrap()).lines();
    manager.hear("READY=1");
    signal(&service, Signal::SIGUSR2);
    let is_begun = || successor_of(service.id()).is_some();
    eventually("a new process is started", is_begun);
    signal(&service, Signal::SIGUSR2);
    assert!(ends_well(&mut service));
    let successor = Successor(at_work(&namespace)[0]);
    // The new process shares the pipe, so it stays open after the old process has exited.
    let lines = says.map_while(Result::ok);
    let mut lines = lines.take_while(|line| !line.contains("its successor is at work"));
    assert!(lines.any(|line| line.contains("no successor: one was begun before")));
    assert_eq!(at_work(&namespace), [successor.0]);
    drop(successor);
    eventually("no pillion is left", || at_work(&namespace).is_empty());
}

#[test]
fn while_a_successor_hangs_the_old_one_does_as_it_is_told_and_takes_it_along() {
    needs_root!();
    begin_one_that_hangs(|program| fs::remove_file(program).unwrap());
}

#[test]
fn the_successor_is_what_has_the_name_whatever_became_of_the_old_file() {
    needs_root!();
    begin_one_that_hangs(|program| fs::rename(program, program.with_extension("old")).unwrap());
}

/// Starts a hand-over to a process that hangs. It takes the place of pillion's file after
/// `move_away`.
fn begin_one_that_hangs(move_away: fn(&Path)) {
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let [program, began] = ["pillion", "began"].map(|name| folder.path().join(name));
    // Copied by another process: a file that this process has open for writing is inherited by
    // processes that other tests start, and cannot be executed.
    let copied = Command::new("cp").arg(PILLION).arg(&program).status();
    assert!(copied.unwrap().success());
    let mut attach = namespace.command(program.to_str().unwrap());
    attach.args(["attach", "--all", "--dev", "lo"]);
    let mut service = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(service.id());
    move_away(&program);
    let hangs = format!(
        "#!/bin/sh\necho $$ > {}\nexec sleep 1000\n",
        began.display()
    );
    fs::write(&program, hangs).unwrap();
    let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, may_run).unwrap();
    signal(&service, Signal::SIGUSR2);
    let read = || fs::read_to_string(&began).unwrap_or_default();
    eventually("the new process starts", || read().ends_with('\n'));
    signal(&service, Signal::SIGTERM);
    assert!(ends_well(&mut service));
    assert!(!Path::new("/proc").join(read().trim()).exists());
}

#[test]
fn a_successor_that_fails_leaves_the_old_one_at_work() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut service = manager.start(&namespace, &config);
    let mut says = BufReader::new(service.stderr.take().unwrap()).lines();
    manager.hear("READY=1");
    fs::write(&rules, "no rules").unwrap();
    signal(&service, Signal::SIGUSR2);
    let mut lines = says.by_ref().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("rules.toml:1:")));
    assert_eq!(at_work(&namespace), [service.id()]);
    signal(&service, Signal::SIGTERM);
    assert!(ends_well(&mut service));
}

/// Hand-over whose new process waits for a network namespace that never appears.
struct Waiting {
    old: Child,
    says: Box<dyn Iterator<Item = String>>,
    successor: Successor,
    namespace: Namespace,
    folder: TempDir,
}

impl Waiting {
    fn begin() -> Self {
        let (manager, namespace) = (Manager::new(), namespace_with_loopback());
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("rules.toml");
        fs::write(&rules, "[[rule]]\n").unwrap();
        let rules = rules.to_str().unwrap();
        let attach = ["attach", "--wait", "--dev", "lo", "--config", rules];
        let mut old = manager.start(&namespace, &attach);
        manager.hear("READY=1");
        fs::write(rules, "netns = \"pillion-test-tpyo\"\n[[rule]]\n").unwrap();
        signal(&old, Signal::SIGUSR2);
        let says = BufReader::new(old.stderr.take().unwrap()).lines();
        let mut says = says.map_while(Result::ok);
        let waits = "waits: no network namespace `pillion-test-tpyo`";
        assert!(says.any(|line| line.contains(waits)));
        let successor = Successor(successor_of(old.id()).expect("attach waits"));
        let heard = manager.heard();
        assert!(
            !heard.iter().any(|it| it.contains("STATUS=waits")),
            "{heard:?}"
        );
        Self {
            old,
            says: Box::new(says),
            successor,
            namespace,
            folder,
        }
    }

    fn has_successor(&self) -> bool {
        Path::new("/proc")
            .join(self.successor.0.to_string())
            .exists()
    }
}

/// Returns the new process that a pillion has started.
fn successor_of(pid: u32) -> Option<u32> {
    let told = format!("PILLION_SUCCEEDS={pid}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|it| {
        let environment = fs::read(format!("/proc/{it}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|it| it == told.as_bytes())
    })
}

#[test]
fn status_is_that_of_who_is_at_work_while_its_successor_waits() {
    needs_root!();
    let mut waiting = Waiting::begin();
    eventually("status shows both processes", || {
        let status = pillion_in(&waiting.namespace, &["status"])
            .output()
            .unwrap();
        let said = stdout(&status);
        let both = said.contains("  attached to lo\n") && said.contains("  not at work yet\n");
        both && status.status.code() == Some(3)
    });
    signal(&waiting.old, Signal::SIGTERM);
    assert!(ends_well(&mut waiting.old));
}

#[test]
fn who_ends_while_its_successor_waits_takes_it_along() {
    needs_root!();
    for ending in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut waiting = Waiting::begin();
        signal(&waiting.old, ending);
        let status = waiting.old.wait().unwrap();
        assert_eq!(status.success(), ending == Signal::SIGTERM);
        eventually("the new process exits", || !waiting.has_successor());
        assert!(at_work(&waiting.namespace).is_empty());
    }
}

#[test]
fn after_a_successor_that_ended_there_may_be_another_at_once() {
    needs_root!();
    let mut waiting = Waiting::begin();
    kill(
        Pid::from_raw(waiting.successor.0.cast_signed()),
        Signal::SIGKILL,
    )
    .unwrap();
    assert!(
        waiting
            .says
            .any(|line| line.contains("no successor: it ended"))
    );
    fs::write(waiting.folder.path().join("rules.toml"), "[[rule]]\n").unwrap();
    signal(&waiting.old, Signal::SIGUSR2);
    assert!(ends_well(&mut waiting.old));
    let successor = Successor(at_work(&waiting.namespace)[0]);
    drop(successor);
    eventually("no pillion is left", || at_work(&waiting.namespace).is_empty());
}

#[test]
fn what_applications_asked_and_declined_holds_with_the_successor() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let attach = [
        "attach",
        "--dev",
        "lo",
        "--port",
        "7001",
        "--max-connections",
        "100",
    ];
    let mut service = manager.start(&namespace, &attach);
    manager.hear("READY=1");
    let bind = |port| namespace.enter(move || TcpListener::bind(("127.0.0.1", port)).unwrap());
    let listeners = [7001, 7002].map(|port| bind(port).unwrap());
    let connect = |listener: &TcpListener| {
        let to = listener.local_addr().unwrap();
        let near = namespace
            .enter(move || TcpStream::connect(to).unwrap())
            .unwrap();
        (near, listener.accept().unwrap().0)
    };
    let (declines, _declines) = connect(&listeners[0]);
    let (asks, _asks) = connect(&listeners[1]);
    option::set(&declines, BUNDLE, 0).unwrap();
    option::set(&asks, BUNDLE, 1).unwrap();
    option::set(&asks, MAX_BYTES, 300).unwrap();
    option::set(&listeners[1], BUNDLE, 1).unwrap();
    signal(&service, Signal::SIGUSR2);
    assert!(ends_well(&mut service));
    let successor = Successor(at_work(&namespace)[0]);
    let is = |socket: &TcpStream, asked| option::get(socket, asked).unwrap();
    assert_eq!(is(&declines, BUNDLE), 0);
    assert_eq!((is(&asks, BUNDLE), is(&asks, MAX_BYTES)), (1, 300));
    let (_later, accepted) = connect(&listeners[1]);
    assert_eq!(is(&accepted, BUNDLE), 1);
    drop(successor);
    eventually("no pillion is left", || at_work(&namespace).is_empty());
}

/// A process that ignores SIGCHLD cannot wait for its child, so it may seem to have none.
#[test]
fn who_was_begun_with_ends_of_children_ignored_hands_over_all_the_same() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = pillion_in(&namespace, &["attach", "--all", "--dev", "lo"]);
    // SAFETY: between fork and exec a system call is made.
    unsafe {
        attach.pre_exec(|| {
            let ignored = nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigIgn);
            ignored.map(drop).map_err(Into::into)
        });
    }
    let mut service = attach.stderr(Stdio::null()).spawn().unwrap();
    await_attached(service.id());
    signal(&service, Signal::SIGUSR2);
    assert!(ends_well(&mut service));
    let successor = Successor(at_work(&namespace)[0]);
    drop(successor);
    eventually("no pillion is left", || at_work(&namespace).is_empty());
}

#[test]
fn who_is_to_succeed_one_that_has_ended_already_ends_as_well() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = namespace.command("timeout");
    attach.args(["60", PILLION, "attach", "--all", "--dev", "lo"]);
    let output = attach.env("PILLION_SUCCEEDS", "1").output().unwrap();
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("PILLION_SUCCEEDS=1: that has ended"),
        "{output:?}"
    );
}

/// The container would end with its first process, and the new process too.
#[test]
fn the_first_process_of_a_container_does_not_hand_over() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut unshare = namespace.command("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.args([PILLION, "attach", "--all", "--dev", "lo"]);
    let mut container = unshare.stderr(Stdio::piped()).spawn().unwrap();
    let says = BufReader::new(container.stderr.take().unwrap()).lines();
    let mut says = says.map_while(Result::ok);
    assert!(says.any(|line| line.starts_with("pillion: bundling ")));
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    let first = fs::read_to_string(children).unwrap();
    let first = Pid::from_raw(first.trim().parse().unwrap());
    kill(first, Signal::SIGUSR2).unwrap();
    assert!(says.any(|line| line.contains("no successor: it is the first process of a container")));
    kill(first, Signal::SIGTERM).unwrap();
    assert!(ends_well(&mut container));
}

/// Returns the number of links by which a process is attached to devices.
fn device_links(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter();
    let entries = entries.flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts
        .filter(|text| text.contains("link_type:\ttcx"))
        .count()
}

/// The old process waits a second for ACKs of a peer that is gone.
#[test]
fn who_is_told_to_end_while_it_ends_takes_its_successor_along() {
    needs_root!();
    let (manager, pair) = (Manager::new(), clean_pair());
    let namespace = &pair.sender.namespace;
    let mut service = manager.start(namespace, &["attach", "--port", "7001"]);
    manager.hear("READY=1");
    if device_links(service.id()) == 0 {
        println!("left out: this kernel has no tcx");
        signal(&service, Signal::SIGTERM);
        service.wait().unwrap();
        return;
    }
    let listen = || TcpListener::bind("10.77.0.2:7001").unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let connect = || TcpStream::connect("10.77.0.2:7001").unwrap();
    let mut here = namespace.enter(connect).unwrap();
    let _there = listener.accept().unwrap();
    let mut ip = pair.receiver.namespace.command("ip");
    let blackhole = ["route", "add", "blackhole", "10.77.0.1/32"];
    assert!(ip.args(blackhole).status().unwrap().success());
    here.write_all(b"unheard").unwrap();
    let all = device_links(service.id());
    signal(&service, Signal::SIGUSR2);
    within(
        Duration::from_secs(60),
        "the old process detaches its egress programs",
        || device_links(service.id()) < all,
    );
    signal(&service, Signal::SIGTERM);
    assert!(ends_well(&mut service));
    eventually("no pillion is left", || at_work(namespace).is_empty());
}
