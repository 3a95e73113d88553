//! A recorded link in both directions: deliveries, queue, drops and reproducibility.

use std::collections::HashMap;
use std::path::Path;

use serde_json::json;

use crate::common::*;

/// Toward the receiver, one opportunity per 20 ms, and none during the last 500 ms of each second.
/// Back, one per 10 ms.
const EXPERIMENT: &str = r#"
duration = 5
[bottleneck]
trace = "file:outage.down"
limit = 20
back.trace = "list:10"
[path]
rtt = 40
[group.thin]
itt = "37ms"
size = 100
[variant.thin]
[variant.greedy]
group.greedy = { kind = "greedy", congestion = "reno" }
"#;

/// Returns the rows of a queue's file.
fn rows(run: &Path, name: &str) -> Vec<HashMap<String, String>> {
    let rows = pillion_lab::records::read::<HashMap<String, String>>(&run.join(name)).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

fn number(row: &HashMap<String, String>, column: &str) -> u64 {
    row[column].parse().unwrap()
}

fn prepare(folder: &Path) {
    let times = (1..=25).map(|it| it * 20).chain([1000]);
    let lines: String = times.map(|ms| format!("{ms}\n")).collect();
    std::fs::write(folder.join("outage.down"), lines).unwrap();
}

#[test]
fn recorded_link_delivers_at_its_opportunities_only() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let runs = run_all(folder.path(), EXPERIMENT);
    let [thin, greedy] = &runs[..] else {
        panic!("two runs: {runs:?}");
    };
    for run in [thin, greedy] {
        // The counts of all measuring points agree, those of the queue's log included.
        let summary = json(run, "summary.json");
        assert_eq!(summary["warnings"], json!([]));
        for (way, file) in [
            ("forward", "queue.csv.zst"),
            ("backward", "queue-back.csv.zst"),
        ] {
            let rows = rows(run, file);
            let sent: Vec<_> = rows
                .iter()
                .filter(|row| row["disposition"] == "sent")
                .collect();
            let seen = &summary[way]["queue_seen"];
            assert_eq!(seen["sent"], sent.len(), "{way}");
            assert_eq!(seen["dropped"], summary[way]["queue_dropped"], "{way}");
            // Every packet leaves the queue at an opportunity since the first packet on the path.
            let first = number(&rows_of_both(run)[0], "arrived_ns");
            let step = if way == "forward" { 20 } else { 10 };
            for row in sent {
                let us = (number(row, "left_ns") - first) / 1_000;
                let ms = us / 1_000;
                assert!(us % 1_000 < 10 && ms.is_multiple_of(step), "{way}: {us} us");
                let in_outage = way == "forward" && (501..1000).contains(&(ms % 1000));
                assert!(!in_outage, "{way}: {us} us");
            }
        }
    }
    let forward = |run: &Path, key: &str| json(run, "summary.json")["forward"][key].clone();
    assert_eq!(forward(thin, "queue_dropped"), 0);
    assert!(forward(greedy, "queue_dropped").as_u64() > Some(0));
    let longest = rows(greedy, "queue.csv.zst");
    let longest = longest.iter().map(|row| number(row, "found_packets")).max();
    assert_eq!(longest, Some(20), "the limit");
    // The application waits for the end of the outage: half of the time, 250 ms in the mean.
    let delivery = &json(thin, "summary.json")["groups"][0]["delivery_us"];
    let longest_ms = delivery["max"].as_f64().unwrap() / 1e3;
    assert!((480.0..560.0).contains(&longest_ms), "{delivery}");
}

/// Returns the rows of both queues in order of arrival.
fn rows_of_both(run: &Path) -> Vec<HashMap<String, String>> {
    let mut all = rows(run, "queue.csv.zst");
    all.extend(rows(run, "queue-back.csv.zst"));
    all.sort_by_key(|row| number(row, "arrived_ns"));
    all
}

#[test]
fn run_with_recorded_link_repeats_from_its_own_file() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let first = run_all(folder.path(), EXPERIMENT).remove(0);
    let again = tempfile::tempdir().unwrap();
    let own_file = std::fs::read_to_string(first.join("run.toml")).unwrap();
    assert!(own_file.contains("trace = \"list:20,20,"), "{own_file}");
    let again = run_all(again.path(), &own_file).remove(0);
    for file in ["queue.csv.zst", "records.csv.zst"] {
        let [one, other] = [&first, &again].map(|run| std::fs::read(run.join(file)).unwrap());
        assert!(one == other, "{file} differs");
    }
}
