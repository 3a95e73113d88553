//! Hand-over from one pillion to the next without a gap.

mod signals;

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
use crate::manager::Manager;

/// Waits for the exit and returns whether it was successful.
pub fn exits_successfully(pillion: &mut Child) -> bool {
    within(Duration::from_secs(60), "the process exits", || {
        pillion.try_wait().unwrap().is_some()
    });
    pillion.wait().unwrap().success()
}

/// Returns the PIDs of the ready pillions in a namespace.
pub fn ready_pids(namespace: &Namespace) -> Vec<u32> {
    let json = pillion_in(namespace, &["status", "--json"])
        .output()
        .unwrap();
    let all: Vec<serde_json::Value> = serde_json::from_slice(&json.stdout).unwrap();
    all.iter()
        .filter(|it| it["ready"] == true)
        .map(|it| it["pid"].as_u64().unwrap() as u32)
        .collect()
}

/// Waits until no pillion of the namespace is ready.
fn expect_none_left(namespace: &Namespace) {
    within(Duration::from_secs(60), "no pillion is left", || {
        ready_pids(namespace).is_empty()
    });
}

/// New process of a hand-over, which is not a child of the test. Stopped when dropped.
pub struct NewProcess(pub u32);

impl Drop for NewProcess {
    fn drop(&mut self) {
        let _ = kill(Pid::from_raw(self.0.cast_signed()), Signal::SIGTERM);
    }
}

#[test]
fn handover_keeps_connections_covered_without_gap() {
    needs_root!();
    let (manager, pair) = (Manager::new(), clean_pair());
    let namespace = &pair.sender.namespace;
    let attach = ["attach", "--port", "7001", "--metrics", "127.0.0.1:9274"];
    let mut service = manager.start(namespace, &attach);
    manager.wait_for("READY=1");
    let listen = || TcpListener::bind("10.77.0.2:7001").unwrap();
    let listener = pair.receiver.namespace.enter(listen).unwrap();
    let connect = || TcpStream::connect("10.77.0.2:7001").unwrap();
    let mut near = namespace.enter(connect).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let status = || stdout(&pillion_in(namespace, &["status"]).output().unwrap());
    eventually("the connection is covered", || {
        status().contains("covers 1 connection now")
    });
    send_signal(&service, Signal::SIGUSR2);
    let ready = manager.wait_for("MAINPID=");
    let pid = ready.split_once("MAINPID=").unwrap().1;
    let new_process = NewProcess(pid.split('\n').next().unwrap().parse().unwrap());
    assert_ne!(new_process.0, service.id());
    assert!(exits_successfully(&mut service));
    assert_eq!(ready_pids(namespace), [new_process.0]);
    let text = status();
    assert!(text.contains("covers 1 connection now, 1 since"), "{text}");
    near.write_all(b"as before").unwrap();
    let mut messages = [0; 9];
    far.read_exact(&mut messages).unwrap();
    assert_eq!(&messages, b"as before");
    drop(new_process);
    expect_none_left(namespace);
}

#[test]
fn new_process_knows_direction_of_connections() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\ndirection = \"accept\"\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut service = manager.start(&namespace, &config);
    manager.wait_for("READY=1");
    let connected = namespace.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    });
    send_signal(&service, Signal::SIGUSR2);
    manager.wait_for("MAINPID=");
    assert!(exits_successfully(&mut service));
    let new_process = NewProcess(ready_pids(&namespace)[0]);
    let status = pillion_in(&namespace, &["status"]).output().unwrap();
    assert!(
        stdout(&status).contains("covers 1 connection now"),
        "{status:?}"
    );
    drop((connected, new_process));
    expect_none_left(&namespace);
}

#[test]
fn second_handover_request_is_refused() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let mut service = manager.start(&namespace, &["attach", "--all", "--dev", "lo"]);
    let log = BufReader::new(service.stderr.take().unwrap()).lines();
    manager.wait_for("READY=1");
    send_signal(&service, Signal::SIGUSR2);
    let is_started = || new_process_of(service.id()).is_some();
    eventually("a new process is started", is_started);
    send_signal(&service, Signal::SIGUSR2);
    assert!(exits_successfully(&mut service));
    let new_process = NewProcess(ready_pids(&namespace)[0]);
    // The new process shares the pipe, so it stays open after the old process has exited.
    let lines = log.map_while(Result::ok);
    let mut lines = lines.take_while(|line| !line.contains("hand-over complete"));
    assert!(lines.any(|line| line.contains("hand-over failed: another hand-over is in progress")));
    assert_eq!(ready_pids(&namespace), [new_process.0]);
    drop(new_process);
    expect_none_left(&namespace);
}

