//! pillion's BPF programs in the lab kernel, which interprets them (no JIT).

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::*;

/// Two hosts with a delay of 20 ms each way; the path to the receiver loses 10 % of packets.
const HOSTS: &str = "
ip netns add a; ip netns add b
ip link add va netns a type veth peer name vb netns b
for host in a b; do
    ip -n $host link set lo up
    ip -n $host link set v$host up
    ip -n $host address add 10.0.0.$([ $host = a ] && echo 1 || echo 2)/24 dev v$host
done
tc -n a qdisc add dev va root netem delay 20ms loss 10%
tc -n b qdisc add dev vb root netem delay 20ms
ip netns exec b pillion-lab traffic receive --listen 10.0.0.2:7000 --streams 3 --json > /results/received &
";

#[test]
fn thin_streams_bundle_and_bytes_arrive_intact() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().to_str().unwrap();
    let lines = HOSTS.to_owned()
        + "sleep 1
        nsenter --net=/run/netns/a pillion run --quiet --stats /results/bundler --thin always -- \\
            pillion-lab traffic send --to 10.0.0.2:7000 --streams 3 --itt 30ms --size 120 \\
            --duration 20s --json > /results/sent
        wait";
    let options = ["--tool", "sleep", "--tool", "nsenter", "--tool", PILLION];
    let options = [&options[..], &["--results", results]].concat();
    shell(&options, &lines);
    let read = |name: &str| -> Value {
        let text = std::fs::read(folder.path().join(name)).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let (sent, received, stats) = (read("sent"), read("received"), read("bundler"));
    assert_eq!(sent["messages"], received["messages"], "{sent}{received}");
    assert!(
        stats["outcomes"]["bundled"].as_u64().unwrap() > 1000,
        "{stats}"
    );
}

/// Copies send more than TFRC-SP allows at times: at 10 % loss too many bytes, and of isolated segments
/// every 13 ms too many packets.
#[test]
fn auto_stops_copies_before_it_reduces_window() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
        duration = 60
        [group.thin]
        streams = 4
        size = 120
        [measure]
        traces = false
        sockets = false
        [axis.with.all]
        path = { rtt = 150, loss = 10 }
        group.thin.itt = "30ms:3ms"
        group.thin.bundle = { level = "auto", reaction = "tfrc-sp" }
        [axis.with.isolated]
        path = { rtt = 8, loss = 3 }
        group.thin.streams = 1
        group.thin.itt = 13
        group.thin.bundle = { level = "auto", deadline = "5ms", reaction = "tfrc-sp" }
    "#;
    let runs = run_all(folder.path(), experiment);
    for (run, (copies, losses)) in runs.iter().zip([(4000, 300), (1000, 5)]) {
        let bundling = &json(run, "bundling.json")[0];
        let count = |name: &str| bundling[name].as_u64().unwrap();
        assert!(count("copies") > copies, "{bundling}");
        assert!(count("reactions_suppressed") > losses, "{bundling}");
        assert!(count("reactions") < 8, "{bundling}");
    }
}

/// Each stream has few messages, but all of them together many.
#[test]
fn auto_limits_isolated_copies_of_many_streams() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let experiment = r#"
        duration = 30
        path = { rtt = 50, loss = 2 }
        [group.thin]
        itt = "200ms:20ms"
        size = 120
        bundle = { level = "auto", reaction = "tfrc-sp" }
        [measure]
        traces = false
        sockets = false
        [axis.load.few]
        group.thin.streams = 64
        [axis.load.many]
        group.thin.streams = 128
    "#;
    let runs = run_all(folder.path(), experiment);
    let copies = [0, 1].map(|run: usize| {
        let bundling = &json(&runs[run], "bundling.json")[0];
        bundling["copies"].as_u64().unwrap()
    });
    // At 320 messages per second, 32 are copied, from the first second on. At 640, the network is busy
    // after a few seconds, and none is.
    assert!((500..1100).contains(&copies[0]), "{copies:?}");
    assert!(copies[1] < 200, "{copies:?}");
}

