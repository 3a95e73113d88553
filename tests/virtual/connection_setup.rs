//! Connections set up while other streams send.

use std::path::Path;

use crate::common::*;

/// Greedy streams keep the queue full. All thin streams send their SYNs at the same time, and also
/// retransmit them at the same time.
const EXPERIMENT: &str = r#"
duration = 140
path.rtt = 100
[bottleneck]
rate = 1
limit = 9
[defaults]
streams = 64
congestion = "reno"
mechanisms.like = "linux-3.12"
[grid]
group.thin.connects-at-start = [false, true]
[group.thin]
start = 10
[group.greedy]
kind = "greedy"
[measure]
traces = false
sockets = false
"#;

#[test]
fn streams_connecting_under_load_may_never_be_established() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    let [first, at_start] = &runs[..] else {
        panic!("two runs: {runs:?}");
    };
    let failed = |run| {
        let groups = json(run, "streams.json");
        let groups = groups.as_array().unwrap();
        let thin = groups.iter().find(|it| it["name"] == "thin").unwrap();
        let streams = thin["sent"]["streams"].as_array().unwrap();
        let failed = streams.iter().filter(|it| it["connected"] == false);
        (streams.len(), failed.count())
    };
    assert_eq!(failed(first), (64, 0));
    let (streams, failed_count) = failed(at_start);
    assert_eq!(streams, 64);
    assert!(failed_count > 32, "{failed_count} of 64 never established");
}

/// Returns the messages that each stream of a run's first group sent.
fn sent_messages(run: &Path) -> Vec<Option<u64>> {
    let groups = json(run, "streams.json");
    let streams = groups[0]["sent"]["streams"].as_array().unwrap();
    streams.iter().map(|it| it["messages"].as_u64()).collect()
}

/// The first of two SYNs is lost and retransmitted a second later.
const ONE_SYN_LOST: &str = r#"
duration = 12
path = { rtt = 100, loss = [1] }
[group.thin]
streams = 2
start = 2
itt = 100
ramp-up = 0
connects-at-start = true
"#;

#[test]
fn streams_wait_for_each_other_to_connect() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), ONE_SYN_LOST);
    let sent = sent_messages(&runs[0]);
    // One message every 0.1 s from 3.1 s to 12 s.
    assert_eq!(sent, [Some(89); 2]);
}

/// The first SYN is retransmitted 1, 3 and 7 s later, and every one is lost.
const ONE_SYN_LOST_OFTEN: &str = r#"
duration = 14
path = { rtt = 100, loss = [1, 4, 5] }
[group.thin]
streams = 2
start = 2
itt = 100
ramp-up = 0
connects-at-start = true
"#;

#[test]
fn streams_start_after_quarter_of_run_despite_failed_connects() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), ONE_SYN_LOST_OFTEN);
    let sent = sent_messages(&runs[0]);
    assert!(sent.iter().all(|it| *it > Some(0)), "{sent:?}");
    // One message every 0.1 s from 5 s to 14 s.
    assert_eq!(sent[1], Some(90), "{sent:?}");
    assert!(sent[0] < sent[1], "{sent:?}");
}
