//! `attach`: reloads on SIGHUP.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::{Running, ignoring, state};
use crate::common::*;

/// Running `pillion attach` with its rules file.
struct Attached {
    attach: Running,
    says: BufReader<ChildStderr>,
    folder: TempDir,
}

impl Attached {
    fn begin() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("rules.toml");
        fs::write(&file, "[[rule]]\nports = 7001\n").expect("a file");
        let mut attach = pillion_in(&namespace_with_loopback(), &["attach", "--dev", "lo"]);
        attach.arg("--config").arg(file).stderr(Stdio::piped());
        let mut attach = Running::begin(&mut attach);
        let says = BufReader::new(attach.0.stderr.take().expect("a pipe"));
        let mut attached = Self {
            attach,
            says,
            folder,
        };
        let line = attached.line();
        assert!(line.starts_with("pillion: bundling by "), "{line}");
        attached
    }

    /// Reads the next log line, with the file's path replaced by FILE.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("a line");
        let file = self.folder.path().join("rules.toml");
        line.trim_end()
            .replace(file.to_str().expect("UTF-8"), "FILE")
    }

    fn end(mut self) {
        self.attach.signal(Signal::SIGTERM);
        assert_eq!(self.attach.end().code(), Some(0));
    }
}

#[test]
fn nohup_keeps_attach_going() {
    needs_root!();
    let mut attach = pillion_in(&namespace_with_loopback(), &["attach", "--dev", "lo"]);
    ignoring(attach.stderr(Stdio::null()), &[Signal::SIGHUP]);
    let mut attach = Running::begin(&mut attach);
    await_attached(attach.0.id());
    attach.signal(Signal::SIGHUP);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(attach.0.try_wait().expect("a child"), None);
    attach.signal(Signal::SIGTERM);
    assert_eq!(attach.end().code(), Some(0));
}

#[test]
fn a_pipe_in_the_files_place_is_not_read_and_signals_are_still_heard() {
    needs_root!();
    let mut attached = Attached::begin();
    let file = attached.folder.path().join("rules.toml");
    fs::remove_file(&file).expect("a file");
    mkfifo(&file, Mode::S_IRWXU).expect("a pipe");
    attached.attach.signal(Signal::SIGHUP);
    thread::sleep(Duration::from_millis(300));
    attached.attach.signal(Signal::SIGTERM);
    assert_eq!(attached.attach.end().code(), Some(0));
    let why = "FILE: only a regular file can be read again; put one there";
    assert_eq!(attached.line(), why);
    assert_eq!(
        attached.line(),
        "pillion: FILE not reloaded: the old rules hold"
    );
}

#[test]
fn a_reload_that_misses_connections_says_which_rules_hold() {
    needs_root!();
    let mut attached = Attached::begin();
    let pid = attached.attach.0.id();
    let is_open = |fd: &u32| fs::symlink_metadata(format!("/proc/{pid}/fd/{fd}")).is_ok();
    eventually("attach waits", || state(attached.attach.pid()) == 'S');
    // The `pillion status` thread reserves the first free descriptor.
    let second_free = (0..).filter(|fd| !is_open(fd)).nth(1).expect("a number");
    // This limit suffices to read the file, but not to list connections.
    let limit = |most: &str| {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &pid.to_string(), &format!("--nofile={most}:1024")]);
        assert!(prlimit.status().expect("it runs").success());
    };
    limit(&(second_free + 1).to_string());
    attached.attach.signal(Signal::SIGHUP);
    // The file of --stats may also lack descriptors in such a second.
    let reloaded = |attached: &mut Attached| {
        let lines = std::iter::repeat_with(|| attached.line());
        let mut told = lines.skip_while(|line| !line.contains(" reloaded "));
        told.next().expect("a line")
    };
    let line = reloaded(&mut attached);
    let told = "pillion: reloaded FILE: 1 rule for new connections; of those that exist some \
                are as they were, trying again: ";
    assert!(line.starts_with(told), "{line}");
    limit("1024");
    // Wait until the retried operation has succeeded.
    within(Duration::from_secs(60), "the retry has succeeded", || {
        let target = pid.to_string();
        let arguments = ["-t", &target, "-n", PILLION, "status", "--json"];
        let told = Command::new("nsenter").args(arguments).output();
        let told = told.expect("it runs");
        let all: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
        let mut all = all.as_array().expect("a list").iter();
        all.find(|it| it["pid"] == pid).is_some_and(|own| {
            let failed = own["last_error"]["text"].to_string();
            failed.contains("take in connections")
                && own["failing"].as_array().is_some_and(Vec::is_empty)
        })
    });
    attached.attach.signal(Signal::SIGHUP);
    assert_eq!(
        reloaded(&mut attached),
        "pillion: reloaded FILE: 1 rule; 0 connections covered"
    );
    attached.end();
}
