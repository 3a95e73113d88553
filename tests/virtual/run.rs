//! Experiments in the virtual engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pillion_tests::samples::assert_flows;
use serde_json::Value;

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 4
[bottleneck]
rate = 2
queue = "pfifo"
limit = 15
[path]
rtt = 40
loss = 3
[defaults]
congestion = "reno"
[group.thin]
streams = 4
itt = "20ms:2ms"
size = 120
[group.greedy]
kind = "greedy"
streams = 1
[variant.plain]
[variant.bundled]
group.thin.bundle = { published = true, thin = "dpifl:10", max-packets = 1, reaction = "cwr" }
"#;

fn write(folder: &Path, experiment: &str) -> PathBuf {
    let file = folder.join("experiment.toml");
    fs::write(&file, experiment).unwrap();
    file
}

/// Runs the experiment. Returns the output and its JSON entry for each run.
fn run(folder: &Path, experiment: &str) -> (Output, Vec<Value>) {
    let file = write(folder, experiment);
    let output = lab("run", &file)
        .arg("--json")
        .arg("--store")
        .arg(folder.join("store"))
        .output()
        .unwrap();
    let runs = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output, runs)
}

fn run_folder(run: &Value) -> PathBuf {
    PathBuf::from(run["folder"].as_str().expect("a folder"))
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).expect("JSON")
}

#[test]
fn run_folders_are_complete_and_verify_bit_for_bit() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let (output, runs) = run(folder.path(), EXPERIMENT);
    assert!(output.status.success(), "{}", stderr(&output));
    let names: Vec<_> = runs.iter().map(|run| run["run"].as_str()).collect();
    assert_eq!(names, [Some("plain,seed=1"), Some("bundled,seed=1")]);
    for run in &runs {
        let manifest = json(&run_folder(run).join("manifest.json"));
        assert_eq!(manifest["engine"], "virtual");
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
        let host = json(&run_folder(run).join("host.json"));
        assert!(host["virtual_s"].as_f64().unwrap() > 4.0, "{host}");
        let version = Command::new(PILLION_LAB).arg("--version").output().unwrap();
        let pillion = host["pillion"].as_str().unwrap();
        assert_eq!(stdout(&version), format!("pillion-lab {pillion}\n"));
        let config = host["lab_kernel"]["config"].as_str().unwrap();
        assert!(u64::from_str_radix(config, 16).is_ok(), "{config}");
    }
    let bundling = json(&run_folder(&runs[1]).join("bundling.json"));
    assert!(
        bundling[0]["outcomes"]["bundled"].as_u64().unwrap() > 100,
        "{bundling}"
    );

    let bundled = run_folder(&runs[1]);
    let bytes = ["new_bytes", "redundant_bytes"].map(|name| bundling[0][name].as_u64().unwrap());
    assert_flows(&bundled, "thin", 4, bytes);
    assert!(!run_folder(&runs[0]).join("flows-thin.csv.zst").exists());

    let verified = lab("verify", &bundled).output().unwrap();
    assert_eq!(stdout(&verified), "the same, bit for bit\n");
    assert_eq!(verified.status.code(), Some(0));

    let trace = bundled.join("receiver.pcap");
    let mut bytes = fs::read(&trace).unwrap();
    bytes[1000] ^= 1;
    fs::write(&trace, bytes).unwrap();
    let verified = lab("verify", &bundled).output().unwrap();
    assert_eq!(stdout(&verified), "receiver.pcap differs from byte 1000\n");
    assert_eq!(verified.status.code(), Some(1));
}

#[test]
fn failed_run_reports_reason_and_others_are_stored() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let experiment =
        EXPERIMENT.to_owned() + "[variant.broken]\nsysctl.\"net.ipv4.tcp_no_such\" = 1\n";
    let (output, runs) = run(folder.path(), &experiment);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let is_complete: Vec<_> = runs.iter().map(|run| run["folder"].is_string()).collect();
    assert_eq!(is_complete, [true, true, false]);
    let reason = runs[2]["error"].as_str().unwrap();
    assert!(reason.contains("net.ipv4.tcp_no_such"), "{reason}");
    assert!(
        !reason.contains("pillion-lab: "),
        "the program's name appears only once: {reason}"
    );
}

