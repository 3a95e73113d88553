//! Signals during the start, and reloads on SIGHUP.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::{CgroupSandbox, ChildGuard, ignore_signals, run, state};
use crate::common::*;

const REPETITIONS: u32 = 20;

#[test]
fn signal_after_cgroup_creation_starts_nothing() {
    needs_root!();
    let sandbox = CgroupSandbox::create("early");
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("started");
    let script = format!("touch {}; exec sleep 300", trace.display());
    let mut early = 0;
    for _ in 0..REPETITIONS {
        let mut command = run(&["sh", "-c", &script]);
        sandbox.assign(command.stderr(Stdio::null()));
        let mut pillion = ChildGuard::spawn(&mut command);
        while sandbox.children().is_empty() {
            thread::yield_now();
        }
        pillion.signal(Signal::SIGTERM);
        assert_eq!(pillion.wait_exit().code(), Some(128 + 15));
        assert_eq!(sandbox.children(), [""; 0].map(PathBuf::from));
        // On a busy host the signal may come too late.
        early += u32::from(fs::remove_file(&trace).is_err());
    }
    println!("{early} of {REPETITIONS} were early");
    assert_ne!(early, 0);
}

#[test]
fn signal_at_any_time_of_start_leaves_nothing() {
    needs_root!();
    let sandbox = CgroupSandbox::create("any-time");
    for repetition in 0..REPETITIONS {
        let mut command = run(&["sleep", "300"]);
        sandbox.assign(command.stderr(Stdio::null()));
        let mut pillion = ChildGuard::spawn(&mut command);
        thread::sleep(Duration::from_millis(20) * repetition);
        pillion.signal(Signal::SIGTERM);
        let status = pillion.wait_exit();
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(128 + 15));
        assert_eq!(sandbox.children(), [""; 0].map(PathBuf::from));
        assert_eq!(sandbox.processes(), []);
    }
}

#[test]
fn signals_while_attach_reads_rules_are_handled_later() {
    needs_root!();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.toml");
    mkfifo(&file, Mode::S_IRWXU).expect("a pipe");
    let arguments = ["attach", "--dev", "lo", "--config"];
    let mut command = pillion_in(&namespace_with_loopback(), &arguments);
    let mut attach = ChildGuard::spawn(command.arg(&file).stderr(Stdio::piped()));
    let mut rules = None;
    eventually("attach opens the file", || {
        let mut options = File::options();
        options.write(true).custom_flags(libc::O_NONBLOCK);
        rules = options.open(&file).ok();
        rules.is_some()
    });
    for signal in [Signal::SIGHUP, Signal::SIGUSR1, Signal::SIGUSR2] {
        attach.signal(signal);
    }
    let mut rules = rules.expect("it is open");
    rules
        .write_all(b"[[rule]]\nport = 7001\n")
        .expect("it reads");
    drop(rules);
    let log = BufReader::new(attach.0.stderr.take().expect("it was piped"));
    let mut lines = log.lines().map(Result::unwrap);
    for part in [
        "bundling by 1 rule",
        "only a regular file can be reloaded; give one to --config",
    ] {
        assert!(
            lines.any(|line| line.contains(part)),
            "never logged: {part}"
        );
    }
    attach.signal(Signal::SIGTERM);
    assert_eq!(attach.wait_exit().code(), Some(0));
}

/// Running `pillion attach` with its rules file.
struct AttachWithRules {
    child: ChildGuard,
    log: BufReader<ChildStderr>,
    folder: TempDir,
}

impl AttachWithRules {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules.toml");
        fs::write(&file, "[[rule]]\nport = 7001\n").expect("a file");
        let mut child = pillion_in(&namespace_with_loopback(), &["attach", "--dev", "lo"]);
        child.arg("--config").arg(file).stderr(Stdio::piped());
        let mut child = ChildGuard::spawn(&mut child);
        let log = BufReader::new(child.0.stderr.take().expect("a pipe"));
        let mut attach = Self { child, log, folder };
        let line = attach.line();
        assert!(line.starts_with("pillion: bundling by "), "{line}");
        attach
    }

    /// Reads the next log line, with the file's path replaced by FILE.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.log.read_line(&mut line).expect("a line");
        let file = self.folder.path().join("rules.toml");
        line.trim_end()
            .replace(file.to_str().expect("UTF-8"), "FILE")
    }

    fn stop(mut self) {
        self.child.signal(Signal::SIGTERM);
        assert_eq!(self.child.wait_exit().code(), Some(0));
    }
}

