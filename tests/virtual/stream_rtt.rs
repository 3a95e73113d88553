//! Per-stream round-trip times: half of each passes on the way to the receiver.

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
rtt = "40ms+20ms"
[variant.netem]
[variant.jitter]
path.jitter = 1
[variant.reorder]
path.reorder = "1:5"
"#;

#[test]
fn stream_rtt_is_split_evenly_between_directions() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    assert_eq!(runs.len(), 3);
    for run in &runs {
        let summary = json(run, "summary.json");
        assert_eq!(summary["warnings"], Value::Array(Vec::new()), "{run:?}");
        // Jitter is at most 4 standard deviations.
        for (group, shortest, mean) in [(0, 75.0, 75.0), (1, 20.0, 25.0)] {
            let latency = &summary["groups"][group]["delivery_us"];
            let ms = |statistic: &str| latency[statistic].as_f64().unwrap() / 1e3;
            assert!((ms("min") - shortest).abs() < 4.1, "{run:?}: {latency}");
            assert!((ms("mean") - mean).abs() < 1.0, "{run:?}: {latency}");
        }
    }
}
