//! Redundancy does not overload a queue or a policer: eight of nine streams bundle. Their load is 83 % of
//! the uplink's rate without bundles, and would be 120 % with all bundles.

use std::collections::HashMap;
use std::path::Path;

use crate::common::*;

const UPLINK: &str = r#"
title = "a narrow uplink"
duration = 60

[bottleneck]
rate = 0.48
queue = "bfifo"
limit = "7200 B"

[path]
rtt = 100
loss = 1

[defaults]
congestion = "cubic"
itt = "30ms:3ms"
size = 100

[group.bundled]
streams = 8

[group.neighbour]

[measure]
traces = false
queue = false
sockets = false

[variant.plain]
[variant.published]
group.bundled.bundle = { published = true }
[variant.governed]
group.bundled.bundle = { level = "fixed", reaction = "cwr" }
"#;

/// Returns the 99th percentile of delivery latency in milliseconds for the bundling streams and the
/// neighbour. Messages of the first ten seconds do not count.
fn p99(run: &Path) -> [f64; 2] {
    let records =
        pillion_lab::records::read::<HashMap<String, String>>(&run.join("records.csv.zst"));
    let mut deliveries = Vec::new();
    for record in records.unwrap().map(Result::unwrap) {
        if record["measured"] == "delivery" {
            let number = |key: &str| record[key].parse::<f64>().unwrap();
            let is_neighbour = record["stream"] == "8";
            deliveries.push((is_neighbour, number("sent_ns"), number("latency_us") / 1e3));
        }
    }
    let first = deliveries.iter().map(|it| it.1).fold(f64::MAX, f64::min);
    deliveries.retain(|(_, sent_ns, _)| *sent_ns > first + 10e9);
    [false, true].map(|neighbour| {
        let of_group = deliveries.iter().filter(|it| it.0 == neighbour);
        let mut latencies: Vec<_> = of_group.map(|it| it.2).collect();
        latencies.sort_by(f64::total_cmp);
        latencies[latencies.len() * 99 / 100]
    })
}

/// Asserts that published bundling fills this uplink, and that governed bundling adds at most one ITT and
/// 10 ms to plain's latency.
fn assert_governor_protects(uplink: &str) {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), uplink);
    let [plain, published, governed] = [0, 1, 2].map(|index: usize| p99(&runs[index]));
    assert!(published[0] > 10.0 * plain[0], "{published:?} {plain:?}");
    for (governed, plain) in governed.iter().zip(plain) {
        assert!(*governed <= plain + 30.0 + 10.0, "{governed} {plain}");
    }
}

#[test]
fn governed_redundancy_does_not_fill_narrow_uplink() {
    assert_governor_protects(UPLINK);
}

/// A token bucket of 3000 B with almost no queue; the path itself loses nothing.
#[test]
fn governed_redundancy_does_not_overload_policer() {
    let policer = "limit = \"1600 B\"\nshaper = \"tbf\"\nburst = 3000";
    let uplink = UPLINK.replace("limit = \"7200 B\"", policer);
    assert_governor_protects(&uplink.replace("loss = 1\n", ""));
}
