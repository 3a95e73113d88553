//! Runs of the lab on this kernel: complete and consistent folders, the emulator, and the demo.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::sys::signal::Signal;
use pillion_lab::traffic::Record;
use pillion_tests::samples::assert_flows;
use serde_json::Value;

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
itt = "20ms:2ms"
size = 120
[group.bundled]
streams = 4
itt = "20ms:2ms"
size = 120
bundle = { thin = "dpifl:10", max-packets = 1, reaction = "cwr" }
[group.greedy]
kind = "greedy"
streams = 1
[measure]
queue = false
"#;

/// Runs an experiment without warnings and returns its folder.
fn run_experiment(folder: &Path, run: &str) -> PathBuf {
    let (mut command, run_folder) = run_one(folder, run);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(stderr(&output), "", "no warnings");
    run_folder
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
    assert_eq!(line, format!("pillion-lab: error: {broken}"));
    broken
}

#[test]
fn clock_options_require_virtual_engine() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run = format!("{RUN}[kernel]\nhigh-resolution-timers = false\n");
    let (mut command, _) = run_one(folder.path(), &run);
    let message = failure(folder.path(), &command.output().unwrap());
    assert!(
        message.contains("clock and timers of the run's choice"),
        "{message}"
    );
    assert!(message.contains("`--engine virtual`"), "{message}");
}

#[test]
fn traces_queue_path_and_records_of_run_agree() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run_folder = run_experiment(folder.path(), RUN);
    let summary = read_json(&run_folder.join("summary.json"));
    assert_eq!(summary["warnings"], serde_json::json!([]));
    let count = |way: &str, what: &str| summary[way][what].as_u64().unwrap();
    assert!(count("forward", "queue_dropped") > 0 && count("forward", "lost") > 0);
    assert_eq!(
        count("forward", "delivered"),
        count("forward", "trace_after")
    );
    assert_eq!(
        count("backward", "delivered"),
        count("backward", "trace_after")
    );

    let version = read_json(&run_folder.join("manifest.json"))["version"].clone();
    let output = lab(&["--version"]);
    assert_eq!(
        stdout(&output),
        format!("pillion-lab {}\n", version.as_str().unwrap())
    );

    let trace = |name: &str| run_folder.join(name).display().to_string();
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
    let records =
        pillion_lab::records::read::<Record>(&run_folder.join("records.csv.zst")).unwrap();
    assert_eq!(records.filter(Result::is_ok).count() as u64, received);
    let bundling = read_json(&run_folder.join("bundling.json"));
    assert_eq!(bundling[0]["group"], "bundled");
    assert_eq!(bundling[0]["connections"], 4);
    assert!(bundling[0]["outcomes"]["bundled"].as_u64() > Some(0));
    let bytes = ["new_bytes", "redundant_bytes"].map(|name| bundling[0][name].as_u64().unwrap());
    assert_flows(&run_folder, "bundled", 4, bytes);
    assert!(!run_folder.join("flows-thin.csv.zst").exists());

    let again = run_one(folder.path(), RUN).0.output().unwrap();
    assert!(
        stderr(&again).contains("made: the folder exists"),
        "{}",
        stderr(&again)
    );
    assert_eq!(read_json(&run_folder.join("summary.json")), summary);
}