#[test]
fn old_process_stops_hanging_new_process_on_sigterm() {
    needs_root!();
    hand_over_to_hanging_process(|program| fs::remove_file(program).unwrap());
}

#[test]
fn new_process_runs_file_at_old_path() {
    needs_root!();
    hand_over_to_hanging_process(|program| {
        fs::rename(program, program.with_extension("old")).unwrap();
    });
}

/// Starts a hand-over to a process that hangs. It takes the place of pillion's file after
/// `move_away`.
fn hand_over_to_hanging_process(move_away: fn(&Path)) {
    let namespace = namespace_with_loopback();
    let folder = tempfile::tempdir().unwrap();
    let [program, pid_file] = ["pillion", "pid"].map(|name| folder.path().join(name));
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
        pid_file.display()
    );
    fs::write(&program, hangs).unwrap();
    let may_run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&program, may_run).unwrap();
    send_signal(&service, Signal::SIGUSR2);
    let read = || fs::read_to_string(&pid_file).unwrap_or_default();
    eventually("the new process starts", || read().ends_with('\n'));
    send_signal(&service, Signal::SIGTERM);
    assert!(exits_successfully(&mut service));
    assert!(!Path::new("/proc").join(read().trim()).exists());
}

#[test]
fn old_process_stays_ready_if_new_process_fails() {
    needs_root!();
    let (manager, namespace) = (Manager::new(), namespace_with_loopback());
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.toml");
    fs::write(&rules, "[[rule]]\n").unwrap();
    let config = ["attach", "--dev", "lo", "--config", rules.to_str().unwrap()];
    let mut service = manager.start(&namespace, &config);
    let mut log = BufReader::new(service.stderr.take().unwrap()).lines();
    manager.wait_for("READY=1");
    fs::write(&rules, "no rules").unwrap();
    send_signal(&service, Signal::SIGUSR2);
    let mut lines = log.by_ref().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("rules.toml:1:")));
    assert_eq!(ready_pids(&namespace), [service.id()]);
    send_signal(&service, Signal::SIGTERM);
    assert!(exits_successfully(&mut service));
}

/// Hand-over whose new process waits for a network namespace that never appears.
struct WaitingHandover {
    old: Child,
    log: Box<dyn Iterator<Item = String>>,
    new_process: NewProcess,
    namespace: Namespace,
    folder: TempDir,
}

impl WaitingHandover {
    fn start() -> Self {
        let (manager, namespace) = (Manager::new(), namespace_with_loopback());
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("rules.toml");
        fs::write(&rules, "[[rule]]\n").unwrap();
        let rules = rules.to_str().unwrap();
        let attach = ["attach", "--wait", "--dev", "lo", "--config", rules];
        let mut old = manager.start(&namespace, &attach);
        manager.wait_for("READY=1");
        fs::write(rules, "netns = \"pillion-test-tpyo\"\n[[rule]]\n").unwrap();
        send_signal(&old, Signal::SIGUSR2);
        let log = BufReader::new(old.stderr.take().unwrap()).lines();
        let mut log = log.map_while(Result::ok);
        let waits = "waiting: no network namespace `pillion-test-tpyo`";
        assert!(log.any(|line| line.contains(waits)));
        let new_process = NewProcess(new_process_of(old.id()).expect("attach waits"));
        let messages = manager.drain();
        assert!(
            !messages.iter().any(|it| it.contains("STATUS=waiting")),
            "{messages:?}"
        );
        Self {
            old,
            log: Box::new(log),
            new_process,
            namespace,
            folder,
        }
    }

    fn new_process_runs(&self) -> bool {
        Path::new("/proc")
            .join(self.new_process.0.to_string())
            .exists()
    }
}

/// Returns the new process that a pillion has started.
fn new_process_of(pid: u32) -> Option<u32> {
    let variable = format!("PILLION_OLD_PROCESS={pid}");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|it| {
        let environment = fs::read(format!("/proc/{it}/environ")).unwrap_or_default();
        environment
            .split(|byte| *byte == 0)
            .any(|it| it == variable.as_bytes())
    })
}

#[test]
fn status_shows_ready_old_process_while_new_one_waits() {
    needs_root!();
    let mut waiting = WaitingHandover::start();
    eventually("status shows both processes", || {
        let status = pillion_in(&waiting.namespace, &["status"])
            .output()
            .unwrap();
        let text = stdout(&status);
        let both = text.contains("  attached to lo\n") && text.contains("  not ready yet\n");
        let note = "  note: a hand-over to a new process is in progress\n";
        both && text.matches(note).count() == 2 && status.status.code() == Some(3)
    });
    send_signal(&waiting.old, Signal::SIGTERM);
    assert!(exits_successfully(&mut waiting.old));
}

