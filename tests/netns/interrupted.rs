//! Tests repeated while signals keep interrupting the blocking system calls of pillion and of the
//! tests.

use std::env;
use std::process::Command;

use pillion_tests::SIGNAL_STORM;

use crate::common::*;

/// Runs tests of this executable under the storm, which also reaches all processes that they start.
fn pass_interrupted(tests: &[&str]) {
    needs_root!();
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(tests).env("LD_PRELOAD", SIGNAL_STORM);
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert!(!printed.contains("running 0 tests"), "{printed}");
}

#[test]
fn service_runs_while_signals_interrupt_it() {
    pass_interrupted(&["manager::", "stats::", "attach::flows"]);
}

#[test]
fn command_runs_while_signals_interrupt_it() {
    pass_interrupted(&["run::", "top::"]);
}

#[test]
fn handover_works_while_signals_interrupt_it() {
    pass_interrupted(&["succession::"]);
}

#[test]
fn streams_arrive_while_signals_interrupt_them() {
    pass_interrupted(&["features::the_urgent", "traffic::", "queue::"]);
}
