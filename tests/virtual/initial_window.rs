//! Initial congestion window of connections.

use std::fs;

use crate::common::*;

/// Each flow has nine segments. The window doubles with every round trip, so a smaller initial window
/// takes more round trips.
const EXPERIMENT: &str = r#"
duration = 2
path.rtt = 100
[defaults]
kind = "flow"
streams = 1
itt = 2000
size = 13000
[group.current]
[group.old]
mechanisms.like = "linux-2.6.34"
[group.one]
mechanisms.initial-window = 1
[group.cut]
mechanisms = { initial-window = 1, smart-framing = true }
"#;

#[test]
fn flow_round_trips_depend_on_initial_window() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let run = &run_all(folder.path(), EXPERIMENT)[0];
    let streams = fs::read_to_string(run.join("streams.json")).unwrap();
    let groups: serde_json::Value = serde_json::from_str(&streams).unwrap();
    let round_trips = groups.as_array().unwrap().iter().map(|group| {
        let flow = &group["sent"]["streams"][0];
        let round_trips = flow["completion_us"].as_f64().unwrap() / 1e5;
        (
            group["name"].as_str().unwrap().to_owned(),
            round_trips.round(),
        )
    });
    let mut round_trips: Vec<_> = round_trips.collect();
    round_trips.sort_by(|a, b| a.0.cmp(&b.0));
    let round_trips: Vec<_> = round_trips
        .iter()
        .map(|(name, it)| (name.as_str(), *it))
        .collect();
    // The handshake takes one round trip. Smart framing does not change the growth of the window.
    let expected = [("current", 2.0), ("cut", 5.0), ("old", 3.0), ("one", 5.0)];
    assert_eq!(round_trips, expected);
}
