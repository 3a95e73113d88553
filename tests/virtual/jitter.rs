//! Jitter in the traces equals the requested jitter for any number of streams.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 30
[path]
rtt = 100
jitter = 10
[group.thin]
itt = "40ms:4ms"
size = 120
[measure]
sockets = false
[variant.one]
group.thin.streams = 1
[variant.many]
group.thin.streams = 20
"#;

/// Returns capture time in milliseconds and an identifier (IP ID, ports, sequence number) of every
/// packet to the receiver.
fn packets(trace: &Path) -> Vec<(f64, Vec<u8>)> {
    let bytes = fs::read(trace).unwrap();
    let mut rest = &bytes[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let word = |at| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (seconds, ns, captured) = (word(0), word(4), word(8) as usize);
        let packet = &rest[16 + 14..16 + captured];
        if packet[16..20] == [10, 77, 2, 1] {
            let ms = f64::from(seconds) * 1e3 + f64::from(ns) / 1e6;
            packets.push((ms, [&packet[4..6], &packet[20..28]].concat()));
        }
        rest = &rest[16 + captured..];
    }
    packets
}

/// Returns mean and standard deviation of the one-way delay to the receiver, in milliseconds. Asserts
/// that packets arrive in the order in which they were sent.
fn delay(run: &Path) -> (f64, f64) {
    let sent = packets(&run.join("sender.pcap"));
    let arrived = packets(&run.join("receiver.pcap"));
    let ids = |packets: &[(f64, Vec<u8>)]| -> Vec<Vec<u8>> {
        packets.iter().map(|(_, name)| name.clone()).collect()
    };
    assert!(ids(&sent) == ids(&arrived), "jitter keeps the order");
    let both = sent.iter().zip(&arrived);
    let delays: Vec<f64> = both
        .map(|((sent, _), (arrived, _))| arrived - sent)
        .collect();
    let count = delays.len() as f64;
    let mean = delays.iter().sum::<f64>() / count;
    let squares = delays.iter().map(|delay| (delay - mean).powi(2));
    (mean, (squares.sum::<f64>() / count).sqrt())
}

#[test]
fn mean_and_deviation_match_request_for_any_stream_count() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("experiment.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let output = lab("run", &file)
        .arg("--json")
        .arg("--store")
        .arg(folder.path().join("store"))
        .output()
        .unwrap();
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    assert_eq!(runs.len(), 2, "{}", stderr(&output));
    for run in &runs {
        let run_folder = Path::new(run["folder"].as_str().unwrap());
        // About 330 independent values have standard errors of 0.7 and 0.6 ms.
        let (mean, sd) = delay(run_folder);
        assert!((mean - 50.0).abs() < 2.5, "{mean} ms");
        assert!((sd - 10.0).abs() < 2.0, "{sd} ms");
        let summary: Value =
            serde_json::from_slice(&fs::read(run_folder.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["warnings"], Value::Array(Vec::new()));
        let reported = |name: &str| summary["forward"]["jitter"][name].as_f64().unwrap() / 1e3;
        assert!((reported("mean_us") + 50.0 - mean).abs() < 0.1, "{summary}");
        assert!((reported("sd_us") - sd).abs() < 0.1, "{summary}");
        assert_eq!(summary["backward"]["jitter"], Value::Null);
        println!("{}: {mean:.2} ± {sd:.2} ms", run["run"]);
    }
    let run_folder = Path::new(runs[1]["folder"].as_str().unwrap());
    let verified = lab("verify", run_folder).output().unwrap();
    assert_eq!(stdout(&verified), "the same, bit for bit\n");
}
