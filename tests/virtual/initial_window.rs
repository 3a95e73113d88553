//! The window that connections begin with.

use std::fs;

use crate::common::*;

/// Nine segments, which double from round trip to round trip: what an initial window leaves over takes
/// more of them.
const EXPERIMENT: &str = r#"
duration = 2
path.rtt = 100
[defaults]
kind = "flow"
streams = 1
itt = 2000
size = 13000
[group.today]
[group.then]
mechanisms.as-in = "linux-2.6.34"
[group.one]
mechanisms.initial-window = 1
[group.cut]
mechanisms = { initial-window = 1, smart-framing = true }
"#;

#[test]
fn a_flow_takes_as_many_round_trips_as_its_first_window_leaves_it() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let run = &run_all(folder.path(), EXPERIMENT)[0];
    let streams = fs::read_to_string(run.join("streams.json")).unwrap();
    let groups: serde_json::Value = serde_json::from_str(&streams).unwrap();
    let took = groups.as_array().unwrap().iter().map(|group| {
        let flow = &group["sent"]["streams"][0];
        let took = flow["completion_us"].as_f64().unwrap() / 1e5;
        (group["name"].as_str().unwrap().to_owned(), took.round())
    });
    let mut took: Vec<_> = took.collect();
    took.sort_by(|a, b| a.0.cmp(&b.0));
    let took: Vec<_> = took.iter().map(|(name, it)| (name.as_str(), *it)).collect();
    // The handshake takes one; a window that is cut grows as one that is not.
    let expected = [("cut", 5.0), ("one", 5.0), ("then", 3.0), ("today", 2.0)];
    assert_eq!(took, expected);
}
