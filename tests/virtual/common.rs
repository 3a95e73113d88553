//! Helpers shared by the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pillion_lab::engine::LabKernel;
pub use pillion_tests::send_signal;
use serde_json::Value;

/// The binary under test.
pub const PILLION_LAB: &str = env!("CARGO_BIN_EXE_pillion-lab");

/// The service's binary.
pub const PILLION: &str = PILLION_LAB.split_at(PILLION_LAB.len() - "-lab".len()).0;

/// Returns true if a lab kernel is built; otherwise prints that the test is skipped.
pub fn has_kernel(test: &str) -> bool {
    let kernel = LabKernel::find(None);
    if let Err(error) = &kernel {
        println!("skipped: {test}: {error}");
    }
    kernel.is_ok()
}

macro_rules! needs_kernel {
    () => {
        if !crate::common::has_kernel(std::thread::current().name().unwrap_or("a test")) {
            return;
        }
    };
}
pub(crate) use needs_kernel;

/// Returns the command `pillion-lab COMMAND FILE`, with empty standard input.
pub fn lab(command: &str, file: &Path) -> Command {
    let mut pillion = Command::new(PILLION_LAB);
    pillion.arg(command).arg(file).stdin(Stdio::null());
    pillion
}

/// Makes all runs of an experiment in `store` below the folder; panics if a run fails. Returns the run
/// folders in the order of the experiment.
pub fn run_all(folder: &Path, experiment: &str) -> Vec<PathBuf> {
    let file = folder.join("experiment.toml");
    fs::write(&file, experiment).unwrap();
    let output = lab("run", &file)
        .args(["--json", "--store"])
        .arg(folder.join("store"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let runs: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let folders = runs.iter().map(|run| run["folder"].as_str().unwrap());
    folders.map(PathBuf::from).collect()
}

/// Reads a JSON file of a run.
pub fn json(run: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(run.join(name)).unwrap()).unwrap()
}

/// Returns the command `pillion-lab ARGUMENTS` with this working directory.
pub fn lab_in(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PILLION_LAB);
    command.args(arguments).current_dir(folder);
    command
}

/// Returns the command `pillion-lab boot OPTIONS -- PROGRAM`, with empty standard input.
pub fn boot(options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(PILLION_LAB);
    command
        .arg("boot")
        .args(options)
        .arg("--")
        .args(program)
        .stdin(Stdio::null());
    command
}

/// Runs this program's ignored tests whose names start with `names` inside the lab kernel, one after
/// the other, sorted by name. Panics if a test fails or none matches.
pub fn run_tests_inside(names: &str) {
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let arguments = [this, "--ignored", "--test-threads=1", names];
    let output = boot(&[], &arguments).output().unwrap();
    let report = stdout(&output);
    print!("{report}");
    assert!(output.status.success(), "{}{}", report, stderr(&output));
    assert!(!report.contains("running 0 tests"), "{report}");
}

/// Returns the output of a shell script inside the lab kernel; panics if it fails.
pub fn shell(options: &[&str], script: &str) -> String {
    let output = boot(options, &["sh", "-ec", script]).output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}{}",
        output.status,
        stdout(&output),
        stderr(&output)
    );
    stdout(&output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Counts processes with this argument. All processes of a lab kernel have its command line.
pub fn count_processes_with(argument: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == argument.as_bytes())
        })
        .count()
}

/// Returns the direct child processes of a process, including those that its threads started.
pub fn child_processes(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
    let lists: String = lists.map(Result::unwrap_or_default).collect();
    let ids = lists.split_whitespace().map(str::parse);
    ids.collect::<Result<_, _>>().unwrap()
}

/// Polls until the condition is true; panics after 60 s.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timeout: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
