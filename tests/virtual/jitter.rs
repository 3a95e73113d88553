//! Jitter is that asked for, by the traces' own account, however many streams there are.

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
itt = "40:4"
size = 120
[measure]
sockets = false
[variant.one]
group.thin.streams = 1
[variant.many]
group.thin.streams = 20
"#;

/// The IP packets to the receiver, with the times in the trace in milliseconds.
fn packets(trace: &Path) -> Vec<(f64, Vec<u8>)> {
    let bytes = fs::read(trace).unwrap();
    let mut rest = &bytes[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let word = |at| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
        let (seconds, ns, kept) = (word(0), word(4), word(8) as usize);
        let packet = &rest[16 + 14..16 + kept];
        if packet[16..20] == [10, 77, 2, 1] {
            let ms = f64::from(seconds) * 1e3 + f64::from(ns) / 1e6;
            packets.push((ms, [&packet[4..6], &packet[20..28]].concat()));
        }
        rest = &rest[16 + kept..];
    }
    packets
}

/// Mean and standard deviation of the way to the receiver, in milliseconds, where all arrive in the
/// order in which they were sent.
fn delay(run: &Path) -> (f64, f64) {
    let sent = packets(&run.join("sender.pcap"));
    let arrived = packets(&run.join("receiver.pcap"));
    let names = |packets: &[(f64, Vec<u8>)]| -> Vec<Vec<u8>> {
        packets.iter().map(|(_, name)| name.clone()).collect()
    };
    assert!(names(&sent) == names(&arrived), "jitter keeps the order");
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
fn mean_and_deviation_are_those_asked_for_with_one_stream_and_with_many() {
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
        let made = Path::new(run["folder"].as_str().unwrap());
        // Of some 330 independent values: standard errors 0.7 and 0.6 ms.
        let (mean, sd) = delay(made);
        assert!((mean - 50.0).abs() < 2.5, "{mean} ms");
        assert!((sd - 10.0).abs() < 2.0, "{sd} ms");
        let summary: Value =
            serde_json::from_slice(&fs::read(made.join("summary.json")).unwrap()).unwrap();
        assert_eq!(summary["doubts"], Value::Array(Vec::new()));
        let told = |name: &str| summary["forward"]["jitter"][name].as_f64().unwrap() / 1e3;
        assert!((told("mean_us") + 50.0 - mean).abs() < 0.1, "{summary}");
        assert!((told("sd_us") - sd).abs() < 0.1, "{summary}");
        assert_eq!(summary["backward"]["jitter"], Value::Null);
        println!("{}: {mean:.2} ± {sd:.2} ms", run["run"]);
    }
    let made = Path::new(runs[1]["folder"].as_str().unwrap());
    let verified = lab("verify", made).output().unwrap();
    assert_eq!(stdout(&verified), "the same, bit for bit\n");
}