#[test]
fn old_process_stops_waiting_new_process_at_exit() {
    needs_root!();
    for stop_signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut waiting = WaitingHandover::start();
        send_signal(&waiting.old, stop_signal);
        let status = waiting.old.wait().unwrap();
        assert_eq!(status.success(), stop_signal == Signal::SIGTERM);
        eventually("the new process exits", || !waiting.new_process_runs());
        assert!(ready_pids(&waiting.namespace).is_empty());
    }
}

#[test]
fn handover_can_be_repeated_after_new_process_dies() {
    needs_root!();
    let mut waiting = WaitingHandover::start();
    kill(
        Pid::from_raw(waiting.new_process.0.cast_signed()),
        Signal::SIGKILL,
    )
    .unwrap();
    assert!(
        waiting
            .log
            .any(|line| line.contains("hand-over failed: the new process exited"))
    );
    fs::write(waiting.folder.path().join("rules.toml"), "[[rule]]\n").unwrap();
    send_signal(&waiting.old, Signal::SIGUSR2);
    assert!(exits_successfully(&mut waiting.old));
    let new_process = NewProcess(ready_pids(&waiting.namespace)[0]);
    drop(new_process);
    expect_none_left(&waiting.namespace);
}

#[test]
fn socket_requests_survive_handover() {
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
    manager.wait_for("READY=1");
    let bind = |port| namespace.enter(move || TcpListener::bind(("127.0.0.1", port)).unwrap());
    let listeners = [7001, 7002].map(|port| bind(port).unwrap());
    let connect = |listener: &TcpListener| {
        let to = listener.local_addr().unwrap();
        let near = namespace
            .enter(move || TcpStream::connect(to).unwrap())
            .unwrap();
        (near, listener.accept().unwrap().0)
    };
    let (declining, _declines) = connect(&listeners[0]);
    let (requesting, _asks) = connect(&listeners[1]);
    option::set(&declining, BUNDLE, 0).unwrap();
    option::set(&requesting, BUNDLE, 1).unwrap();
    option::set(&requesting, MAX_BYTES, 300).unwrap();
    option::set(&listeners[1], BUNDLE, 1).unwrap();
    send_signal(&service, Signal::SIGUSR2);
    manager.wait_for("MAINPID=");
    assert!(exits_successfully(&mut service));
    let new_process = NewProcess(ready_pids(&namespace)[0]);
    let value = |socket: &TcpStream, option_name| option::get(socket, option_name).unwrap();
    assert_eq!(value(&declining, BUNDLE), 0);
    assert_eq!(
        (value(&requesting, BUNDLE), value(&requesting, MAX_BYTES)),
        (1, 300)
    );
    let (_later, accepted) = connect(&listeners[1]);
    assert_eq!(value(&accepted, BUNDLE), 1);
    drop(new_process);
    expect_none_left(&namespace);
}

/// A process that ignores SIGCHLD cannot wait for its child, so it may seem to have none.
#[test]
fn handover_works_with_sigchld_ignored() {
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
    send_signal(&service, Signal::SIGUSR2);
    assert!(exits_successfully(&mut service));
    let new_process = NewProcess(ready_pids(&namespace)[0]);
    drop(new_process);
    expect_none_left(&namespace);
}

#[test]
fn new_process_exits_if_old_process_is_gone() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut attach = namespace.command("timeout");
    attach.args(["60", PILLION, "attach", "--all", "--dev", "lo"]);
    let output = attach.env("PILLION_OLD_PROCESS", "1").output().unwrap();
    assert!(!output.status.success());
    assert!(
        stderr(&output).contains("PILLION_OLD_PROCESS=1 is not the parent"),
        "{output:?}"
    );
}

/// The container would end with its first process, and the new process too.
#[test]
fn pid_1_refuses_handover() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut unshare = namespace.command("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare.args([PILLION, "attach", "--all", "--dev", "lo"]);
    let mut container = unshare.stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(container.stderr.take().unwrap()).lines();
    let mut log = log.map_while(Result::ok);
    assert!(log.any(|line| line.starts_with("pillion: bundling ")));
    let children = format!("/proc/{0}/task/{0}/children", container.id());
    let first = fs::read_to_string(children).unwrap();
    let first = Pid::from_raw(first.trim().parse().unwrap());
    kill(first, Signal::SIGUSR2).unwrap();
    assert!(log.any(|line| {
        line.contains("hand-over failed: pillion is the first process of this container")
    }));
    kill(first, Signal::SIGTERM).unwrap();
    assert!(exits_successfully(&mut container));
}
