//! Round-trip times that streams have of their own pass half on the way to the receiver.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 5
path.rtt = 150
[defaults]
itt = 50
[group.far]
[group.near]
streams = 2
rtt = "40+20"
[variant.netem]
[variant.jitter]
path.jitter = 1
[variant.reorder]
path.reorder = "1:5"
"#;

#[test]
fn half_of_a_stream_s_round_trip_passes_each_way_whatever_emulates_the_path() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("round-trips.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let output = lab("run", &file)
        .args(["--json", "--store"])
        .arg(folder.path().join("store"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(runs.len(), 3);
    for run in &runs {
        let folder = Path::new(run["folder"].as_str().unwrap());
        let summary = fs::read(folder.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_slice(&summary).unwrap();
        assert_eq!(summary["doubts"], Value::Array(Vec::new()), "{run}");
        // Jitter has 4 standard deviations at the most.
        for (group, shortest, mean) in [(0, 75.0, 75.0), (1, 20.0, 25.0)] {
            let latency = &summary["groups"][group]["delivery_us"];
            let ms = |what: &str| latency[what].as_f64().unwrap() / 1e3;
            assert!((ms("min") - shortest).abs() < 4.1, "{run}: {latency}");
            assert!((ms("mean") - mean).abs() < 1.0, "{run}: {latency}");
        }
    }
}
