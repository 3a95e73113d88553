//! `pillion trial`: verdicts and state file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
use serde_json::Value;

use super::{interval, json, path_str, send, spawn_quiet, start, stop, stop_unless_finished};
use crate::common::*;

/// Arguments of a trial that assigns each connection separately.
fn trial(state: &Path) -> [&str; 8] {
    [
        "trial",
        "--json",
        "--state",
        path_str(state),
        "--assign-by",
        "connection",
        "--grace",
        "30ms",
    ]
}

#[test]
fn trial_stops_once_benefit_is_clear() {
    needs_root!();
    let pair = lossy_pair(0.08);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record");
    let trial = trial(&state);
    let mut child = start(&pair, &trial);
    send(&pair, 7001, "40", "10");
    eventually("the process exits", || child.try_wait().unwrap().is_some());
    let report = json(&child.wait_with_output().unwrap());
    assert_eq!(report["verdict"], "helps", "{report:#}");
    assert!(report["bundled"]["units"].as_u64().unwrap() > 5);
    assert!(report["bundled"]["hidden_losses"].as_u64().unwrap() > 0);
    assert_eq!(report["plain"]["redundant_bytes"], 0);
    let (low, high) = interval(&report["measures"][0]["difference"]);
    assert!(low < high && high < 0.0, "{report:#}");
    // Waits in the socket and within the grace are part of the saved time.
    let saved_ms = |measure: usize| {
        -report["measures"][measure]["difference"]["value"]
            .as_f64()
            .unwrap()
    };
    assert_eq!(report["measures"][0]["measure"], "wait_ms");
    assert!(saved_ms(0) > saved_ms(1), "{report:#}");

    let again = pillion_in(&pair.sender.namespace, &trial).output().unwrap();
    assert!(
        stderr(&again).contains("this trial has ended"),
        "{}",
        stderr(&again)
    );
    assert_eq!(json(&again)["verdict"], "helps");
}

#[test]
fn trial_counts_wait_of_data_outstanding_at_its_end() {
    needs_root!();
    let pair = clean_pair();
    let listener = pair
        .receiver
        .namespace
        .enter(|| TcpListener::bind(("10.77.0.2", 7001)));
    let listener = listener.unwrap().unwrap();
    let connect = || TcpStream::connect(("10.77.0.2", 7001)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record");
    let trial = start(&pair, &[&trial(&state)[..], &["--duration", "5s"]].concat());
    let started = Instant::now();
    let sleep_until = |ms| {
        let moment = started + Duration::from_millis(ms);
        thread::sleep(moment.saturating_duration_since(Instant::now()));
    };
    let mut sender = pair.sender.namespace.enter(connect).unwrap();
    let mut receiver = listener.accept().unwrap().0;
    sender.write_all(b"first").unwrap();
    receiver.read_exact(&mut [0; 5]).unwrap();
    let nft = |input: &str| {
        let output = pair.receiver.namespace.run("nft", &["-f", "-"], input);
        assert!(output.unwrap().status.success());
    };
    // TCP retransmits 0.2, 0.6, 1.4 and 3 s after this, and the trial waits until 8 s.
    sleep_until(3600);
    nft("table ip filter {
        chain input {
            type filter hook input priority 0
            tcp dport 7001 drop
        }
    }");
    sender.write_all(b"second").unwrap();
    sleep_until(5500);
    nft("flush ruleset");
    let report = json(&trial.wait_with_output().unwrap());
    let late_us = |arm: &str| report[arm]["late_us"].as_u64().unwrap();
    let late_us = late_us("bundled") + late_us("plain");
    assert!(late_us > 1_500_000, "{report:#}");
}

/// A middlebox on the path resets connections that send such large packets.
#[test]
fn trial_stops_if_bundles_cause_resets() {
    needs_root!();
    let pair = clean_pair();
    let resets = "table ip filter {
        chain input {
            type filter hook input priority 0
            tcp dport 7001 meta length > 250 reject with tcp reset
        }
    }";
    let namespace = &pair.receiver.namespace;
    let set = namespace.run("nft", &["-f", "-"], resets);
    let set = set.expect("nft runs");
    assert!(set.status.success(), "{}", stderr(&set));
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record");
    let trial = start(&pair, &trial(&state));
    let listen = ["traffic", "receive", "--listen", "10.77.0.2:7001"];
    let mut receiver = spawn_quiet(lab_in(namespace, &listen));
    await_listening(namespace, 7001);
    let send = ["traffic", "send", "--to", "10.77.0.2:7001", "--itt", "20ms"];
    let streams = ["--streams", "40", "--duration", "20s"];
    let mut sender = spawn_quiet(lab_in(
        &pair.sender.namespace,
        &[&send[..], &streams].concat(),
    ));
    let report = trial.wait_with_output().unwrap();
    for traffic in [&mut sender, &mut receiver] {
        traffic.kill().unwrap();
        traffic.wait().unwrap();
    }
    let report = json(&report);
    assert_eq!(report["verdict"], "harms", "{report:#}");
    assert!(report["bundled"]["cut"].as_u64().unwrap() > 5, "{report:#}");
    assert_eq!(report["plain"]["cut"], 0);
}

