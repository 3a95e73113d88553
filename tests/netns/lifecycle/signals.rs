//! Signals: each reaches the command exactly once, and none disturbs pillion.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use nix::sys::signal::{Signal, kill, killpg};
use pillion_tests::SIGNAL_STORM;

use super::{CgroupSandbox, ChildGuard, command_pid, ignore_signals, run};
use crate::common::*;

const REPETITIONS: usize = 20;

/// A busy host may deliver the same signal to its recipients more than 50 ms apart.
fn is_once(received: usize) -> bool {
    (REPETITIONS..=REPETITIONS + 2).contains(&received)
}

/// `pillion run` whose command counts SIGUSR1.
struct SignalCounter {
    pillion: ChildGuard,
    output: BufReader<ChildStdout>,
}

impl SignalCounter {
    fn start(prepare: impl FnOnce(&mut Command)) -> Self {
        // The shell waits for a child without traps, so its own traps run immediately.
        let script = "trap '' USR1; sleep 300 & trap 'echo received' USR1; \
                      trap 'kill $!; echo end; exit 7' TERM; echo ready; while :; do wait; done";
        let mut command = run(&["bash", "-c", script]);
        prepare(command.stdout(Stdio::piped()).process_group(0));
        let mut pillion = ChildGuard::spawn(&mut command);
        let output = BufReader::new(pillion.0.stdout.take().expect("a pipe"));
        let mut counter = Self { pillion, output };
        assert_eq!(counter.line(), "ready\n");
        counter
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    /// Sends signals and counts how many the command receives.
    fn count(mut self, send: impl Fn(&ChildGuard)) -> usize {
        let mut received = 0;
        for _ in 0..REPETITIONS {
            send(&self.pillion);
            assert_eq!(self.line(), "received\n");
            received += 1;
            // A duplicate would arrive soon.
            thread::sleep(Duration::from_millis(150));
        }
        self.pillion.signal(Signal::SIGTERM);
        while self.line() == "received\n" {
            received += 1;
        }
        assert_eq!(self.pillion.wait_exit().code(), Some(7));
        received
    }
}

#[test]
fn signal_to_run_reaches_command_once() {
    needs_root!();
    let counter = SignalCounter::start(|_| ());
    let received = counter.count(|pillion| pillion.signal(Signal::SIGUSR1));
    assert_eq!(received, REPETITIONS);
}

#[test]
fn signal_to_process_group_reaches_command_once() {
    needs_root!();
    let counter = SignalCounter::start(|_| ());
    let received =
        counter.count(|pillion| killpg(pillion.pid(), Signal::SIGUSR1).expect("a group"));
    assert!(is_once(received), "{received}");
}

#[test]
fn signal_to_whole_cgroup_reaches_command_once() {
    needs_root!();
    let sandbox = CgroupSandbox::create("once");
    let counter = SignalCounter::start(|command| sandbox.assign(command));
    let received = counter.count(|pillion| {
        let processes = sandbox.processes();
        // Service managers signal the main process first.
        pillion.signal(Signal::SIGUSR1);
        for process in processes {
            if process != pillion.pid() {
                let _ = kill(process, Signal::SIGUSR1);
            }
        }
    });
    assert!(is_once(received), "{received}");
}

#[test]
fn real_time_signals_reach_command() {
    needs_root!();
    let script = "trap 'exit 9' 37; echo ready; while :; do sleep 0.05; done";
    let mut pillion = ChildGuard::spawn(run(&["bash", "-c", script]).stdout(Stdio::piped()));
    let mut ready = String::new();
    let output = pillion.0.stdout.take().expect("a pipe");
    let mut output = BufReader::new(output);
    output.read_line(&mut ready).expect("a line");
    let kill = Command::new("kill")
        .args(["-37", &pillion.pid().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(pillion.wait_exit().code(), Some(9));
}

#[test]
fn ignored_sigchld_does_not_hide_exit_of_command() {
    needs_root!();
    let mut command = run(&["sh", "-c", "exit 3"]);
    ignore_signals(&mut command, &[Signal::SIGCHLD]);
    assert_eq!(ChildGuard::spawn(&mut command).wait_exit().code(), Some(3));
}

#[test]
fn exit_of_command_is_noticed_among_lower_signals() {
    needs_root!();
    let mut run = ChildGuard::spawn(&mut run(&["sh", "-c", "trap '' USR1; sleep 1; exit 3"]));
    command_pid(&run);
    let mut status = None;
    // `within` polls every 20 ms; pillion takes 50 ms to detect whether a signal reached the
    // command.
    within(Duration::from_secs(20), "the process exits", || {
        status = run.0.try_wait().expect("a child");
        if status.is_none() {
            run.signal(Signal::SIGUSR1);
        }
        status.is_some()
    });
    assert_eq!(status.and_then(|it| it.code()), Some(3));
}

#[test]
fn command_inherits_ignored_signals() {
    needs_root!();
    let show = ["grep", "^Sig[BI]", "/proc/self/status"];
    for ignored in [
        &[][..],
        &[Signal::SIGPIPE, Signal::SIGHUP],
        &[Signal::SIGCHLD],
    ] {
        let mut plain = std::process::Command::new(show[0]);
        plain.args(&show[1..]);
        reset_signals(&mut plain);
        let mut run = run(&show);
        ignore_signals(&mut plain, ignored);
        ignore_signals(&mut run, ignored);
        let [plain, run] = [plain, run].map(|mut it| stdout(&it.output().expect("it runs")));
        assert_eq!(run, plain);
    }
}

#[test]
fn run_as_pid_1_reaps_zombies() {
    needs_root!();
    // Each orphan exits after its parent.
    let script = "for i in 1 2 3 4 5; do (sleep 0.2 &); done; sleep 1; \
                  cat /proc/[0-9]*/status | grep -c '^State:.Z'";
    let namespace = namespace_with_loopback();
    let mut unshare = namespace.command("unshare");
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc", PILLION]);
    unshare.args(["run", "--dev", "lo", "--", "sh", "-c", script]);
    let output = unshare.output().expect("it runs");
    assert_eq!(stdout(&output), "0\n", "{}", stderr(&output));
}

/// Runs tests of this executable under the storm, which also reaches all processes that they start.
fn run_under_storm(tests: &[&str]) {
    needs_root!();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(tests).env("LD_PRELOAD", SIGNAL_STORM);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(!printed.contains("running 0 tests"), "{printed}");
}

#[test]
fn service_tests_pass_under_signal_storm() {
    run_under_storm(&["manager::", "stats::", "attach::flows"]);
}

#[test]
fn run_tests_pass_under_signal_storm() {
    run_under_storm(&["run::", "top::"]);
}

#[test]
fn handover_tests_pass_under_signal_storm() {
    run_under_storm(&["handover::"]);
}

#[test]
fn stream_tests_pass_under_signal_storm() {
    run_under_storm(&["features::urgent", "traffic::", "queue::"]);
}
