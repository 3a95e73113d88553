//! Programs in the lab kernel: their environment, their exit, and the files and processes left.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;

#[test]
fn boot_returns_output_results_and_exit_status() {
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
    let contents = fs::read_to_string(folder.path().join("a/b")).unwrap();
    assert_eq!(contents, "one\ntwo");
}

#[test]
fn boot_sleeps_two_hours_in_seconds() {
    needs_kernel!();
    let started = Instant::now();
    let printed_seconds = shell(
        &["--tool", "sleep"],
        "read before _ < /proc/uptime; sleep 7200; read after _ < /proc/uptime
        echo $((${after%.*} - ${before%.*}))",
    );
    assert_eq!(printed_seconds, "7200\n");
    assert!(started.elapsed() < Duration::from_secs(3600));
}

#[test]
fn equal_seeds_give_equal_randomness_and_times() {
    needs_kernel!();
    let transcript = |seed| {
        shell(
            &[
                "--seed", seed, "--tool", "od", "--tool", "date", "--tool", "sleep",
            ],
            "od -An -tx1 -N16 /dev/urandom; date +%F.%N; sleep 1; date +%F.%N
            cat() { while read -r line; do echo \"$line\"; done; }
            cat < /proc/self/stat; cat < /proc/self/maps; cat < /proc/cmdline; cat < /proc/meminfo",
        )
    };
    let first = transcript("1");
    assert_eq!(first, transcript("1"));
    let random_bytes = |transcript: &str| transcript.lines().next().map(str::to_owned);
    assert_ne!(random_bytes(&first), random_bytes(&transcript("2")));
    assert!(first.contains("\n2000-01-01."));
}

#[test]
fn time_limit_kills_program_and_its_children() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let options = ["--time-limit", "100s", "--tool", "sleep", "--results"];
    let options = [&options[..], &[folder.path().to_str().unwrap()]].concat();
    let lines = "sleep 10000 & echo started > /results/file; sleep 1000";
    let output = boot(&options, &["sh", "-c", lines]).output().unwrap();
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
    let contents = fs::read_to_string(folder.path().join("file")).unwrap();
    assert_eq!(contents, "started\n");
}

#[test]
fn busy_program_is_killed_with_one_line_reason() {
    needs_kernel!();
    let output = boot(
        &["--stall-timeout", "2s"],
        &["sh", "-c", "while :; do :; done"],
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let line = stderr(&output);
    assert!(
        line.starts_with("pillion-lab: error: virtual time stopped at 0."),
        "{line}"
    );
    assert_eq!(line.lines().count(), 1, "{line}");
}

#[test]
fn kernel_crash_exits_with_error_message() {
    needs_kernel!();
    let lines = "echo c > /proc/sysrq-trigger || exec /bin/ip -force -batch /dev/null";
    let output = boot(&["--memory", "64"], &["sh", "-c", lines])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the lab kernel ended before its program did"));
}

#[test]
fn sigkill_leaves_no_process() {
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
    assert!(count_processes_with(&mark) > 1);
    pillion.kill().unwrap();
    pillion.wait().unwrap();
    wait_until("no process is left", || count_processes_with(&mark) == 0);
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
