//! Loss and jitter of a group, which replace the path's values.

use serde_json::Value;

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 10
path = { rtt = 100, loss = 3 }
[defaults]
itt = 50
streams = 2
[group.as-the-path]
[group.lossy]
loss = 20
[group.spared]
loss = 0
[variant.netem]
[variant.own-path]
group.spared.jitter = 5
"#;

#[test]
fn group_has_its_configured_loss_and_jitter() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    assert_eq!(runs.len(), 2);
    for run in &runs {
        let summary = json(run, "summary.json");
        assert_eq!(summary["warnings"], Value::Array(Vec::new()), "{run:?}");
        let ms = |group: usize, what: &str| {
            let latency = &summary["groups"][group]["delivery_us"];
            latency[what].as_f64().unwrap() / 1e3
        };
        // A lost message waits for its retransmission, and later messages wait for it.
        assert!(ms(1, "mean") > ms(0, "mean") + 50.0, "{summary:#}");
        assert!(ms(0, "max") > 200.0, "{summary:#}");
        // Jitter is at most 4 standard deviations.
        assert!(ms(2, "max") < 71.0, "{summary:#}");
        let varies = ms(2, "max") - ms(2, "min") > 5.0;
        assert_eq!(
            varies,
            run.to_string_lossy().contains("own-path"),
            "{summary:#}"
        );
    }
}
