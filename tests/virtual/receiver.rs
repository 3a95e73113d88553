//! The `[receiver]` table of an experiment.

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 10
path.rtt = 40
[group.thin]
itt = 10
size = 120
[receiver]
read-delay = 100
sysctl."net.ipv4.tcp_sack" = 0
[variant.delayed]
[variant.at-once]
receiver.delayed-acks = false
"#;

#[test]
fn delayed_acks_and_sysctls_apply_only_to_receiver() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    let acks_per_segment = runs.iter().map(|run| {
        let parameters = json(run, "sysctls.json");
        let sack = |host: &str| parameters[host]["net.ipv4.tcp_sack"].clone();
        assert_eq!([sack("thin"), sack("receiver")], ["1", "0"]);
        let summary = json(run, "summary.json");
        let count = |direction: &str, counter: &str| summary[direction][counter].as_f64().unwrap();
        count("backward", "trace_before") / count("forward", "trace_after")
    });
    let acks_per_segment: Vec<_> = acks_per_segment.collect();
    // TCP acknowledges immediately if the application reads immediately; this one does not.
    assert!(acks_per_segment[0] < 0.5, "{acks_per_segment:?}");
    let acks_every_segment = (0.99..1.01).contains(&acks_per_segment[1]);
    assert!(acks_every_segment, "{acks_per_segment:?}");
}