#[test]
fn trial_resumes_from_state_file() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record");
    let trial = ["trial", "--json", "--state", path_str(&state)];
    let first = start(&pair, &trial);
    let concurrent = pillion_in(&pair.sender.namespace, &trial).output().unwrap();
    assert_eq!(concurrent.status.code(), Some(2), "{}", stderr(&concurrent));
    assert!(
        stderr(&concurrent).contains("by another process"),
        "{}",
        stderr(&concurrent)
    );
    send(&pair, 7001, "3", "2");
    let first = json(&stop(first));
    let units = |report: &Value| {
        report["bundled"]["units"].as_u64().unwrap() + report["plain"]["units"].as_u64().unwrap()
    };
    assert_eq!(units(&first), 1, "one peer: {first:#}");

    let second = start(&pair, &trial);
    send(&pair, 7001, "2", "1");
    let output = stop(second);
    assert!(
        stderr(&output).contains("continuing the trial"),
        "{}",
        stderr(&output)
    );
    let second = json(&output);
    assert_eq!(units(&second), 1, "{second:#}");
    let connections = |report: &Value| {
        let of = |arm: &str| report[arm]["connections"].as_u64().unwrap();
        [of("bundled"), of("plain")]
    };
    // Connections of the peer stay in the same arm.
    let (before, after) = (connections(&first), connections(&second));
    let expected = [[[3, 0], [5, 0]], [[0, 3], [0, 5]]];
    let counted = [before, after];
    assert!(
        expected.contains(&counted),
        "{counted:?}\n{first:#}\n{second:#}"
    );

    for (other, reason) in [
        (["--share", "30%"], "--share"),
        (["--port", "7001"], "connections"),
        (["--dev", "lo"], "devices"),
        (["--netns", "/proc/self/ns/net"], "network namespaces"),
    ] {
        // Without a refusal, the trial would continue.
        let other = [&trial[..], &other, &["--duration", "1s"]].concat();
        let refused = pillion_in(&pair.sender.namespace, &other).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(reason), "{}", stderr(&refused));
    }
}

/// Environment variable: number of trials of each kind (default 1).
const TRIALS: &str = "PILLION_TRIALS";

/// Leaves a machine with two cores mostly idle.
const PARALLEL_TRIALS: usize = 4;

#[test]
fn trial_continues_while_state_file_is_unwritable() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let [original, moved] = ["there", "away"].map(|it| folder.path().join(it));
    std::fs::create_dir(&original).unwrap();
    let state = original.join("trial.json");
    let trial = ["trial", "--json", "--state", path_str(&state)];
    let mut child = start(&pair, &trial);
    std::fs::rename(&original, &moved).unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let refused = log.find_map(|line| {
        let line = line.unwrap();
        line.contains("trial.json").then_some(line)
    });
    let refused = refused.expect("a line about the record");
    assert!(
        refused.ends_with("the trial continues and retries"),
        "{refused}"
    );
    std::fs::rename(&moved, &original).unwrap();
    stop(child);

    let child = start(&pair, &trial);
    std::fs::rename(&original, &moved).unwrap();
    let output = stop_unless_finished(child);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("trial.json"),
        "{}",
        stderr(&output)
    );
    assert_eq!(json(&output)["verdict"], "undecided");
}

/// Returns the verdict of a trial on a path that loses one packet in twelve.
fn verdict(seed: u64, options: &[&str]) -> String {
    let direction = |loss| Direction {
        loss: Loss::Uniform(loss),
        ..Direction::delayed(Duration::from_millis(20))
    };
    let pair = HostPair::create(&PathConfig {
        forward: direction(0.08),
        backward: direction(0.0),
        seed,
    });
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("record");
    let trial = trial(&state);
    let trial = start(&pair, &[&trial[..], options].concat());
    send(&pair, 7001, "30", "12");
    json(&stop_unless_finished(trial))["verdict"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn verdicts_are_right_as_often_as_documented() {
    needs_root!();
    let trials = std::env::var(TRIALS).map_or(1, |given| given.parse().expect(TRIALS));
    // With this thin-stream test nothing is bundled in either arm.
    let wrong_and_found = |seed| {
        let is_wrong = verdict(seed, &["--thin", "dpifl:60000"]) != "undecided";
        [is_wrong, verdict(seed, &[]) == "helps"].map(u64::from)
    };
    let (mut wrong, mut found) = (0, 0);
    let seeds: Vec<u64> = (1..=trials).collect();
    for chunk in seeds.chunks(PARALLEL_TRIALS) {
        let results: Vec<[u64; 2]> = thread::scope(|scope| {
            let played = chunk
                .iter()
                .map(|seed| scope.spawn(|| wrong_and_found(*seed)));
            let played: Vec<_> = played.collect();
            played.into_iter().map(|it| it.join().unwrap()).collect()
        });
        wrong += results.iter().map(|it| it[0]).sum::<u64>();
        found += results.iter().map(|it| it[1]).sum::<u64>();
        let last = chunk[chunk.len() - 1];
        println!("{last} trials of each kind: {wrong} wrong, {found} found");
    }
    // One in twenty, plus three standard deviations.
    let max = trials as f64 / 20.0 + 3.0 * (trials as f64 * 0.05 * 0.95).sqrt();
    assert!(wrong as f64 <= max.max(1.0), "{wrong} of {trials}");
    assert!(found * 10 >= trials * 9, "{found} of {trials}");
}
