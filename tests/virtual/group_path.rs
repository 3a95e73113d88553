//! Loss and jitter of a group, which replace the path's values.

use std::collections::HashMap;

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

/// A lost message is late by the delay of its copy. Nothing is lost before the second step.
#[test]
fn delayed_copies_repair_losses_that_start_at_a_step() {
    const STEPS: &str = r#"
duration = 20
path = { rtt = 100, loss = "steps:0=0,10=20" }
[host.sender]
fq = true
[group.thin]
host = "sender"
itt = 50
bundle = { level = "none", copies = 1, copy-delay = "25ms", reaction = "none" }
"#;
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let run = &run_all(folder.path(), STEPS)[0];
    let records =
        pillion_lab::records::read::<HashMap<String, String>>(&run.join("records.csv.zst"));
    let records = records.unwrap().map(Result::unwrap);
    let deliveries = records.filter(|record| record["measured"] == "delivery");
    let deliveries = deliveries.map(|record| {
        let number = |key: &str| record[key].parse::<f64>().unwrap();
        (number("sequence") * 0.05, number("latency_us") / 1e3)
    });
    let (before, after): (Vec<_>, Vec<_>) = deliveries.partition(|(sent_s, _)| *sent_s < 9.5);
    assert!(before.iter().all(|(_, ms)| *ms < 51.0), "{before:?}");
    let repaired = after.iter().filter(|(_, ms)| (74.0..76.0).contains(ms));
    // After the step there are 200 messages. 20 % lose the first packet, and 4 % the copy as well.
    assert!((15..60).contains(&repaired.count()), "{after:?}");
}
