//! Flows: connections that open, send a few segments, and close.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::*;

/// The path drops the fifth packet: the last segment of the first flow, after SYN, ACK and two
/// segments.
const EXPERIMENT: &str = r#"
duration = 3
path.rtt = 100
path.loss = [5]
[group.flow]
kind = "flow"
streams = 1000
itt = 1000
size = 4343
mechanisms.tlp = false
"#;

#[test]
fn flow_completion_time_agrees_at_both_ends() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let output = lab("run", &file)
        .args(["--json", "--store"])
        .arg(folder.path().join("store"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let run = Path::new(runs[0]["folder"].as_str().unwrap());
    let file = fs::read(run.join("streams.json")).unwrap();
    let streams: Value = serde_json::from_slice(&file).unwrap();
    let flows = streams[0]["sent"]["streams"].as_array().unwrap();
    // Two round-trip times: one for the handshake, one for all segments and the FIN.
    let durations = |flow: &Value| flow["completion_us"].as_f64().unwrap() / 1e3;
    let durations: Vec<f64> = flows.iter().map(durations).collect();
    assert_eq!(
        durations.len(),
        3,
        "flows due at the end of the run do not start"
    );
    assert!((500.0..900.0).contains(&durations[0]), "{durations:?}");
    assert!(
        durations[1..].iter().all(|it| (200.0..201.0).contains(it)),
        "{durations:?}"
    );
    let analysed = std::process::Command::new(PILLION_LAB)
        .args(["analyse", "--json"])
        .arg(run)
        .output()
        .unwrap();
    let analysed: Value = serde_json::from_slice(&analysed.stdout).unwrap();
    let main = &analysed["all"]["main"];
    // Three segments for each flow, the last with the FIN, and one retransmission.
    assert_eq!(main["sent"]["data_packets"], 3 * 3 + 1);
    assert_eq!(main["sent"]["fins"], 3 + 1);
    let with_a_loss = &main["completion_with_a_tail_loss_ms"];
    assert_eq!(with_a_loss["count"], 1);
    let both = [&main["completion_ms"]["max"], &with_a_loss["max"]];
    let near = |it: &&Value| (it.as_f64().unwrap() - durations[0]).abs() < 1.0;
    assert!(both.iter().all(near), "{both:?} {durations:?}");
    let summary = lab("show", run).output().unwrap();
    assert!(
        stdout(&summary).contains("completion"),
        "{}",
        stdout(&summary)
    );
}