#[test]
fn analysis_counts_copies_as_programs_do() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run = r#"
duration = 2
[path]
rtt = 40
loss = 3
[group.thin]
streams = 4
itt = "20ms:2ms"
size = 120
bundle = { level = "none", copies = 1 }
[measure]
queue = false
"#;
    let run_folder = run_experiment(folder.path(), run);
    let counted = &read_json(&run_folder.join("bundling.json"))[0];
    let trace = |name: &str| run_folder.join(name).display().to_string();
    let (sender, receiver) = (trace("sender.pcap"), trace("receiver.pcap"));
    let output = lab(&["analyse", &sender, "--receiver", &receiver, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let analysed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let main = &analysed["all"]["main"];
    let copies = main["sent"]["copied_packets"].as_u64().unwrap();
    assert!(copies > 200, "{copies}");
    assert_eq!(counted["copies"], copies);
    assert_eq!(main["sent"]["repeated_packets"], 0);
    let delivered = main["loss"]["delivered_copies"].as_u64().unwrap();
    assert!(
        (copies * 8 / 10..copies).contains(&delivered),
        "{delivered} of {copies}"
    );
}

#[test]
fn missing_kernel_mechanism_is_reported_with_remedy() {
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
    let message = failure(folder.path(), &output);
    assert!(
        message.contains("lacks the mechanism rto-restart (net.ipv4.tcp_rto_restart)"),
        "{message}"
    );
    assert!(message.contains("then `--engine virtual`"), "{message}");
}

#[test]
fn interrupted_run_leaves_only_broken_folder() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run = RUN.replacen("duration = 2", "duration = 600", 1);
    let (mut command, run_folder) = run_one(folder.path(), &run);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    let log = run_folder.with_extension("part").join("log.txt");
    let started = Instant::now();
    // Connecting may take long on a busy machine. The run is interrupted in any case, so that
    // nothing is left.
    let has_started =
        || fs::read_to_string(&log).is_ok_and(|log| log.contains("the streams connect"));
    while !has_started() && started.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(50));
    }
    let in_time = has_started();
    send_signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().unwrap();
    assert!(in_time, "the streams never connected: {}", stderr(&output));
    assert_eq!(failure(folder.path(), &output), "stopped\n");
    let left = fs::read_dir(folder.path()).unwrap();
    assert_eq!(left.count(), 2, "the file and the broken folder");
}

const EMULATED_RUN: &str = r#"
duration = 2
[path]
rtt = 40
jitter = 4
loss = [1, 20, 21, 22, 150]
[path.back]
loss = "gilbert-elliott:4:30:90"
[defaults]
itt = "20ms:2ms"
size = 120
[group.near]
streams = 2
[group.remote]
streams = 2
rtt = "100ms+80ms"
[measure]
queue = false
"#;

/// Identity of a packet at any point of the path: ports, IP identification, sequence and
/// acknowledgement number.
type Key = Vec<u8>;

/// Splits the IP packets of a trace by direction: to the receiver, then back.
fn packets_by_direction(trace: &Path) -> [Vec<Key>; 2] {
    let bytes = fs::read(trace).unwrap();
    let mut rest = &bytes[24..];
    let mut packets_by_direction = [Vec::new(), Vec::new()];
    while let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *rest {
        let captured = u32::from_le_bytes([a, b, c, d]) as usize;
        let packet = &rest[16 + 14..16 + captured];
        let key = [&packet[4..6], &packet[20..32]].concat();
        packets_by_direction[usize::from(packet[16..20] != [10, 77, 2, 1])].push(key);
        rest = &rest[16 + captured..];
    }
    packets_by_direction
}

/// Returns the numbers, from 1, of packets seen before the emulator but not after it.
fn lost(before: &[Key], after: &[Key]) -> Vec<usize> {
    let arrived: HashSet<&Key> = after.iter().collect();
    assert_eq!(
        arrived.len(),
        after.len(),
        "every packet has a key of its own"
    );
    let numbered = (1..).zip(before);
    let lost = numbered.filter(|(_, key)| !arrived.contains(key));
    lost.map(|(number, _)| number).collect()
}

