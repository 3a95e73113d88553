//! Grid jobs give the same results as `pillion-lab run`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use std::{iter, thread};

use crate::common::*;

const EXPERIMENT: &str = r#"
duration = 2
repetitions = 2
[path]
rtt = 40
[group.thin]
streams = 2
itt = 30
[measure]
sockets = false
[variant.plain]
[variant.bundled]

[variant.bundled.group.thin.bundle]
thin = "always"
"#;
const RUNS: [&str; 4] = [
    "plain,seed=1",
    "plain,seed=2",
    "bundled,seed=1",
    "bundled,seed=2",
];

fn output_of(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Returns a folder with the experiment `all.toml` and its grid in `jobs`.
fn grid() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all.toml"), EXPERIMENT).unwrap();
    let arguments = ["grid", "all.toml", "--output", "jobs"];
    output_of(lab_in(folder.path(), &arguments));
    folder
}

fn assert_same_as_lab_run(folder: &Path) {
    output_of(lab_in(folder, &["run", "all.toml"]));
    for command in ["show", "compare"] {
        let json_of = |target| {
            let arguments = [command, target, "--json"];
            stdout(&output_of(lab_in(folder, &arguments)))
        };
        let (jobs, all) = (json_of("jobs"), json_of("all"));
        assert!(jobs.contains("bundled"), "{jobs}");
        assert_eq!(jobs, all);
    }
}

fn job(jobs: &Path, run: &str) -> Command {
    let file = format!("jobs/{run}.toml");
    lab_in(jobs, &["run", &file, "--folder", run])
}

#[test]
fn jobs_in_any_order_match_lab_run_despite_kill() {
    needs_kernel!();
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let mut killed = job(&jobs, RUNS[3]).stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(700));
    killed.kill().unwrap();
    killed.wait().unwrap();
    for run in RUNS.into_iter().rev() {
        output_of(job(&jobs, run));
    }
    // This run exists by now.
    let again = output_of(job(&jobs, RUNS[0]));
    assert!(
        stderr(&again).contains("pillion-lab: plain,seed=1 exists already\n"),
        "{again:?}"
    );
    assert_same_as_lab_run(folder.path());
}

/// Existing files are never overwritten, because they may belong to the user.
#[test]
fn run_replaces_only_incomplete_run() {
    needs_kernel!();
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let assert_refused = |reason: &str| {
        let output = job(&jobs, RUNS[0]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert_eq!(
            stderr(&output),
            format!("pillion-lab: error: {}: {reason}\n", RUNS[0])
        );
    };
    let run_folder = jobs.join(RUNS[0]);
    fs::create_dir(&run_folder).unwrap();
    fs::write(run_folder.join("thesis.tex"), "years").unwrap();
    assert_refused("the folder has other files, which are never overwritten; name another folder");
    assert_eq!(
        fs::read_to_string(run_folder.join("thesis.tex")).unwrap(),
        "years"
    );
    fs::remove_dir_all(&run_folder).unwrap();

    let file = format!("jobs/{}.toml", RUNS[1]);
    let arguments = ["run", &file, "--folder", RUNS[0]];
    output_of(lab_in(&jobs, &arguments));
    let text = fs::read_to_string(run_folder.join("run.toml")).unwrap();
    assert_refused(
        "the folder has another run, or one by another pillion or lab kernel; runs are never \
         overwritten; name another folder",
    );
    assert_eq!(
        fs::read_to_string(run_folder.join("run.toml")).unwrap(),
        text
    );
    // Snakemake deletes the manifest of a run that it makes again.
    fs::remove_file(run_folder.join("manifest.json")).unwrap();
    output_of(job(&jobs, RUNS[0]));
    assert_ne!(
        fs::read_to_string(run_folder.join("run.toml")).unwrap(),
        text
    );
}

#[test]
fn rewritten_grid_keeps_unchanged_files() {
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let files = RUNS.map(|run| jobs.join(format!("jobs/{run}.toml")));
    let files: Vec<_> = files
        .into_iter()
        .chain(iter::once(jobs.join("Snakefile")))
        .collect();
    let times = || {
        files
            .iter()
            .map(|file| fs::metadata(file).unwrap().modified().unwrap())
    };
    let before: Vec<_> = times().collect();
    thread::sleep(Duration::from_millis(20));
    let arguments = ["grid", "all.toml", "--output", "jobs"];
    output_of(lab_in(folder.path(), &arguments));
    assert_eq!(times().collect::<Vec<_>>(), before);
}

#[test]
fn snakemake_runs_all_jobs() {
    needs_kernel!();
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let mut snakemake = Command::new("snakemake");
    let pillion = format!("pillion_lab={PILLION_LAB}");
    snakemake.args(["--cores", "2", "--quiet", "all", "--config", &pillion]);
    let Ok(output) = snakemake.current_dir(&jobs).output() else {
        println!("skipped without snakemake");
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_same_as_lab_run(folder.path());
}