#[test]
fn run_with_warnings_prints_them() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let lossy = "duration = 3\n[path]\nrtt = 100\nloss = 70\n[group.a]\nstreams = 6\nitt = 20\n";
    let (_, runs) = run(folder.path(), lossy);
    let warnings = runs[0]["warnings"].as_array().unwrap();
    assert!(!warnings.is_empty());
    let file = write(folder.path(), lossy);
    let output = lab("run", &file)
        .arg("--store")
        .arg(folder.path().join("again"))
        .output()
        .unwrap();
    let printed = stderr(&output);
    for warning in warnings {
        let message = format!("seed=1: {}", warning.as_str().unwrap());
        assert!(printed.contains(&message), "{printed}");
    }
}

/// The test crashes the kernel by a signal from outside (SIGFPE) after the trace has started.
#[test]
fn kernel_crash_stores_console_and_partial_run() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let endless = EXPERIMENT.replace("duration = 4", "duration = 90000\nseed = 7770079");
    let endless = endless.replace("[variant.plain]\n", "");
    let file = write(folder.path(), &endless);
    let store = folder.path().join("store");
    let pillion = lab("run", &file)
        .arg("--json")
        .arg("--store")
        .arg(&store)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let experiment_folder = || only_folder(&only_folder(&store)?);
    let trace_metadata = || {
        let work = only_folder(&experiment_folder()?)?;
        fs::metadata(work.join("run.part/sender.pcap")).ok()
    };
    wait_until("the trace has packets", || {
        trace_metadata().is_some_and(|trace| trace.len() > 10_000)
    });
    let kernel = child_processes(pillion.id());
    assert_eq!(kernel.len(), 1);
    kill(Pid::from_raw(kernel[0].cast_signed()), Signal::SIGFPE).unwrap();
    let output = pillion.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));

    let broken = experiment_folder()
        .unwrap()
        .join("bundled,seed=7770079.broken");
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let reason = runs[0]["error"].as_str().unwrap();
    assert!(reason.contains("Kernel mode signal 8"), "{reason}");
    assert!(reason.contains(broken.to_str().unwrap()), "{reason}");
    let text = |file: &str| fs::read_to_string(broken.join(file)).unwrap();
    assert!(reason.starts_with(text("broken").trim()), "{reason}");
    assert!(text("run.toml").contains("seed = 7770079"));
    let console = text("console.txt");
    assert!(console.contains("Linux version 6."), "{console}");
    assert!(console.contains("Kernel panic - not syncing"), "{console}");
    let trace = fs::metadata(broken.join("sender.pcap")).unwrap();
    assert!(trace.len() > 10_000);

    let stored = |command: &str, name: &str| {
        let mut pillion = lab(command, Path::new(name));
        let output = pillion.arg("--store").arg(&store).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    assert!(stored("show", "experiment").contains("failed: the lab kernel ended"));
    let name = broken.strip_prefix(&store).unwrap().with_extension("");
    let name = name.to_str().unwrap();
    assert!(stored("show", name).contains("failed: the lab kernel ended"));
    stored("remove", name);
    assert!(!broken.exists());
}

/// Returns the only subfolder of a folder, if it has exactly one.
fn only_folder(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let mut folders = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir());
    folders.next().filter(|_| folders.next().is_none())
}

#[test]
fn signal_stops_runs_and_leaves_no_files() {
    needs_kernel!();
    let folder = tempfile::tempdir().unwrap();
    let endless = EXPERIMENT.replace("duration = 4", "duration = 90000\nseed = 7770078");
    let file = write(folder.path(), &endless);
    let store = folder.path().join("store");
    let pillion = lab("run", &file)
        .arg("--store")
        .arg(&store)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mark = "pillion.seed=7770078";
    wait_until("kernels run", || count_processes_with(mark) > 1);
    send_signal(&pillion, Signal::SIGINT);
    let output = pillion.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(count_processes_with(mark), 0);
    let experiment_folder = fs::read_dir(&store)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    let experiment_folder = fs::read_dir(experiment_folder)
        .unwrap()
        .flatten()
        .next()
        .unwrap()
        .path();
    let names = fs::read_dir(experiment_folder).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["experiment.toml"]);
}
