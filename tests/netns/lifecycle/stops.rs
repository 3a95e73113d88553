//! Stopping and continuing the command.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::terminal::Terminal;
use super::{Running, command_of, run, state};
use crate::common::*;

#[test]
fn a_command_that_is_stopped_and_continued_by_its_id_stops_nothing_else() {
    needs_root!();
    let script = "trap 'exit 3' USR1; echo ready; while :; do sleep 0.05; done";
    let mut pillion = Running::begin(run(&["sh", "-c", script]).stdout(Stdio::piped()));
    let mut says = pillion.0.stdout.take().expect("a pipe");
    says.read_exact(&mut [0; 6]).expect("it is ready");
    let command = command_of(&pillion);
    kill(command, Signal::SIGSTOP).expect("it runs");
    eventually("the command is stopped", || state(command) == 'T');
    thread::sleep(Duration::from_millis(200));
    assert_ne!(state(pillion.pid()), 'T');
    kill(command, Signal::SIGCONT).expect("it runs");
    kill(command, Signal::SIGUSR1).expect("it runs");
    assert_eq!(pillion.end().code(), Some(3));
}

/// Stops a job in an interactive shell and continues it.
fn stopped_and_taken_up(command: &str) {
    let mut shell = namespace_with_loopback().command("bash");
    shell.args(["--norc", "--noprofile", "-i"]);
    let mut terminal = Terminal::begin(&mut shell);
    terminal.types(&format!("{PILLION} run --dev lo -- {command}\n"));
    terminal.shows("begun");
    terminal.types("\x1a");
    terminal.shows("Stopped");
    terminal.types("echo we are ba\"\"ck; fg\n");
    terminal.shows("we are back");
    terminal.types("on\n");
    terminal.shows("0 connections");
    terminal.types("exit\n");
    terminal.leader.end();
}

#[test]
fn ctrl_z_stops_the_command_and_pillion_until_the_shell_continues_them() {
    needs_root!();
    stopped_and_taken_up("sh -c 'echo be\"\"gun; read line; test \"$line\" = on'");
}

#[test]
fn ctrl_z_reaches_a_command_with_a_process_group_of_its_own() {
    needs_root!();
    stopped_and_taken_up("timeout 100 sh -c 'echo be\"\"gun; sleep 1'");
}

#[test]
fn a_shell_that_suspends_itself_gives_the_terminal_back_and_gets_it_again() {
    needs_root!();
    let shell = ["--norc", "--noprofile", "-i"];
    let mut outer = namespace_with_loopback().command("bash");
    let mut terminal = Terminal::begin(outer.args(shell));
    terminal.types(&format!(
        "{PILLION} run --dev lo -- bash {}\n",
        shell.join(" ")
    ));
    terminal.types("echo in\"\"ner; suspend\n");
    terminal.shows("inner");
    terminal.shows("Stopped");
    terminal.types("echo ou\"\"ter; fg\n");
    terminal.shows("outer");
    terminal.types("echo a\"\"gain; exit\n");
    terminal.shows("again");
    terminal.shows("0 connections");
    terminal.types("exit\n");
    terminal.leader.end();
}

/// The helper processes of pillion were stopped with its process group, and not continued.
#[test]
fn pillion_ends_with_its_command_though_those_beside_it_are_stopped() {
    needs_root!();
    let mut pillion = Running::begin(&mut run(&["sleep", "1"]));
    let command = command_of(&pillion);
    let children = format!("/proc/{0}/task/{0}/children", pillion.pid());
    let children = std::fs::read_to_string(children).expect("it runs");
    let children = children
        .split_whitespace()
        .map(|pid| pid.parse().expect("a PID"));
    let beside: Vec<_> = children
        .map(Pid::from_raw)
        .filter(|it| *it != command)
        .collect();
    assert!(beside.len() >= 2, "{beside:?}");
    for process in beside {
        kill(process, Signal::SIGSTOP).expect("it runs");
    }
    assert_eq!(pillion.end().code(), Some(0));
}
