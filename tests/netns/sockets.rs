//! `pillion-lab sockets`: samples of real streams over time.

use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::common::*;

#[test]
fn samples_have_fixed_times_and_match_final_counters() {
    needs_root!();
    let pair = lossy_pair(0.05);
    let mut receiver = receive(&pair, 7001, 2);
    let sample = [
        "sockets",
        "--interval",
        "50ms",
        "--duration",
        "4s",
        "--port",
        "7001",
        "--json",
    ];
    let mut sampler = lab_in(&pair.sender.namespace, &sample);
    let sampler = sampler.stdout(Stdio::piped()).spawn().unwrap();
    let send = [
        "traffic",
        "send",
        "--to",
        "10.77.0.2:7001",
        "--streams",
        "2",
        "--itt",
        "10ms",
        "--duration",
        "2s",
        "--json",
    ];
    let mut sender = lab_in(&pair.sender.namespace, &send);
    let sent = sender.output().unwrap();
    assert!(sent.status.success());
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert!(receiver.wait().unwrap().success());
    let output = sampler.wait_with_output().unwrap();
    assert!(output.status.success());

    let mut streams: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in stdout(&output).lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        streams
            .entry(sample["local"].to_string())
            .or_default()
            .push(sample);
    }
    assert_eq!(streams.len(), 2);
    let mut last = Vec::new();
    for samples in streams.values() {
        // Two seconds at twenty samples a second; a busy machine may miss some.
        assert!((10..=50).contains(&samples.len()), "{}", samples.len());
        let times = samples
            .iter()
            .map(|sample| sample["at_ns"].as_u64().unwrap());
        let times: Vec<_> = times.collect();
        assert!(times.iter().all(|at| at % 50_000_000 == 0), "{times:?}");
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        for sample in samples {
            assert_eq!(sample["peer"], "10.77.0.2:7001");
            assert!(
                sample["min_rtt_us"].is_null() || sample["min_rtt_us"].as_u64() >= Some(40_000)
            );
        }
        let counters = |name: &str| {
            let counts = samples.iter().map(|sample| sample[name].as_u64().unwrap());
            counts.collect::<Vec<_>>()
        };
        for name in ["total_retrans", "bytes_sent", "bytes_acked"] {
            assert!(counters(name).is_sorted(), "{name} of {samples:?}");
        }
        last.push(samples.last().unwrap());
    }
    // The last samples precede the stream's end, where it reports its own counters.
    for (sampled, counters) in [
        ("total_retrans", "retransmissions"),
        ("bytes_sent", "bytes_sent"),
    ] {
        let sampled: u64 = last
            .iter()
            .map(|sample| sample[sampled].as_u64().unwrap())
            .sum();
        let streams = sent["streams"].as_array().unwrap();
        let counters: u64 = streams
            .iter()
            .map(|stream| stream[counters].as_u64().unwrap())
            .sum();
        assert!(
            sampled <= counters && 2 * sampled >= counters,
            "{sampled} of {counters}"
        );
    }
}

#[test]
fn signal_stops_sampler_between_samples() {
    needs_root!();
    let namespace = namespace_with_loopback();
    let mut sampler = lab_in(&namespace, &["sockets", "--interval", "86400000ms"])
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(sampler.id().cast_signed());
    let waits = format!("/proc/{pid}/task");
    eventually("the sampler waits for the signal", || {
        fs::read_dir(&waits).unwrap().count() == 2
    });
    kill(pid, Signal::SIGTERM).unwrap();
    eventually("the process exits", || {
        sampler.try_wait().unwrap().is_some()
    });
    assert!(sampler.wait().unwrap().success());
}
