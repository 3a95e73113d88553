//! `pillion trial`: verdicts and state file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::thread;
use std::time::Duration;

use pillion_lab::path::{Direction, Loss, PathConfig};
use pillion_tests::HostPair;
use serde_json::Value;

use super::{begin, end, end_unless_over, interval, json, quiet, send, text};
use crate::common::*;

/// Arguments of a trial that assigns each connection separately.
fn trial(record: &Path) -> [&str; 8] {
    [
        "trial",
        "--json",
        "--record",
        text(record),
        "--draw-by",
        "connection",
        "--grace",
        "30",
    ]
}

#[test]
fn a_trial_ends_by_itself_once_it_is_clear_that_bundling_helps() {
    needs_root!();
    let pair = lossy_pair(0.08);
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let trial = trial(&record);
    let mut going = begin(&pair, &trial);
    send(&pair, 7001, "40", "10");
    eventually("the process exits", || going.try_wait().unwrap().is_some());
    let said = json(&going.wait_with_output().unwrap());
    assert_eq!(said["verdict"], "helps", "{said:#}");
    assert!(said["bundled"]["units"].as_u64().unwrap() > 5);
    assert!(said["bundled"]["hidden_losses"].as_u64().unwrap() > 0);
    assert_eq!(said["plain"]["redundant_bytes"], 0);
    let (low, high) = interval(&said["measures"][0]["difference"]);
    assert!(low < high && high < 0.0, "{said:#}");

    let again = pillion_in(&pair.sender.namespace, &trial).output().unwrap();
    assert!(
        stderr(&again).contains("this trial is over"),
        "{}",
        stderr(&again)
    );
    assert_eq!(json(&again)["verdict"], "helps");
}

/// A middlebox on the path resets connections that send such large packets.
#[test]
fn a_trial_ends_by_itself_where_bundles_have_connections_reset() {
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
    let record = folder.path().join("record");
    let trial = begin(&pair, &trial(&record));
    let listen = ["traffic", "receive", "--listen", "10.77.0.2:7001"];
    let mut receiver = quiet(lab_in(namespace, &listen));
    await_listening(namespace, 7001);
    let send = ["traffic", "send", "--to", "10.77.0.2:7001", "--itt", "20"];
    let streams = ["--streams", "40", "--duration", "20"];
    let mut sender = quiet(lab_in(
        &pair.sender.namespace,
        &[&send[..], &streams].concat(),
    ));
    let said = trial.wait_with_output().unwrap();
    for traffic in [&mut sender, &mut receiver] {
        traffic.kill().unwrap();
        traffic.wait().unwrap();
    }
    let said = json(&said);
    assert_eq!(said["verdict"], "harms", "{said:#}");
    assert!(said["bundled"]["cut"].as_u64().unwrap() > 5, "{said:#}");
    assert_eq!(said["plain"]["cut"], 0);
}

#[test]
fn a_trial_goes_on_from_its_record() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let trial = ["trial", "--json", "--record", text(&record)];
    let first = begin(&pair, &trial);
    let beside = pillion_in(&pair.sender.namespace, &trial).output().unwrap();
    assert_eq!(beside.status.code(), Some(2), "{}", stderr(&beside));
    assert!(
        stderr(&beside).contains("in another process"),
        "{}",
        stderr(&beside)
    );
    send(&pair, 7001, "3", "2");
    let first = json(&end(first));
    let units = |said: &Value| {
        said["bundled"]["units"].as_u64().unwrap() + said["plain"]["units"].as_u64().unwrap()
    };
    assert_eq!(units(&first), 1, "one peer: {first:#}");

    let second = begin(&pair, &trial);
    send(&pair, 7001, "2", "1");
    let output = end(second);
    assert!(
        stderr(&output).contains("going on with the trial"),
        "{}",
        stderr(&output)
    );
    let second = json(&output);
    assert_eq!(units(&second), 1, "{second:#}");
    let connections = |said: &Value| {
        let of = |arm: &str| said[arm]["connections"].as_u64().unwrap();
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

    for (other, differs) in [
        (["--share", "30%"], "--share"),
        (["--port", "7001"], "connections"),
        (["--dev", "lo"], "devices"),
        (["--netns", "/proc/self/ns/net"], "network namespaces"),
    ] {
        // Without a refusal, the trial would continue.
        let other = [&trial[..], &other, &["--duration", "1"]].concat();
        let refused = pillion_in(&pair.sender.namespace, &other).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains(differs), "{}", stderr(&refused));
    }
}

/// Environment variable: number of trials of each kind (default 1).
const TRIALS: &str = "PILLION_TRIALS";

/// Leaves a machine with two cores mostly idle.
const TRIALS_AT_ONCE: usize = 4;

#[test]
fn a_trial_goes_on_while_its_record_cannot_be_written() {
    needs_root!();
    let pair = clean_pair();
    let folder = tempfile::tempdir().unwrap();
    let [there, away] = ["there", "away"].map(|it| folder.path().join(it));
    std::fs::create_dir(&there).unwrap();
    let record = there.join("trial.json");
    let trial = ["trial", "--json", "--record", text(&record)];
    let mut going = begin(&pair, &trial);
    std::fs::rename(&there, &away).unwrap();
    let mut says = BufReader::new(going.stderr.take().unwrap()).lines();
    let refused = says.find_map(|line| {
        let line = line.unwrap();
        line.contains("trial.json").then_some(line)
    });
    let refused = refused.expect("a line about the record");
    assert!(
        refused.ends_with("the trial goes on, trying again"),
        "{refused}"
    );
    std::fs::rename(&away, &there).unwrap();
    end(going);

    let going = begin(&pair, &trial);
    std::fs::rename(&there, &away).unwrap();
    let output = end_unless_over(going);
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
    let record = folder.path().join("record");
    let trial = trial(&record);
    let trial = begin(&pair, &[&trial[..], options].concat());
    send(&pair, 7001, "30", "12");
    json(&end_unless_over(trial))["verdict"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn verdicts_are_right_as_often_as_is_said() {
    needs_root!();
    let trials = std::env::var(TRIALS).map_or(1, |given| given.parse().expect(TRIALS));
    // With this thin-stream test nothing is bundled in either arm.
    let of_both = |seed| {
        let is_wrong = verdict(seed, &["--thin", "dpifl:60000"]) != "undecided";
        [is_wrong, verdict(seed, &[]) == "helps"].map(u64::from)
    };
    let (mut wrong, mut found) = (0, 0);
    let seeds: Vec<u64> = (1..=trials).collect();
    for at_once in seeds.chunks(TRIALS_AT_ONCE) {
        let told: Vec<[u64; 2]> = thread::scope(|scope| {
            let played = at_once.iter().map(|seed| scope.spawn(|| of_both(*seed)));
            let played: Vec<_> = played.collect();
            played.into_iter().map(|it| it.join().unwrap()).collect()
        });
        wrong += told.iter().map(|it| it[0]).sum::<u64>();
        found += told.iter().map(|it| it[1]).sum::<u64>();
        let last = at_once[at_once.len() - 1];
        println!("{last} trials of each kind: {wrong} wrong, {found} found");
    }
    // One in twenty, plus three standard deviations.
    let most = trials as f64 / 20.0 + 3.0 * (trials as f64 * 0.05 * 0.95).sqrt();
    assert!(wrong as f64 <= most.max(1.0), "{wrong} of {trials}");
    assert!(found * 10 >= trials * 9, "{found} of {trials}");
}
