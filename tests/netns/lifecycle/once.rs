//! Signals reach the command exactly once, whichever processes they are sent to.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};

use super::{Ground, Running, run};
use crate::common::*;

const REPETITIONS: usize = 20;

/// A busy host may deliver the same signal to its recipients more than 50 ms apart.
fn is_once(heard: usize) -> bool {
    (REPETITIONS..=REPETITIONS + 2).contains(&heard)
}

/// `pillion run` whose command counts SIGUSR1.
struct Listener {
    pillion: Running,
    says: BufReader<ChildStdout>,
}

impl Listener {
    fn begin(prepare: impl FnOnce(&mut Command)) -> Self {
        // The shell waits for a child without traps, so its own traps run immediately.
        let script = "trap '' USR1; sleep 300 & trap 'echo heard' USR1; \
                      trap 'kill $!; echo end; exit 7' TERM; echo ready; while :; do wait; done";
        let mut command = run(&["bash", "-c", script]);
        prepare(command.stdout(Stdio::piped()).process_group(0));
        let mut pillion = Running::begin(&mut command);
        let says = BufReader::new(pillion.0.stdout.take().expect("a pipe"));
        let mut listener = Self { pillion, says };
        assert_eq!(listener.line(), "ready\n");
        listener
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("a line");
        line
    }

    /// Sends signals and counts how many the command receives.
    fn count(mut self, send: impl Fn(&Running)) -> usize {
        let mut heard = 0;
        for _ in 0..REPETITIONS {
            send(&self.pillion);
            assert_eq!(self.line(), "heard\n");
            heard += 1;
            // A duplicate would arrive soon.
            thread::sleep(Duration::from_millis(150));
        }
        self.pillion.signal(Signal::SIGTERM);
        while self.line() == "heard\n" {
            heard += 1;
        }
        assert_eq!(self.pillion.end().code(), Some(7));
        heard
    }
}

#[test]
fn a_signal_to_pillion_alone_reaches_the_command_once() {
    needs_root!();
    let listener = Listener::begin(|_| ());
    let heard = listener.count(|pillion| pillion.signal(Signal::SIGUSR1));
    assert_eq!(heard, REPETITIONS);
}

#[test]
fn a_signal_to_the_process_group_reaches_the_command_once() {
    needs_root!();
    let listener = Listener::begin(|_| ());
    let heard = listener.count(|pillion| killpg(pillion.pid(), Signal::SIGUSR1).expect("a group"));
    assert!(is_once(heard), "{heard}");
}

#[test]
fn a_signal_to_each_process_of_a_cgroup_reaches_the_command_once() {
    needs_root!();
    let ground = Ground::prepare("once");
    let listener = Listener::begin(|command| ground.place(command));
    let heard = listener.count(|pillion| {
        let processes = ground.processes();
        // Service managers signal the main process first.
        pillion.signal(Signal::SIGUSR1);
        for process in processes {
            if process != pillion.pid() {
                let _ = kill(process, Signal::SIGUSR1);
            }
        }
    });
    assert!(is_once(heard), "{heard}");
}

#[test]
fn real_time_signals_reach_the_command() {
    needs_root!();
    let script = "trap 'exit 9' 37; echo ready; while :; do sleep 0.05; done";
    let mut pillion = Running::begin(run(&["bash", "-c", script]).stdout(Stdio::piped()));
    let mut ready = String::new();
    let says = pillion.0.stdout.take().expect("a pipe");
    let mut says = BufReader::new(says);
    says.read_line(&mut ready).expect("a line");
    let kill = Command::new("kill")
        .args(["-37", &pillion.pid().to_string()])
        .status();
    assert!(kill.expect("kill runs").success());
    assert_eq!(pillion.end().code(), Some(9));
}
