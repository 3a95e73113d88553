//! A rate and a queue on the way back: ACKs wait there, and are dropped.

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

/// Where packets of a file of the queue's come from and go to.
fn ends(file: &Path) -> BTreeSet<[String; 2]> {
    let rows = pillion_lab::records::read::<HashMap<String, String>>(file).unwrap();
    let rows = rows.map(|row| row.unwrap());
    rows.map(|row| [row["source"].clone(), row["destination"].clone()])
        .collect()
}

#[test]
fn acks_wait_on_the_way_back_and_each_queue_s_account_is_of_its_own_direction() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    let [free, narrow] = &runs[..] else {
        panic!("two runs: {runs:?}");
    };
    let [sender, receiver] = ["10.77.1.1:20000", "10.77.2.1:7001"].map(str::to_owned);
    let there = BTreeSet::from([[sender.clone(), receiver.clone()]]);
    let back = BTreeSet::from([[receiver, sender]]);
    for run in [free, narrow] {
        assert_eq!(ends(&run.join("queue.csv.zst")), there);
        // Counts of all places agree.
        assert_eq!(json(run, "summary.json")["doubts"], serde_json::json!([]));
    }
    assert!(!free.join("queue-back.csv.zst").exists());
    assert_eq!(ends(&narrow.join("queue-back.csv.zst")), back);
    let backward = |run| json(run, "summary.json")["backward"].clone();
    assert_eq!(backward(free)["queue_passed"], serde_json::Value::Null);
    let count = |what: &str| backward(narrow)[what].as_u64().unwrap();
    assert!(count("queue_dropped") > 0);
    assert_eq!(
        count("queue_passed") + count("queue_dropped"),
        count("delivered")
    );
    assert_eq!(count("queue_passed"), count("trace_behind"));
    // 100 kbit/s are 189 ACKs of 66 B a second, for as long as data came.
    let passed = count("queue_passed");
    assert!((800..1200).contains(&passed), "{passed}");
}
