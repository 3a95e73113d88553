//! Child processes of pillion, and inherited signal settings.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::{Running, command_of, ignoring, run};
use crate::common::*;

#[test]
fn where_the_end_of_children_is_ignored_the_commands_end_is_still_noticed() {
    needs_root!();
    let mut command = run(&["sh", "-c", "exit 3"]);
    ignoring(&mut command, &[Signal::SIGCHLD]);
    assert_eq!(Running::begin(&mut command).end().code(), Some(3));
}

#[test]
fn the_commands_end_is_noticed_among_signals_of_lower_numbers() {
    needs_root!();
    let mut run = Running::begin(&mut run(&["sh", "-c", "trap '' USR1; sleep 1; exit 3"]));
    command_of(&run);
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
fn the_command_inherits_which_signals_are_ignored() {
    needs_root!();
    let show = ["grep", "^Sig[BI]", "/proc/self/status"];
    for ignored in [
        &[][..],
        &[Signal::SIGPIPE, Signal::SIGHUP],
        &[Signal::SIGCHLD],
    ] {
        let mut plain = std::process::Command::new(show[0]);
        plain.args(&show[1..]);
        hears_all_signals(&mut plain);
        let mut run = run(&show);
        ignoring(&mut plain, ignored);
        ignoring(&mut run, ignored);
        let [plain, run] = [plain, run].map(|mut it| stdout(&it.output().expect("it runs")));
        assert_eq!(run, plain);
    }
}

#[test]
fn the_first_process_of_a_pid_namespace_leaves_no_zombies() {
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
