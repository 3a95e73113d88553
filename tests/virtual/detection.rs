//! Hidden losses that pillion detects, compared with the traces.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::common::*;

const EXPERIMENT: &str = include_str!("../../experiments/detection.toml");

#[test]
fn delayed_acks_mislead_only_published_loss_rule() {
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
        let learnt_rule = section["point"] == "loss=8,loss-rule=auto";
        for variant in section["variants"].as_array().unwrap() {
            let name = variant["variant"].as_str().unwrap();
            let value = |measure: &str| variant["values"][measure].as_f64().unwrap();
            let [detected, repaired, missed, false_positives] = [
                "hidden_losses",
                "repaired_losses",
                "missed_losses",
                "false_losses",
            ]
            .map(value);
            println!(
                "{} {name}: {detected} detected, {repaired} repaired",
                section["point"]
            );
            // Counts of the streams' sockets add up to pillion's count for the group.
            assert_eq!(detected, repaired - missed + false_positives);
            assert!(repaired > 50.0);
            let delays_acks = ["answers-1-in-10", "reads-late"].contains(&name);
            match (learnt_rule, delays_acks) {
                (true, true) => assert_eq!(false_positives, 0.0, "{name}"),
                (true, false) => {
                    assert!(false_positives == 0.0 && missed < repaired / 20.0, "{name}");
                }
                (false, true) => assert!(false_positives > repaired, "{name}"),
                (false, false) => assert!(false_positives + missed < repaired / 20.0, "{name}"),
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}
