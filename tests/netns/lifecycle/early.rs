//! Signals that arrive while pillion starts.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{Ground, Running, run};
use crate::common::*;

const REPETITIONS: u32 = 20;

#[test]
fn a_signal_right_after_the_cgroup_was_made_leaves_nothing_and_starts_nothing() {
    needs_root!();
    let ground = Ground::prepare("early");
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("started");
    let script = format!("touch {}; exec sleep 300", trace.display());
    let mut early = 0;
    for _ in 0..REPETITIONS {
        let mut command = run(&["sh", "-c", &script]);
        ground.place(command.stderr(Stdio::null()));
        let mut pillion = Running::begin(&mut command);
        while ground.folders().is_empty() {
            thread::yield_now();
        }
        pillion.signal(Signal::SIGTERM);
        assert_eq!(pillion.end().code(), Some(128 + 15));
        assert_eq!(ground.folders(), [""; 0].map(PathBuf::from));
        // On a busy host the signal may come too late.
        early += u32::from(fs::remove_file(&trace).is_err());
    }
    println!("{early} of {REPETITIONS} were early");
    assert_ne!(early, 0);
}

#[test]
fn a_signal_at_any_time_of_the_start_leaves_nothing() {
    needs_root!();
    let ground = Ground::prepare("any-time");
    for repetition in 0..REPETITIONS {
        let mut command = run(&["sleep", "300"]);
        ground.place(command.stderr(Stdio::null()));
        let mut pillion = Running::begin(&mut command);
        thread::sleep(Duration::from_millis(20) * repetition);
        pillion.signal(Signal::SIGTERM);
        let status = pillion.end();
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(128 + 15));
        assert_eq!(ground.folders(), [""; 0].map(PathBuf::from));
        assert_eq!(ground.processes(), []);
    }
}

#[test]
fn what_is_asked_of_an_attach_that_reads_its_file_yet_waits() {
    needs_root!();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.toml");
    mkfifo(&file, Mode::S_IRWXU).expect("a pipe");
    let arguments = ["attach", "--dev", "lo", "--config"];
    let mut command = pillion_in(&namespace_with_loopback(), &arguments);
    let mut attach = Running::begin(command.arg(&file).stderr(Stdio::piped()));
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
        .write_all(b"[[rule]]\nports = 7001\n")
        .expect("it reads");
    drop(rules);
    let said = BufReader::new(attach.0.stderr.take().expect("it was piped"));
    let mut lines = said.lines().map(Result::unwrap);
    for part in [
        "bundling by 1 rule",
        "only a regular file can be read again",
    ] {
        assert!(lines.any(|line| line.contains(part)), "never logged: {part}");
    }
    attach.signal(Signal::SIGTERM);
    assert_eq!(attach.end().code(), Some(0));
}
