//! The main promise: on a lossy path, bundled thin streams have far lower latencies.

use std::fs;

use serde_json::Value;

use crate::common::*;

#[test]
fn at_5_percent_loss_all_arrives_intact_and_p97_is_far_below_plain_tcps() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.html");
    let output = lab(&[
        "demo",
        "--duration",
        "8",
        "--loss",
        "5",
        "--max-packets",
        "0",
        "--reaction",
        "none",
        "--json",
        "--report",
        report.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let demo: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (plain, pillion) = (&demo["plain"], &demo["pillion"]);
    // The demo itself fails unless every byte of every message was verified.
    assert_eq!(plain["messages"], pillion["messages"]);
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

    let html = fs::read_to_string(&report).unwrap();
    assert!(html.contains("plain TCP") && html.contains("pillion"));
    assert!(html.trim_end().ends_with("</html>"));
}
