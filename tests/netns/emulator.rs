//! The live engine's emulator applies exactly the settings of the experiment.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::*;
use crate::testbed::make;

const RUN: &str = r#"
duration = 2
[path]
rtt = 40
jitter = 4
loss = [1, 20, 21, 22, 150]
[path.back]
loss = "gilbert-elliott:4:30:90"
[defaults]
itt = "20:2"
size = 120
[group.near]
streams = 2
[group.remote]
streams = 2
rtt = "100+80"
[measure]
queue = false
"#;

/// Identity of a packet at any point of the path: ports, IP identification, sequence and
/// acknowledgement number.
type Key = Vec<u8>;

/// Splits the IP packets of a trace by direction: to the receiver, then back.
fn ways(trace: &Path) -> [Vec<Key>; 2] {
    let bytes = fs::read(trace).unwrap();
    let mut rest = &bytes[24..];
    let mut ways = [Vec::new(), Vec::new()];
    while let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *rest {
        let kept = u32::from_le_bytes([a, b, c, d]) as usize;
        let packet = &rest[16 + 14..16 + kept];
        let key = [&packet[4..6], &packet[20..32]].concat();
        ways[usize::from(packet[16..20] != [10, 77, 2, 1])].push(key);
        rest = &rest[16 + kept..];
    }
    ways
}

/// Returns the numbers, from 1, of packets seen before the emulator but not after it.
fn lost(before: &[Key], behind: &[Key]) -> Vec<usize> {
    let arrived: HashSet<&Key> = behind.iter().collect();
    assert_eq!(
        arrived.len(),
        behind.len(),
        "every packet has a key of its own"
    );
    let numbered = (1..).zip(before);
    let lost = numbered.filter(|(_, key)| !arrived.contains(key));
    lost.map(|(number, _)| number).collect()
}

#[test]
fn listed_losses_losses_in_runs_jitter_and_single_streams_round_trips_are_those_asked_for() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let made = make(folder.path(), RUN);
    let summary = read_json(&made.join("summary.json"));
    let [there, back] = ways(&made.join("sender.pcap"));
    let [there_behind, back_before] = ways(&made.join("receiver.pcap"));

    // Forward: listed losses, in the emulator's order. The trace before it may swap packets that
    // two processors sent at the same time.
    let listed = [1, 20, 21, 22, 150];
    assert_eq!(summary["forward"]["lost"], listed.len());
    let found = lost(&there, &there_behind);
    assert_eq!(found.len(), listed.len());
    let is_near = |(found, listed): (&usize, &usize)| found.abs_diff(*listed) <= 3;
    assert!(found.iter().zip(&listed).all(is_near), "{found:?}");
    for port in 20_000..20_004u16 {
        let of_port = |keys: &[Key]| -> Vec<Key> {
            let is_it = |key: &&Key| key[2..4] == port.to_be_bytes();
            keys.iter().filter(is_it).cloned().collect()
        };
        let mut sent = of_port(&there);
        sent.retain(|key| there_behind.contains(key));
        assert!(of_port(&there_behind) == sent, "jitter keeps the order");
    }

    // Backward: 11 % of about 400 ACKs, in runs of 2.6.
    let all = lost(&back_before, &back);
    assert_eq!(summary["backward"]["lost"], all.len());
    assert!((8..160).contains(&all.len()), "{all:?}");
    // The loss state belongs to the whole path, but netem has one for each remote stream.
    let is_netem = !made.join("path.json").exists();
    let states: &[&[u16]] = if is_netem {
        &[&[20_000, 20_001], &[20_002], &[20_003]]
    } else {
        &[&[20_000, 20_001, 20_002, 20_003]]
    };
    let runs = states.iter().map(|ports| {
        let passes = |key: &&Key| ports.contains(&u16::from_be_bytes([key[4], key[5]]));
        let before: Vec<Key> = back_before.iter().filter(passes).cloned().collect();
        let lost = lost(
            &before,
            &back.iter().filter(passes).cloned().collect::<Vec<_>>(),
        );
        let goes_on = lost.windows(2).filter(|two| two[1] == two[0] + 1).count();
        lost.len() - goes_on
    });
    let runs: usize = runs.sum();
    assert!(all.len() as f64 / runs as f64 > 1.4, "{runs} of {all:?}");

    let trace = made.join("sender.pcap").display().to_string();
    let output = lab(&["analyse", &trace, "--json"]);
    let analysed: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (stream, rtt_ms) in [40.0, 40.0, 100.0, 180.0].iter().enumerate() {
        let sender = format!("10.77.1.{}:{}", 1 + stream / 2, 20_000 + stream);
        let mut connections = analysed["connections"].as_array().unwrap().iter();
        let connection = connections.find(|it| it["sender"] == sender.as_str());
        let connection = connection.unwrap_or_else(|| panic!("{sender} in {analysed}"));
        let times = &connection["main"]["rtt_ms"];
        let time = |name: &str| times[name].as_f64().unwrap();
        assert!(
            (rtt_ms - 8.0..rtt_ms + 30.0).contains(&time("p50")),
            "{sender}: {times}"
        );
        // Without jitter no sample is below the RTT.
        assert!(time("min") < rtt_ms - 2.0, "{sender}: {times}");
    }
}
