//! What the tests share.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pillion_lab::engine::LabKernel;
use serde_json::Value;

/// The binary under test.
pub const PILLION_LAB: &str = env!("CARGO_BIN_EXE_pillion-lab");

/// The service's binary.
pub const PILLION: &str = PILLION_LAB.split_at(PILLION_LAB.len() - "-lab".len()).0;

/// False, with a line that says so, where there is no lab kernel.
pub fn has_kernel(test: &str) -> bool {
    let kernel = LabKernel::find(None);
    if let Err(error) = &kernel {
        println!("left out: {test}: {error}");
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

/// `pillion-lab COMMAND FILE`.
pub fn lab(command: &str, file: &Path) -> Command {
    let mut pillion = Command::new(PILLION_LAB);
    pillion.arg(command).arg(file).stdin(Stdio::null());
    pillion
}

/// Makes all runs of an experiment, none of which may fail, in a store in the folder; the folders of
/// the runs, in the order of the experiment.
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

/// What a file of a run says.
pub fn json(run: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(run.join(name)).unwrap()).unwrap()
}

/// `pillion-lab` with its working directory.
pub fn lab_at(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(PILLION_LAB);
    command.args(arguments).current_dir(folder);
    command
}

/// `pillion-lab boot` with its options and the program's arguments.
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

/// Runs those of this program's ignored tests inside whose names begin so, one after the other, in
/// the order of their names.
pub fn test_inside(names: &str) {
    let this = std::env::current_exe().unwrap();
    let this = this.to_str().unwrap();
    let arguments = [this, "--ignored", "--test-threads=1", names];
    let output = boot(&[], &arguments).output().unwrap();
    let report = stdout(&output);
    print!("{report}");
    assert!(output.status.success(), "{}{}", report, stderr(&output));
    assert!(!report.contains("running 0 tests"), "{report}");
}

/// What a shell's lines write inside, which must not fail.
pub fn shell(options: &[&str], lines: &str) -> String {
    let output = boot(options, &["sh", "-ec", lines]).output().unwrap();
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

/// A kernel's processes all have its command line.
pub fn processes_with(argument: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            line.split(|byte| *byte == 0)
                .any(|word| word == argument.as_bytes())
        })
        .count()
}

/// The processes that a process has begun, and not its threads' or theirs.
pub fn children_of(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let lists = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("children")));
    let lists: String = lists.map(Result::unwrap_or_default).collect();
    let ids = lists.split_whitespace().map(str::parse);
    ids.collect::<Result<_, _>>().unwrap()
}

/// Waits until it is so.
pub fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}
