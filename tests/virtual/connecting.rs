//! Connections that are made while others send.

use crate::common::*;

/// The greedy streams keep the queue full. All SYNs of the thin ones come at once, and so do those
/// that are retransmitted.
const EXPERIMENT: &str = r#"
duration = 140
path.rtt = 100
[bottleneck]
rate = 1
limit = 9
[defaults]
streams = 64
congestion = "reno"
mechanisms.as-in = "linux-3.12"
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
fn streams_that_connect_while_others_send_may_never_be_established() {
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
    let (streams, never) = failed(at_start);
    assert_eq!(streams, 64);
    assert!(never > 32, "{never} of 64 never established");
}

/// The first of two SYNs is lost, and sent again a second later.
const ONE_OF_TWO: &str = r#"
duration = 12
path = { rtt = 100, loss = [1] }
[group.thin]
streams = 2
start = 2
itt = "100"
ramp-up = 0
connects-at-start = true
"#;

#[test]
fn streams_that_connect_at_their_start_await_each_other() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), ONE_OF_TWO);
    let groups = json(&runs[0], "streams.json");
    let streams = groups[0]["sent"]["streams"].as_array().unwrap();
    let sent: Vec<_> = streams.iter().map(|it| it["messages"].as_u64()).collect();
    // From 3.1 s to 12 s, each tenth of a second.
    assert_eq!(sent, [Some(89); 2]);
}

/// The first SYN is sent again 1, 3 and 7 s later, and lost each time.
const ONE_OF_TWO_LATE: &str = r#"
duration = 14
path = { rtt = 100, loss = [1, 4, 5] }
[group.thin]
streams = 2
start = 2
itt = "100"
ramp-up = 0
connects-at-start = true
"#;

#[test]
fn they_start_without_those_that_have_not_connected_for_a_quarter_of_the_time() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), ONE_OF_TWO_LATE);
    let groups = json(&runs[0], "streams.json");
    let streams = groups[0]["sent"]["streams"].as_array().unwrap();
    let sent: Vec<_> = streams.iter().map(|it| it["messages"].as_u64()).collect();
    assert!(sent.iter().all(|it| *it > Some(0)), "{sent:?}");
    // From 5 s to 14 s, each tenth of a second.
    assert_eq!(sent[1], Some(90), "{sent:?}");
    assert!(sent[0] < sent[1], "{sent:?}");
}