#[test]
fn emulator_applies_configured_losses_jitter_and_rtts() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let run_folder = run_experiment(folder.path(), EMULATED_RUN);
    let summary = read_json(&run_folder.join("summary.json"));
    let [forward, backward] = packets_by_direction(&run_folder.join("sender.pcap"));
    let [forward_after, backward_before] = packets_by_direction(&run_folder.join("receiver.pcap"));

    // Forward: listed losses, in the emulator's order. The trace before it may swap packets that
    // two processors sent at the same time.
    let listed = [1, 20, 21, 22, 150];
    assert_eq!(summary["forward"]["lost"], listed.len());
    let found = lost(&forward, &forward_after);
    assert_eq!(found.len(), listed.len());
    let is_near = |(found, listed): (&usize, &usize)| found.abs_diff(*listed) <= 3;
    assert!(found.iter().zip(&listed).all(is_near), "{found:?}");
    for port in 20_000..20_004u16 {
        let of_port = |keys: &[Key]| -> Vec<Key> {
            let is_match = |key: &&Key| key[2..4] == port.to_be_bytes();
            keys.iter().filter(is_match).cloned().collect()
        };
        let mut sent = of_port(&forward);
        sent.retain(|key| forward_after.contains(key));
        assert!(of_port(&forward_after) == sent, "jitter keeps the order");
    }

    // Backward: 11 % of about 400 ACKs, in runs of 2.6.
    let all = lost(&backward_before, &backward);
    assert_eq!(summary["backward"]["lost"], all.len());
    assert!((8..160).contains(&all.len()), "{all:?}");
    // The loss state belongs to the whole path, but netem has one for each remote stream.
    let is_netem = !run_folder.join("path.json").exists();
    let states: &[&[u16]] = if is_netem {
        &[&[20_000, 20_001], &[20_002], &[20_003]]
    } else {
        &[&[20_000, 20_001, 20_002, 20_003]]
    };
    let runs = states.iter().map(|ports| {
        let passes = |key: &&Key| ports.contains(&u16::from_be_bytes([key[4], key[5]]));
        let before: Vec<Key> = backward_before.iter().filter(passes).cloned().collect();
        let lost = lost(
            &before,
            &backward.iter().filter(passes).cloned().collect::<Vec<_>>(),
        );
        let continued = lost.windows(2).filter(|two| two[1] == two[0] + 1).count();
        lost.len() - continued
    });
    let runs: usize = runs.sum();
    assert!(all.len() as f64 / runs as f64 > 1.4, "{runs} of {all:?}");

    let trace = run_folder.join("sender.pcap").display().to_string();
    let output = lab(&["analyse", &trace, "--json", "--distributions"]);
    let analysed: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (stream, rtt_ms) in [40.0, 40.0, 100.0, 180.0].iter().enumerate() {
        let sender = format!("10.77.1.{}:{}", 1 + stream / 2, 20_000 + stream);
        let mut connections = analysed["connections"].as_array().unwrap().iter();
        let connection = connections.find(|it| it["sender"] == sender.as_str());
        let connection = connection.unwrap_or_else(|| panic!("{sender} in {analysed}"));
        let times = &connection["main"]["rtt_ms"];
        let time = |name: &str| times[name].as_f64().unwrap();
        assert!(
            (rtt_ms - 8.0..rtt_ms + 30.0).contains(&time("p50")),
            "{sender}: {times}"
        );
        // Without jitter no sample is below the RTT.
        assert!(time("min") < rtt_ms - 2.0, "{sender}: {times}");
    }
}

#[test]
fn demo_at_5_percent_loss_has_p97_far_below_plain_tcp() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let output = lab(&[
        "demo",
        "--streams",
        "20",
        "--duration",
        "8s",
        "--loss",
        "5%",
        "--max-packets",
        "0",
        "--reaction",
        "none",
        "--json",
        "--html",
        report.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let demo: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [plain, published, pillion] = ["plain", "published", "pillion"].map(|it| &demo[it]);
    // The demo itself fails unless every byte of every message was verified.
    assert_eq!(plain["messages"], pillion["messages"]);
    assert_eq!(plain["messages"], published["messages"]);
    assert!(plain["messages"].as_u64().unwrap() > 4000);
    let p97 = |group: &Value| group["latency_ms"]["p97"].as_f64().unwrap();
    assert!(
        p97(pillion) * 1.8 < p97(plain),
        "{} against {}",
        p97(pillion),
        p97(plain)
    );
    let retransmissions = |group: &Value| group["retransmissions"].as_u64().unwrap();
    assert!(retransmissions(pillion) * 4 < retransmissions(plain));
    // Bundling options apply to pillion's group only.
    assert_eq!(pillion["bundler"]["reactions"], 0);
    assert!(published["bundler"]["reactions"].as_u64().unwrap() > 0);

    let html = fs::read_to_string(&report).unwrap();
    for group in ["plain TCP", "as published", "pillion"] {
        assert!(html.contains(&format!(">{group}<")), "{group}");
    }
    assert!(html.trim_end().ends_with("</html>"));
}
