//! Terminals: keys, hang-ups, and stopping and continuing the command.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{io, thread};

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use super::{ChildGuard, command_pid, run, state};
use crate::common::*;

/// User's side of a terminal. Dropping it closes the terminal.
pub struct Terminal {
    user: File,
    /// The session leader.
    pub leader: ChildGuard,
    shown: String,
}

impl Terminal {
    pub fn start(command: &mut Command) -> Self {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let user = posix_openpt(flags).expect("a terminal");
        grantpt(&user).expect("a terminal");
        unlockpt(&user).expect("a terminal");
        let name = ptsname_r(&user).expect("a name");
        let other = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name)
            .expect("the other side");
        let side = || other.try_clone().expect("a descriptor");
        command.stdin(side()).stdout(side()).stderr(side());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let leader = ChildGuard::spawn(command);
        // The command still holds copies of the other side.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let user = user.as_fd().try_clone_to_owned().expect("a descriptor");
        Self {
            user: user.into(),
            leader,
            shown: String::new(),
        }
    }

    pub fn type_keys(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Waits until the terminal shows a text after the previously awaited one.
    pub fn wait_for(&mut self, text: &str) {
        let Self { user, shown, .. } = self;
        within(
            Duration::from_secs(60),
            &format!("the terminal shows {text}"),
            || {
                let mut bytes = [0; 4096];
                match user.read(&mut bytes) {
                    Ok(count) => shown.push_str(&String::from_utf8_lossy(&bytes[..count])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}: {shown}"),
                }
                shown.contains(text)
            },
        );
        let end = shown.find(text).expect("shown") + text.len();
        self.shown.drain(..end);
    }

    /// Closes the terminal and returns the leader.
    pub fn close(self) -> ChildGuard {
        self.leader
    }
}

#[test]
fn closing_terminal_of_session_leader_ends_command() {
    needs_root!();
    let mut terminal = Terminal::start(&mut run(&["sh", "-c", "echo started; sleep 300"]));
    terminal.wait_for("started");
    let mut pillion = terminal.close();
    assert_eq!(pillion.wait_exit().code(), Some(128 + 1));
}

#[test]
fn ctrl_c_reaches_command_in_own_process_group() {
    needs_root!();
    let words = ["timeout", "100", "sh", "-c", "echo started; sleep 300"];
    let mut terminal = Terminal::start(&mut run(&words));
    terminal.wait_for("started");
    terminal.type_keys("\x03");
    assert_eq!(terminal.leader.wait_exit().code(), Some(128 + 2));
}

#[test]
fn ctrl_c_reaches_command_once() {
    needs_root!();
    let script = "trap '' INT; sleep 300 & trap 'echo received' INT; \
                  trap 'kill $!; exit 7' TERM; echo started; while :; do wait; done";
    let mut terminal = Terminal::start(&mut run(&["bash", "-c", script]));
    terminal.wait_for("started");
    for _ in 0..10 {
        terminal.type_keys("\x03");
        terminal.wait_for("received");
        // A duplicate would have arrived by now.
        thread::sleep(Duration::from_millis(200));
    }
    terminal.leader.signal(nix::sys::signal::Signal::SIGTERM);
    terminal.wait_for("0 connections");
    assert!(!terminal.shown.contains("received"));
}

#[test]
fn stopping_command_by_pid_stops_nothing_else() {
    needs_root!();
    let script = "trap 'exit 3' USR1; echo ready; while :; do sleep 0.05; done";
    let mut pillion = ChildGuard::spawn(run(&["sh", "-c", script]).stdout(Stdio::piped()));
    let mut output = pillion.0.stdout.take().expect("a pipe");
    output.read_exact(&mut [0; 6]).expect("it is ready");
    let command = command_pid(&pillion);
    kill(command, Signal::SIGSTOP).expect("it runs");
    eventually("the command is stopped", || state(command) == 'T');
    thread::sleep(Duration::from_millis(200));
    assert_ne!(state(pillion.pid()), 'T');
    kill(command, Signal::SIGCONT).expect("it runs");
    kill(command, Signal::SIGUSR1).expect("it runs");
    assert_eq!(pillion.wait_exit().code(), Some(3));
}

/// Stops a job in an interactive shell and continues it.
fn stop_and_continue_job(command: &str) {
    let mut shell = namespace_with_loopback().command("bash");
    shell.args(["--norc", "--noprofile", "-i"]);
    let mut terminal = Terminal::start(&mut shell);
    terminal.type_keys(&format!("{PILLION} run --dev lo -- {command}\n"));
    terminal.wait_for("started");
    terminal.type_keys("\x1a");
    terminal.wait_for("Stopped");
    terminal.type_keys("echo we are ba\"\"ck; fg\n");
    terminal.wait_for("we are back");
    terminal.type_keys("on\n");
    terminal.wait_for("0 connections");
    terminal.type_keys("exit\n");
    terminal.leader.wait_exit();
}

#[test]
fn ctrl_z_stops_command_and_run_until_fg() {
    needs_root!();
    stop_and_continue_job("sh -c 'echo star\"\"ted; read line; test \"$line\" = on'");
}

#[test]
fn ctrl_z_reaches_command_in_own_process_group() {
    needs_root!();
    stop_and_continue_job("timeout 100 sh -c 'echo star\"\"ted; sleep 1'");
}

#[test]
fn suspended_inner_shell_returns_and_regains_terminal() {
    needs_root!();
    let shell = ["--norc", "--noprofile", "-i"];
    let mut outer = namespace_with_loopback().command("bash");
    let mut terminal = Terminal::start(outer.args(shell));
    terminal.type_keys(&format!(
        "{PILLION} run --dev lo -- bash {}\n",
        shell.join(" ")
    ));
    terminal.type_keys("echo in\"\"ner; suspend\n");
    terminal.wait_for("inner");
    terminal.wait_for("Stopped");
    terminal.type_keys("echo ou\"\"ter; fg\n");
    terminal.wait_for("outer");
    terminal.type_keys("echo a\"\"gain; exit\n");
    terminal.wait_for("again");
    terminal.wait_for("0 connections");
    terminal.type_keys("exit\n");
    terminal.leader.wait_exit();
}

/// The helper processes of pillion were stopped with its process group, and not continued.
#[test]
fn run_exits_with_command_although_helpers_are_stopped() {
    needs_root!();
    let mut pillion = ChildGuard::spawn(&mut run(&["sleep", "1"]));
    let command = command_pid(&pillion);
    let children = format!("/proc/{0}/task/{0}/children", pillion.pid());
    let children = std::fs::read_to_string(children).expect("it runs");
    let children = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a PID"));
    let helpers: Vec<_> = children
        .map(Pid::from_raw)
        .filter(|it| *it != command)
        .collect();
    assert!(helpers.len() >= 2, "{helpers:?}");
    for process in helpers {
        kill(process, Signal::SIGSTOP).expect("it runs");
    }
    assert_eq!(pillion.wait_exit().code(), Some(0));
}
