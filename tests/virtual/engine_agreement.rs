//! The two engines agree with each other and with latencies calculated by hand.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pillion_lab::traffic::Record;
use serde_json::Value;

use crate::common::*;

/// Only random loss of 2 %, 75 ms each way, after a queue that never fills. The live engine runs without
/// the queue probe, because tracepoints of some kernels miss packets (docs/lab/queue.md).
const EXPERIMENT: &str = r#"
duration = 4
repetitions = 3
measure.queue = PROBED
[bottleneck]
rate = 1000
limit = 1000
[path]
rtt = 150
loss = 2
[group.thin]
streams = 20
itt = "30ms:3ms"
size = 120
congestion = "reno"
[variant.plain]
[variant.bundled]
group.thin.bundle = { max-packets = 0, reaction = "none" }
"#;

const ONE_WAY_MS: f64 = 75.0;
const ITT_MS: f64 = 30.0;
const LOSS: f64 = 0.02;
/// Mean delay of packets that the timers of a busy host may add in the live engine.
const TIMER_DELAY_MS: f64 = 3.0;

/// Delivery latencies in milliseconds, sorted, for each variant and run.
type Latencies = BTreeMap<String, Vec<Vec<f64>>>;

fn run(engine: &str, folder: &Path) -> Latencies {
    let file = folder.join("truth.toml");
    let probed = (engine == "virtual").to_string();
    fs::write(&file, EXPERIMENT.replace("PROBED", &probed)).unwrap();
    let output = Command::new(PILLION_LAB)
        .args(["run", "--json", "--engine", engine, "--store"])
        .arg(folder.join(engine))
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{engine}: {}", stderr(&output));
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut latencies = Latencies::new();
    for run in runs {
        let folder = PathBuf::from(run["folder"].as_str().unwrap());
        assert_counts_agree(&folder, engine == "virtual");
        let name = run["run"].as_str().unwrap();
        let variant = name.split(',').next().unwrap().to_owned();
        latencies
            .entry(variant)
            .or_default()
            .push(latencies_of(&folder));
    }
    latencies
}

fn latencies_of(folder: &Path) -> Vec<f64> {
    let records = pillion_lab::records::read::<Record>(&folder.join("records.csv.zst")).unwrap();
    let latencies = records.map(|record| record.unwrap().latency_us / 1e3);
    sorted(latencies.collect())
}

/// Asserts that the path, the queue, its probe, the traces and the analyser count the same packets in a
/// run.
fn assert_counts_agree(folder: &Path, probed: bool) {
    let summary = fs::read(folder.join("summary.json")).unwrap();
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    assert_eq!(summary["warnings"], Value::Array(Vec::new()));
    let count = |key: &str| summary["forward"][key].as_u64().unwrap();
    let [at_sender, lost, at_receiver] = ["trace_before", "lost", "trace_after"].map(count);
    assert_eq!(at_sender - lost, at_receiver);
    assert_eq!(count("queue_passed"), at_sender);
    if probed {
        let seen = &summary["forward"]["queue_seen"];
        assert_eq!(
            (&seen["sent"], &seen["dropped"]),
            (&at_sender.into(), &0.into())
        );
    }
    let output = Command::new(PILLION_LAB)
        .args(["analyse", "--json"])
        .arg(folder.join("sender.pcap"))
        .arg("--receiver")
        .arg(folder.join("receiver.pcap"))
        .output()
        .unwrap();
    let analysed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |part: &str, key: &str| analysed["all"]["main"][part][key].as_u64().unwrap();
    assert_eq!(found("sent", "packets"), at_sender);
    // At the end of a trace, later packets that would decide a loss are missing.
    let [known, unknown] = ["lost_packets", "unknown_packets"].map(|key| found("loss", key));
    let possible = known..=known + unknown;
    assert!(possible.contains(&lost), "{lost} lost, found {possible:?}");
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// Returns the Wasserstein distance of two distributions in milliseconds: the area between their
/// cumulative functions.
fn distance(one: &[f64], other: &[f64]) -> f64 {
    const POINTS: usize = 1000;
    let quantile = |values: &[f64], point| values[values.len() * point / POINTS];
    let gaps = (0..POINTS).map(|point| (quantile(one, point) - quantile(other, point)).abs());
    gaps.sum::<f64>() / POINTS as f64
}

fn max_distance(runs: &[Vec<f64>]) -> f64 {
    let others = |index: usize| runs.iter().skip(index + 1);
    let pairs = runs.iter().enumerate();
    pairs
        .flat_map(|(index, one)| others(index).map(|other| distance(one, other)))
        .fold(0.0, f64::max)
}

fn share_above(values: &[f64], ms: f64) -> f64 {
    let later = values.iter().filter(|value| **value > ms).count();
    later as f64 / values.len() as f64
}

#[test]
fn engines_differ_less_than_seeds_and_match_theory() {
    needs_kernel!();
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: the live engine needs root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let virtual_runs = run("virtual", folder.path());
    let live_runs = run("live", folder.path());
    for (variant, virtual_runs) in &virtual_runs {
        let live_runs = &live_runs[variant];
        let (all_virtual, all_live) = (sorted(virtual_runs.concat()), sorted(live_runs.concat()));
        let between = distance(&all_virtual, &all_live);
        let spread = max_distance(virtual_runs).max(max_distance(live_runs));
        println!("{variant}: engines {between:.2} ms apart, seeds at most {spread:.2} ms");
        assert!(between < spread.max(TIMER_DELAY_MS), "{variant}");
    }

    // A bundled message is late only if its packet is lost: by one interval if the next packet
    // arrives. Every message is sent immediately, so the shares follow only from the loss rate.
    let bundled = sorted(virtual_runs["bundled"].concat());
    let deviations = |share: f64| 5.0 * (share / bundled.len() as f64).sqrt();
    let late = share_above(&bundled, ONE_WAY_MS + 1.0);
    assert!((late - LOSS).abs() < deviations(LOSS), "{late} late");
    let later = share_above(&bundled, ONE_WAY_MS + 1.5 * ITT_MS);
    assert!(
        later < LOSS * LOSS + deviations(LOSS * LOSS),
        "{later} later"
    );
    // A plain message waits at least for the ACK that reveals the loss, and later messages wait too.
    let plain = sorted(virtual_runs["plain"].concat());
    let late = share_above(&plain, ONE_WAY_MS + 1.5 * ITT_MS);
    assert!(late > LOSS, "{late} of the plain messages late");
}
