//! What pillion finds of the losses that its bundles hide, against the traces.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::*;

const EXPERIMENT: &str = include_str!("../../experiments/detection.toml");

#[test]
fn hidden_losses_are_found_and_delayed_acks_mislead_the_published_rule_alone() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("detection.toml");
    let short = EXPERIMENT.replace("duration = 60", "duration = 8");
    let short = short.replace("[0, 2, 8]", "[8]");
    assert_ne!(short, EXPERIMENT);
    fs::write(&file, short).unwrap();
    let lab = |arguments: &[&str]| -> Output {
        let mut command = Command::new(PILLION_LAB);
        command.args(arguments).arg("--store");
        command.arg(folder.path()).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    lab(&["run", file.to_str().unwrap()]);
    let output = lab(&["compare", "--json", "detection"]);
    let comparison: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut compared = 0;
    for section in comparison["sections"].as_array().unwrap() {
        let learnt = section["point"] == "loss=8,loss-rule=auto";
        for variant in section["variants"].as_array().unwrap() {
            let name = variant["variant"].as_str().unwrap();
            let value = |measure: &str| variant["values"][measure].as_f64().unwrap();
            let [found, repaired, missed, falsely] = [
                "hidden_losses",
                "repaired_losses",
                "missed_losses",
                "false_losses",
            ]
            .map(value);
            println!(
                "{} {name}: {found} found, {repaired} repaired",
                section["point"]
            );
            // What the streams' sockets say adds up to what pillion counts of the group.
            assert_eq!(found, repaired - missed + falsely);
            assert!(repaired > 50.0);
            let delays_acks = ["answers-1-in-10", "reads-late"].contains(&name);
            match (learnt, delays_acks) {
                (true, true) => assert_eq!(falsely, 0.0, "{name}"),
                (true, false) => assert!(falsely == 0.0 && missed < repaired / 20.0, "{name}"),
                (false, true) => assert!(falsely > repaired, "{name}"),
                (false, false) => assert!(falsely + missed < repaired / 20.0, "{name}"),
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}
