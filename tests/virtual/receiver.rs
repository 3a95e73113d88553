//! What an experiment says of the receiver.

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
fn acks_are_delayed_or_not_and_sysctls_are_the_receiver_s_alone() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    let acks_a_segment = runs.iter().map(|run| {
        let parameters = json(run, "sysctls.json");
        let sack = |host: &str| parameters[host]["net.ipv4.tcp_sack"].clone();
        assert_eq!([sack("thin"), sack("receiver")], ["1", "0"]);
        let summary = json(run, "summary.json");
        let count = |way: &str, at: &str| summary[way][at].as_f64().unwrap();
        count("backward", "trace_before") / count("forward", "trace_behind")
    });
    let acks_a_segment: Vec<_> = acks_a_segment.collect();
    // An application that reads at once has TCP acknowledge at once as well; this one does not.
    assert!(acks_a_segment[0] < 0.5, "{acks_a_segment:?}");
    let each = (0.99..1.01).contains(&acks_a_segment[1]);
    assert!(each, "{acks_a_segment:?}");
}
