//! Redundancy does not overload a queue or a policer: eight streams bundle and one does not, on an uplink
//! that is 83 % full without bundles and would be 120 % full with them.

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
itt = "30:3"
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
group.bundled.bundle = true
"#;

/// The 99th percentile of delivery latency in milliseconds, of messages sent after the first ten
/// seconds: of the streams that bundle, and of the neighbour.
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
    [false, true].map(|wanted| {
        let of_group = deliveries.iter().filter(|it| it.0 == wanted);
        let mut latencies: Vec<_> = of_group.map(|it| it.2).collect();
        latencies.sort_by(f64::total_cmp);
        latencies[latencies.len() * 99 / 100]
    })
}

/// The streams fill this uplink as published, and governed they are late by no more than an ITT and 10 ms.
fn assert_governor_protects(uplink: &str) {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), uplink);
    let [plain, published, governed] = [0, 1, 2].map(|place: usize| p99(&runs[place]));
    assert!(published[0] > 10.0 * plain[0], "{published:?} {plain:?}");
    for (governed, plain) in governed.iter().zip(plain) {
        assert!(*governed <= plain + 30.0 + 10.0, "{governed} {plain}");
    }
}

#[test]
fn redundancy_does_not_fill_a_narrow_uplink() {
    assert_governor_protects(UPLINK);
}

/// A token bucket of 3000 B, and next to no queue; no other losses.
#[test]
fn redundancy_does_not_overload_a_policer() {
    let policer = "limit = \"1600 B\"\nshaper = \"tbf\"\nburst = 3000";
    let uplink = UPLINK.replace("limit = \"7200 B\"", policer);
    assert_governor_protects(&uplink.replace("loss = 1\n", ""));
}
