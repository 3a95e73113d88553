//! A program in the lab kernel: its world, its end, and what is left of both.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;

#[test]
fn output_results_and_exit_status_come_out() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().to_str().unwrap();
    let lines =
        "echo out; echo err >&2; mkdir /results/a; printf 'one\\ntwo' > /results/a/b; exit 7";
    let output = boot(
        &["--tool", "mkdir", "--results", results],
        &["sh", "-c", lines],
    )
    .output()
    .unwrap();
    assert_eq!(stdout(&output), "out\n");
    assert_eq!(stderr(&output), "err\n");
    assert_eq!(output.status.code(), Some(7));
    let left = fs::read_to_string(folder.path().join("a/b")).unwrap();
    assert_eq!(left, "one\ntwo");
}

#[test]
fn hours_of_waiting_take_seconds() {
    needs_kernel!();
    let begun = Instant::now();
    let slept = shell(
        &["--tool", "sleep"],
        "read before _ < /proc/uptime; sleep 7200; read after _ < /proc/uptime
        echo $((${after%.*} - ${before%.*}))",
    );
    assert_eq!(slept, "7200\n");
    assert!(begun.elapsed() < Duration::from_secs(3600));
}

#[test]
fn the_seed_and_nothing_else_makes_chance_and_times() {
    needs_kernel!();
    let world = |seed| {
        shell(
            &[
                "--seed", seed, "--tool", "od", "--tool", "date", "--tool", "sleep",
            ],
            "od -An -tx1 -N16 /dev/urandom; date +%F.%N; sleep 1; date +%F.%N
            cat() { while read -r line; do echo \"$line\"; done; }
            cat < /proc/self/stat; cat < /proc/self/maps; cat < /proc/cmdline; cat < /proc/meminfo",
        )
    };
    let first = world("1");
    assert_eq!(first, world("1"));
    let chance = |world: &str| world.lines().next().map(str::to_owned);
    assert_ne!(chance(&first), chance(&world("2")));
    assert!(first.contains("\n2000-01-01."));
}

#[test]
fn what_takes_longer_than_its_virtual_time_is_stopped_with_all_it_started() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let options = ["--time-limit", "100", "--tool", "sleep", "--results"];
    let options = [&options[..], &[folder.path().to_str().unwrap()]].concat();
    let lines = "sleep 10000 & echo begun > /results/file; sleep 1000";
    let output = boot(&options, &["sh", "-c", lines]).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let left = fs::read_to_string(folder.path().join("file")).unwrap();
    assert_eq!(left, "begun\n");
}

#[test]
fn a_program_that_polls_is_stopped_and_the_line_says_why() {
    needs_kernel!();
    let output = boot(&["--patience", "2"], &["sh", "-c", "while :; do :; done"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = stderr(&output);
    assert!(
        line.starts_with("pillion-lab: virtual time stands still at 0."),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn a_kernel_that_breaks_down_says_what_it_said_last() {
    needs_kernel!();
    let lines = "echo c > /proc/sysrq-trigger || exec /bin/ip -force -batch /dev/null";
    let output = boot(&["--memory", "64"], &["sh", "-c", lines])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the lab kernel ended before its program did"));
}

#[test]
fn kill_9_leaves_nothing_running() {
    needs_kernel!();
    let seed = "7770077";
    let mut pillion = boot(
        &["--seed", seed, "--tool", "sleep"],
        &["sh", "-c", "echo; while sleep 1; do :; done"],
    )
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    await_line(&mut pillion);
    let mark = format!("pillion.seed={seed}");
    assert!(processes_with(&mark) > 1);
    pillion.kill().unwrap();
    pillion.wait().unwrap();
    await_that("all have ended", || processes_with(&mark) == 0);
}

fn await_line(child: &mut Child) {
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
}
