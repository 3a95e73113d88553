//! `pillion-lab show` and `pillion-lab compare`, on runs written by hand.

use std::fs;
use std::path::Path;

use pillion_lab::records::Writer;
use pillion_lab::traffic::{LatencyKind, Record};
use serde_json::{Value, json};

use crate::common::*;

const STREAMS: u32 = 4;
const MESSAGES: u32 = 50;

/// Writes a run whose messages take `base_ms` and up to 10 ms more, depending on the seed.
fn write_run(folder: &Path, base_ms: f64, seed: u32) {
    write_run_without(0, folder, base_ms, seed);
}

/// Like [`write_run`], but nothing arrives on the first `failed` streams.
fn write_run_without(failed: u32, folder: &Path, base_ms: f64, seed: u32) {
    fs::create_dir_all(folder).unwrap();
    let write = |name: &str, value: &Value| {
        fs::write(folder.join(name), value.to_string()).unwrap();
    };
    fs::write(
        folder.join("run.toml"),
        format!("duration = 10\nseed = {seed}\n"),
    )
    .unwrap();
    write("manifest.json", &json!({"seed": seed}));
    let us = |ms: f64| (base_ms + ms) * 1e3;
    let delivery = json!({"count": STREAMS * MESSAGES, "min": us(0.0), "mean": us(5.0),
        "p50": us(5.0), "p90": us(9.0), "p97": us(9.5), "p99": us(9.8), "p99_9": us(9.9),
        "max": us(10.0)});
    let group = json!({"name": "thin", "kind": "thin", "host": "thin", "streams": STREAMS,
        "connected": STREAMS, "failed": failed, "sent": STREAMS * MESSAGES,
        "received": (STREAMS - failed) * MESSAGES, "retransmissions": STREAMS,
        "delivery_us": delivery});
    let forward = json!({"queue_dropped": 5, "queue_passed": 195, "lost": 5, "delivered": 190});
    let backward = json!({"queue_dropped": 0, "lost": 0, "delivered": 100});
    let summary = json!({"groups": [group], "forward": forward, "backward": backward,
        "warnings": []});
    write("summary.json", &summary);
    let sent = |stream| {
        json!({"stream": stream, "messages": MESSAGES, "retransmissions": 1, "bytes_retrans": 100,
            "bytes_sent": 5100, "error": (stream < failed).then_some("timed out")})
    };
    let received = |stream| json!({"stream": stream, "messages": MESSAGES, "bytes": 5000});
    let sent: Vec<Value> = (0..STREAMS).map(sent).collect();
    let received: Vec<Value> = (failed..STREAMS).map(received).collect();
    write(
        "streams.json",
        &json!([{"name": "thin", "from": "10.77.1.1:20000", "to": "10.77.2.1:7000", "first_stream": 0,
            "sent": {"send_error_us": {"p99": 1.0}, "streams": sent}, "received": {"streams": received}}]),
    );
    let arrived = (0..STREAMS * MESSAGES).filter(|number| number % STREAMS >= failed);
    let records = arrived.map(|number| Record {
        measured: LatencyKind::Delivery,
        stream: number % STREAMS,
        sequence: number / STREAMS,
        size: 100,
        sent_ns: 1_000_000,
        latency_us: us(f64::from(number * 7919 * seed % 1009) / 100.9),
    });
    let mut file = Writer::create(&folder.join("records.csv.zst")).unwrap();
    file.write(records).unwrap();
    file.finish().unwrap();
}

/// Creates a store with an experiment of two variants and two seeds.
fn store() -> tempfile::TempDir {
    let store = tempfile::tempdir().unwrap();
    let experiment = store.path().join("loss/2026-01-01T00-00-00Z");
    for (variant, base_ms) in [("bundled", 80.0), ("plain", 120.0)] {
        for seed in 1..=2 {
            write_run(
                &experiment.join(format!("{variant},seed={seed}")),
                base_ms,
                seed,
            );
        }
    }
    fs::write(experiment.join("experiment.toml"), "").unwrap();
    store
}

fn lab_with_store(store: &tempfile::TempDir, arguments: &[&str]) -> std::process::Output {
    let store = ["--store", store.path().to_str().unwrap()];
    lab(&[arguments, &store].concat())
}