/// Runs a group of streams for a minute, with these keys of the experiment and of the group besides its
/// level. Returns its counts.
fn bundling_of_group(folder: &Path, path: &str, group: &str) -> Value {
    let experiment = format!(
        r#"
        duration = 60
        path = {path}
        [measure]
        traces = false
        sockets = false
        [group.thin]
        {group}
        bundle.level = "auto"
        bundle.reaction = "tfrc-sp"
    "#
    );
    json(&run_all(folder, &experiment)[0], "bundling.json")[0].clone()
}

/// Returns the counts of `streams` streams with messages each 30 ms.
fn bundling_of_streams(streams: u32, path: &str, options: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let group = format!("streams = {streams}\nitt = \"30ms:3ms\"\nsize = 120\n{options}");
    bundling_of_group(folder.path(), path, &group)
}

/// Returns the redundant bytes per new byte.
fn redundancy(bundling: &Value) -> f64 {
    let [new, redundant] =
        ["new_bytes", "redundant_bytes"].map(|name| bundling[name].as_f64().unwrap());
    redundant / new
}

/// Returns the counts of `streams` streams that replay these messages: the gap before each in ms, its bytes.
fn bundling_of_replay(streams: u32, path: &str, messages: &[(u32, u32)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let lines = messages.iter().map(|(gap, size)| format!("{gap},{size}\n"));
    let writes = format!("gap_ms,size\n{}", lines.collect::<String>());
    fs::write(folder.path().join("writes.csv"), writes).unwrap();
    let group = format!("kind = \"replay\"\nwrites = \"file:writes.csv\"\nstreams = {streams}");
    bundling_of_group(folder.path(), path, &group)
}

/// 667 messages per second make the network busy for 10 s. Then 20 keystrokes per second are copied again.
#[test]
fn auto_copies_keystrokes_after_busy_time() {
    needs_kernel!();
    let messages = [[(30, 100); 330].as_slice(), &[(1000, 36); 50]].concat();
    let bundling = bundling_of_replay(20, "{ rtt = 50, loss = 2 }", &messages);
    // The first keystrokes still have a short smoothed time between messages.
    let copies = bundling["copies"].as_u64().unwrap();
    assert!(copies > 400, "{bundling}");
}

/// Seven streams send 280 messages per second in bursts of ten, with as many copies.
#[test]
fn copies_do_not_make_network_busy() {
    needs_kernel!();
    let burst = [[(241, 60)].as_slice(), &[(1, 60); 9]].concat();
    let bundling = bundling_of_replay(7, "{ rtt = 150, loss = 10 }", &burst.repeat(230));
    let count = |name: &str| bundling[name].as_f64().unwrap();
    // All are copied, except in the first seconds.
    assert!(
        count("copies") > 0.75 * count("new_bytes") / 60.0,
        "{bundling}"
    );
}

/// A network is busy above 400 messages per second.
#[test]
fn auto_bundles_one_segment_in_busy_network() {
    needs_kernel!();
    let [few, many] = [10, 20].map(|streams| {
        redundancy(&bundling_of_streams(
            streams,
            "{ rtt = 150, loss = 10 }",
            "",
        ))
    });
    // One previous segment adds about as many bytes as are new.
    assert!(few > 1.5 && many < 1.2, "{few} {many}");
}

/// At 2 % loss, one previous segment meets the target for lost segments alone, and two meet it for those
/// that wait behind them as well.
#[test]
fn auto_bundles_more_where_messages_wait() {
    needs_kernel!();
    let bundling = bundling_of_streams(4, "{ rtt = 150, loss = 2 }", "");
    assert!(redundancy(&bundling) > 1.4, "{bundling}");
}

/// No bundle meets a deadline of 5 ms, so all segments are copied.
#[test]
fn deadline_below_itt_causes_copies_of_all_segments() {
    needs_kernel!();
    let bundling = bundling_of_streams(4, "{ rtt = 150, loss = 2 }", "bundle.deadline = \"5ms\"");
    // All but the first few hundred of 8,000 segments are copied.
    let copies = bundling["copies"].as_u64().unwrap();
    assert!(copies > 6000, "{bundling}");
}
