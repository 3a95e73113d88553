//! Accuracy of a rate limit with high-resolution timers and with clock ticks.

use std::fs;
use std::path::Path;

use pillion_lab::engine::LabKernel;
use pillion_lab::settings::experiment::Kernel;

use crate::common::*;

/// Datagrams at 20 Mbit/s through a limit of 10 Mbit/s, by a token bucket of one frame.
const EXPERIMENT: &str = r#"
duration = 2
[bottleneck]
rate = 10
shaper = "tbf"
queue = "bfifo"
limit = "1514 B"
[group.udp]
kind = "datagrams"
rate = 20
size = 1472
[measure]
sockets = false
[axis.timers.high-resolution]
[axis.timers.ticks]
kernel.high-resolution-timers = false
"#;

#[test]
fn bucket_meets_rate_only_with_high_resolution_timers() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let runs = run_all(folder.path(), EXPERIMENT);
    let rates = runs.iter().map(|run| {
        let summary = json(run, "summary.json");
        assert_eq!(
            summary["warnings"].as_array().unwrap().len(),
            0,
            "{summary}"
        );
        let group = &summary["groups"][0];
        let sent = group["sent"].as_u64().unwrap();
        // One datagram every 588.8 us for 2 s.
        assert!((3390..=3398).contains(&sent), "{sent}");
        assert_eq!(group["connected"], 1);
        group["received"].as_f64().unwrap() * 1514.0 * 8.0 / 2.0
    });
    let [high_resolution, ticks] = rates.collect::<Vec<_>>()[..] else {
        panic!("two runs: {runs:?}");
    };
    assert!(
        (9.95e6..10.05e6).contains(&high_resolution),
        "{high_resolution}"
    );
    // One frame every two ticks of 1 ms.
    assert!((5.9e6..6.2e6).contains(&ticks), "{ticks}");
}

#[test]
fn clock_ticks_at_requested_rate() {
    needs_kernel!();
    let default_kernel = LabKernel::find(None).unwrap();
    let requested = Kernel {
        ticks_per_second: 250,
        ..Kernel::default()
    };
    if let Err(error) = LabKernel::for_run(&default_kernel, requested) {
        println!("skipped: {error}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let slow = format!("{EXPERIMENT}[kernel]\nticks-per-second = 250\n");
    let runs = run_all(folder.path(), &slow);
    let rate = |run: &Path| {
        let received = json(run, "summary.json")["groups"][0]["received"].clone();
        received.as_f64().unwrap() * 1514.0 * 8.0 / 2.0
    };
    let [high_resolution, ticks] = &runs[..] else {
        panic!("two runs: {runs:?}");
    };
    assert!((9.95e6..10.05e6).contains(&rate(high_resolution)));
    // One frame every tick of 4 ms.
    assert!((2.9e6..3.2e6).contains(&rate(ticks)), "{}", rate(ticks));
}

#[test]
fn missing_kernel_for_clock_rate_names_build_command() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("experiment.toml");
    fs::write(
        &file,
        format!("{EXPERIMENT}[kernel]\nticks-per-second = 250\n"),
    )
    .unwrap();
    let kernel = LabKernel::find(None).unwrap().path;
    let output = lab("run", &file)
        .args(["--store"])
        .arg(folder.path().join("store"))
        .arg("--kernel")
        .arg(kernel)
        .env("PILLION_LAB_KERNEL_CACHE", folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = stdout(&output) + &stderr(&output);
    assert!(
        printed.contains("run `lab-kernel/build --ticks 250` to build it"),
        "{printed}"
    );
}