#[test]
fn show_lists_groups_of_runs() {
    let store = store();
    let shown = stdout(&lab_with_store(&store, &["show", "loss"]));
    assert!(shown.contains("from one application's write"), "{shown}");
    let row = shown.lines().find(|line| line.contains("plain,seed=2"));
    let cells: Vec<&str> = row.unwrap().split_whitespace().collect();
    let expected = "plain,seed=2 thin 125.0 129.0 129.5 129.8 129.9 130.0 0\u{a0}% 0 4 \
                    5\u{a0}% 16.0\u{a0}kbit/s 2\u{a0}%";
    assert_eq!(cells.join(" "), expected.replace('\u{a0}', " "));
    let json: Value =
        serde_json::from_slice(&lab_with_store(&store, &["show", "loss", "--json"]).stdout)
            .expect("JSON");
    let run = &json["plain,seed=2"];
    assert_eq!(run["measures"]["thin"]["delivery_p99_9_ms"], 129.9);
    assert_eq!(run["groups"][0]["retransmissions"], 4);
    assert!(!shown.contains("received"), "all arrived: {shown}");
}

#[test]
fn missing_messages_are_reported_with_latencies() {
    let store = tempfile::tempdir().unwrap();
    let experiment = store.path().join("loss/2026-01-01T00-00-00Z");
    write_run_without(3, &experiment.join("plain,seed=1"), 120.0, 1);
    fs::write(experiment.join("experiment.toml"), "").unwrap();
    let expected = "thin: 50 of 200 messages received, 3 of 4 streams failed; delivery latency covers \
                only received messages";
    let report = store.path().join("report.html");
    let report = report.to_str().unwrap();
    for arguments in [
        &["show", "loss"][..],
        &["show", "loss/2026-01-01T00-00-00Z/plain,seed=1"],
        &["compare", "loss", "--html", report],
    ] {
        let shown = stdout(&lab_with_store(&store, arguments));
        assert!(shown.contains(expected), "{arguments:?}: {shown}");
    }
    assert!(fs::read_to_string(report).unwrap().contains("50 of 200"));
    for arguments in [["show", "loss", "--json"], ["compare", "loss", "--json"]] {
        let json = stdout(&lab_with_store(&store, &arguments));
        for measure in ["\"missing_share\": 0.75", "\"failed_streams\": 3"] {
            assert!(json.contains(measure), "{arguments:?}: {json}");
        }
    }
}

#[test]
fn compare_pairs_variants_with_baseline_by_seed() {
    let store = store();
    let report = store.path().join("report.html");
    let report = report.to_str().unwrap();
    let json = lab_with_store(&store, &["compare", "loss", "--json", "--html", report]);
    assert!(json.status.success(), "{}", stderr(&json));
    let compared: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(compared["baseline"], "plain");
    let bundled = &compared["sections"][0]["variants"][1];
    assert_eq!(
        (&bundled["variant"], &bundled["runs"]),
        (&json!("bundled"), &json!(2))
    );
    let difference = &bundled["differences"]["delivery_p50_ms"];
    let value = |name: &str| difference[name].as_f64().unwrap();
    assert!(
        value("low") <= value("by") && value("by") <= value("high"),
        "{difference}"
    );
    assert!(
        value("low") > -45.0 && value("high") < -35.0,
        "{difference}"
    );
    assert!(
        fs::read_to_string(report)
            .unwrap()
            .contains("data-label=\"bundled\"")
    );

    let text = stdout(&lab_with_store(&store, &["compare", "loss"]));
    assert!(
        text.contains("minus plain") && text.contains("−40"),
        "{text}"
    );
    let chosen = [
        "compare",
        "loss",
        "--markdown",
        "--measures",
        "delivery_max_ms",
    ];
    let table = stdout(&lab_with_store(&store, &chosen));
    assert!(
        table.starts_with("| variant | runs | max, ms |\n"),
        "{table}"
    );
    let unknown = lab_with_store(&store, &["compare", "loss", "--measures", "p90"]);
    assert_eq!(unknown.status.code(), Some(2));
    let other = stdout(&lab_with_store(
        &store,
        &["compare", "loss", "--baseline", "bundled"],
    ));
    assert!(
        other.contains("minus bundled") && other.contains("+40"),
        "{other}"
    );
    let unknown = lab_with_store(&store, &["compare", "loss", "--baseline", "gain"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("bundled, plain"));
}
