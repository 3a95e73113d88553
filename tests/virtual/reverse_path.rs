//! A rate limit and a queue on the reverse path, which delay and drop ACKs.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 5
[bottleneck]
rate = 10
limit = 63
[path]
rtt = 40
[group.download]
kind = "greedy"
congestion = "reno"
[variant.free]
[variant.narrow]
bottleneck.back = { rate = 0.1, limit = 9 }
"#;

/// Returns the source and destination addresses in a queue's record file.
fn endpoints(file: &Path) -> BTreeSet<[String; 2]> {
    let rows = pillion_lab::records::read::<HashMap<String, String>>(file).unwrap();
    let rows = rows.map(|row| row.unwrap());
    rows.map(|row| [row["source"].clone(), row["destination"].clone()])
        .collect()
}

#[test]
fn acks_queue_on_reverse_path_with_separate_counts() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    let [free, narrow] = &runs[..] else {
        panic!("two runs: {runs:?}");
    };
    let [sender, receiver] = ["10.77.1.1:20000", "10.77.2.1:7001"].map(str::to_owned);
    let forward = BTreeSet::from([[sender.clone(), receiver.clone()]]);
    let reverse = BTreeSet::from([[receiver, sender]]);
    for run in [free, narrow] {
        assert_eq!(endpoints(&run.join("queue.csv.zst")), forward);
        // The counts of all measuring points agree.
        assert_eq!(json(run, "summary.json")["warnings"], serde_json::json!([]));
    }
    assert!(!free.join("queue-back.csv.zst").exists());
    assert_eq!(endpoints(&narrow.join("queue-back.csv.zst")), reverse);
    let backward = |run| json(run, "summary.json")["backward"].clone();
    assert_eq!(backward(free)["queue_passed"], serde_json::Value::Null);
    let count = |key: &str| backward(narrow)[key].as_u64().unwrap();
    assert!(count("queue_dropped") > 0);
    assert_eq!(
        count("queue_passed") + count("queue_dropped"),
        count("delivered")
    );
    assert_eq!(count("queue_passed"), count("trace_after"));
    // 100 kbit/s carry 189 ACKs of 66 B a second while data arrives.
    let passed = count("queue_passed");
    assert!((800..1200).contains(&passed), "{passed}");
}