#[test]
fn attach_under_nohup_ignores_sighup() {
    needs_root!();
    let mut child = pillion_in(&namespace_with_loopback(), &["attach", "--dev", "lo"]);
    ignore_signals(child.stderr(Stdio::null()), &[Signal::SIGHUP]);
    let mut child = ChildGuard::spawn(&mut child);
    await_attached(child.0.id());
    child.signal(Signal::SIGHUP);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(child.0.try_wait().expect("a child"), None);
    child.signal(Signal::SIGTERM);
    assert_eq!(child.wait_exit().code(), Some(0));
}

#[test]
fn reload_rejects_pipe_and_still_handles_signals() {
    needs_root!();
    let mut attach = AttachWithRules::start();
    let file = attach.folder.path().join("rules.toml");
    fs::remove_file(&file).expect("a file");
    mkfifo(&file, Mode::S_IRWXU).expect("a pipe");
    attach.child.signal(Signal::SIGHUP);
    thread::sleep(Duration::from_millis(300));
    attach.child.signal(Signal::SIGTERM);
    assert_eq!(attach.child.wait_exit().code(), Some(0));
    let expected = "FILE: only a regular file can be reloaded; give one to --config";
    assert_eq!(attach.line(), expected);
    assert_eq!(
        attach.line(),
        "pillion: error: FILE not reloaded: the old rules stay in force; fix the file and reload"
    );
}

#[test]
fn partial_reload_is_reported_and_retried() {
    needs_root!();
    let mut attach = AttachWithRules::start();
    let pid = attach.child.0.id();
    let is_open = |fd: &u32| fs::symlink_metadata(format!("/proc/{pid}/fd/{fd}")).is_ok();
    eventually("attach waits", || state(attach.child.pid()) == 'S');
    // The `pillion status` thread reserves the first free descriptor.
    let second_free = (0..).filter(|fd| !is_open(fd)).nth(1).expect("a number");
    // This limit suffices to read the file, but not to list connections.
    let limit = |max: &str| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &pid.to_string(), &format!("--nofile={max}:1024")]);
        assert!(prlimit.status().expect("it runs").success());
    };
    limit(&(second_free + 1).to_string());
    attach.child.signal(Signal::SIGHUP);
    // The file of --stats may also lack descriptors in such a second.
    let reloaded = |attach: &mut AttachWithRules| {
        let lines = std::iter::repeat_with(|| attach.line());
        let mut reloads = lines.skip_while(|line| !line.contains(" reloaded "));
        reloads.next().expect("a line")
    };
    let line = reloaded(&mut attach);
    let expected = "pillion: warning: reloaded FILE: 1 rule for new connections; some existing ones \
                keep the old rules: ";
    assert!(line.starts_with(expected), "{line}");
    assert!(line.ends_with("; retrying"), "{line}");
    limit("1024");
    // Wait until the retried operation has succeeded.
    within(Duration::from_secs(60), "the retry has succeeded", || {
        let target = pid.to_string();
        let arguments = ["-t", &target, "-n", PILLION, "status", "--json"];
        let output = Command::new("nsenter").args(arguments).output();
        let output = output.expect("it runs");
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let mut all = all.as_array().expect("a list").iter();
        all.find(|it| it["pid"] == pid).is_some_and(|own| {
            let failed = own["last_error"]["text"].to_string();
            failed.contains("take in connections")
                && own["failures"].as_array().is_some_and(Vec::is_empty)
        })
    });
    attach.child.signal(Signal::SIGHUP);
    assert_eq!(
        reloaded(&mut attach),
        "pillion: reloaded FILE: 1 rule; 0 connections covered"
    );
    attach.stop();
}
