//! Runs of an experiment on this kernel: their folders are complete and consistent, or marked as
//! broken.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_lab::traffic::Record;
use pillion_tests::samples::assert_flows;

use crate::common::*;

const RUN: &str = r#"
duration = 2
[bottleneck]
rate = 2
queue = "pfifo"
limit = 15
[path]
rtt = 40
loss = 3
[defaults]
congestion = "reno"
[group.thin]
streams = 4
itt = "20:2"
size = 120
[group.bundled]
streams = 4
itt = "20:2"
size = 120
bundle = { thin = "dpifl:10", max-packets = 1, reaction = "cwr" }
[group.greedy]
kind = "greedy"
streams = 1
[measure]
queue = false
"#;

/// Runs an experiment without warnings and returns its folder.
pub fn make(folder: &Path, run: &str) -> PathBuf {
    let (mut command, made) = run_one(folder, run);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "no warnings");
    made
}

/// Returns the command of a run, and its future folder.
fn run_one(folder: &Path, run: &str) -> (Command, PathBuf) {
    let file = folder.join("run.toml");
    fs::write(&file, run).unwrap();
    let target = folder.join("made");
    let mut command = Command::new(PILLION_LAB);
    command.args(["run-one"]).args([&file, &target]);
    (command, target)
}

/// Returns the single error line of a run, which its folder must contain as well.
fn failure(folder: &Path, output: &Output) -> String {
    let line = stderr(output);
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(!folder.join("made").exists());
    let broken = fs::read_to_string(folder.join("made.broken/broken")).unwrap();
    assert_eq!(line, format!("pillion-lab: {broken}"));
    broken
}

#[test]
fn a_clock_of_the_run_s_choice_takes_the_lab_kernel() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run = format!("{RUN}[kernel]\nhigh-resolution-timers = false\n");
    let (mut command, _) = run_one(folder.path(), &run);
    let said = failure(folder.path(), &command.output().unwrap());
    assert!(
        said.contains("clock and timers of the run's choice"),
        "{said}"
    );
    assert!(said.contains("`--engine virtual`"), "{said}");
}

#[test]
fn traces_queue_path_analyser_and_records_of_a_run_agree_to_the_packet() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let made = make(folder.path(), RUN);
    let summary = read_json(&made.join("summary.json"));
    assert_eq!(summary["doubts"], serde_json::json!([]));
    let count = |way: &str, what: &str| summary[way][what].as_u64().unwrap();
    assert!(count("forward", "queue_dropped") > 0 && count("forward", "lost") > 0);
    assert_eq!(
        count("forward", "delivered"),
        count("forward", "trace_behind")
    );
    assert_eq!(
        count("backward", "delivered"),
        count("backward", "trace_behind")
    );

    let version = read_json(&made.join("manifest.json"))["version"].clone();
    let output = lab(&["--version"]);
    assert_eq!(
        stdout(&output),
        format!("pillion-lab {}\n", version.as_str().unwrap())
    );

    let trace = |name: &str| made.join(name).display().to_string();
    let (sender, receiver) = (trace("sender.pcap"), trace("receiver.pcap"));
    let output = lab(&["analyse", &sender, "--receiver", &receiver, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let analysed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let connections = analysed["connections"].as_array().unwrap().iter();
    let mut senders: Vec<&str> = connections
        .map(|it| it["sender"].as_str().unwrap())
        .collect();
    senders.sort_unstable();
    assert_eq!((senders.len(), senders[0]), (9, "10.77.1.1:20000"));

    let received = summary["groups"].as_array().unwrap().iter();
    let received: u64 = received
        .map(|group| group["received"].as_u64().unwrap())
        .sum();
    let records = pillion_lab::records::read::<Record>(&made.join("records.csv.zst")).unwrap();
    assert_eq!(records.filter(Result::is_ok).count() as u64, received);
    let bundling = read_json(&made.join("bundling.json"));
    assert_eq!(bundling[0]["group"], "bundled");
    assert_eq!(bundling[0]["connections"], 4);
    assert!(bundling[0]["outcomes"]["bundled"].as_u64() > Some(0));
    let bytes = ["new_bytes", "redundant_bytes"].map(|name| bundling[0][name].as_u64().unwrap());
    assert_flows(&made, "bundled", 4, bytes);
    assert!(!made.join("flows-thin.csv.zst").exists());

    let again = run_one(folder.path(), RUN).0.output().unwrap();
    assert!(
        stderr(&again).contains("made: it is there already"),
        "{}",
        stderr(&again)
    );
    assert_eq!(read_json(&made.join("summary.json")), summary);
}

#[test]
fn a_mechanism_that_this_kernel_lacks_is_named_with_what_has_it() {
    needs_root!();
    if Path::new("/proc/sys/net/ipv4/tcp_rto_restart").exists() {
        println!("left out: the lab kernel has the mechanism");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = RUN.replacen(
        "size = 120",
        "size = 120\nmechanisms = { rto-restart = true }",
        1,
    );
    let (mut command, _) = run_one(folder.path(), &run);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let why = failure(folder.path(), &output);
    assert!(
        why.contains("is without the mechanism rto-restart (net.ipv4.tcp_rto_restart)"),
        "{why}"
    );
    assert!(why.contains("then `--engine virtual`"), "{why}");
}

#[test]
fn an_interrupted_run_leaves_no_folder_that_could_be_taken_for_a_whole_one() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run = RUN.replacen("duration = 2", "duration = 600", 1);
    let (mut command, made) = run_one(folder.path(), &run);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed());
    let log = made.with_extension("part").join("log.txt");
    let begun = Instant::now();
    // Connecting may take long on a busy machine. The run is interrupted in any case, so that nothing is left.
    let has_begun =
        || fs::read_to_string(&log).is_ok_and(|log| log.contains("the streams connect"));
    while !has_begun() && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(50));
    }
    let in_time = has_begun();
    kill(pid, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(in_time, "the streams never connected: {}", stderr(&output));
    assert_eq!(failure(folder.path(), &output), "stopped\n");
    let left = fs::read_dir(folder.path()).unwrap();
    assert_eq!(left.count(), 2, "the file and the broken folder");
}
