//! Runs that are jobs of a grid leave the same results as those of `pillion-lab run`.

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

fn said(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// A folder with `all.toml`, whose grid is in `jobs`.
fn grid() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("all.toml"), EXPERIMENT).unwrap();
    let arguments = ["grid", "all.toml", "--jobs", "jobs"];
    said(lab_at(folder.path(), &arguments));
    folder
}

fn assert_same_as_lab_run(folder: &Path) {
    said(lab_at(folder, &["run", "all.toml"]));
    for command in ["show", "compare"] {
        let of = |making| {
            let arguments = [command, making, "--json"];
            stdout(&said(lab_at(folder, &arguments)))
        };
        let (jobs, all) = (of("jobs"), of("all"));
        assert!(jobs.contains("bundled"), "{jobs}");
        assert_eq!(jobs, all);
    }
}

fn job(jobs: &Path, run: &str) -> Command {
    let file = format!("jobs/{run}.toml");
    lab_at(jobs, &["run", &file, "--folder", run])
}

#[test]
fn jobs_in_any_order_and_one_of_them_killed_make_the_runs_of_the_experiment() {
    needs_kernel!();
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let mut killed = job(&jobs, RUNS[3]).stdout(Stdio::null()).spawn().unwrap();
    thread::sleep(Duration::from_millis(700));
    killed.kill().unwrap();
    killed.wait().unwrap();
    for run in RUNS.into_iter().rev() {
        said(job(&jobs, run));
    }
    // It is there by now.
    let again = said(job(&jobs, RUNS[0]));
    assert!(stderr(&again).contains("there already"), "{again:?}");
    assert_same_as_lab_run(folder.path());
}

/// What is there stays: it may be anybody's.
#[test]
fn a_run_takes_the_place_of_nothing_but_a_run_that_is_not_whole() {
    needs_kernel!();
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let refused = || {
        let output = job(&jobs, RUNS[0]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let told = stderr(&output);
        assert!(
            told.contains("never overwritten; name another folder"),
            "{told}"
        );
    };
    let place = jobs.join(RUNS[0]);
    fs::create_dir(&place).unwrap();
    fs::write(place.join("thesis.tex"), "years").unwrap();
    refused();
    assert_eq!(
        fs::read_to_string(place.join("thesis.tex")).unwrap(),
        "years"
    );
    fs::remove_dir_all(&place).unwrap();

    let file = format!("jobs/{}.toml", RUNS[1]);
    let arguments = ["run", &file, "--folder", RUNS[0]];
    said(lab_at(&jobs, &arguments));
    let text = fs::read_to_string(place.join("run.toml")).unwrap();
    refused();
    assert_eq!(fs::read_to_string(place.join("run.toml")).unwrap(), text);
    // As Snakemake leaves one that is to be made again.
    fs::remove_file(place.join("manifest.json")).unwrap();
    said(job(&jobs, RUNS[0]));
    assert_ne!(fs::read_to_string(place.join("run.toml")).unwrap(), text);
}

#[test]
fn a_grid_written_again_leaves_what_has_not_changed() {
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
    let arguments = ["grid", "all.toml", "--jobs", "jobs"];
    said(lab_at(folder.path(), &arguments));
    assert_eq!(times().collect::<Vec<_>>(), before);
}

#[test]
fn snakemake_makes_them() {
    needs_kernel!();
    let folder = grid();
    let jobs = folder.path().join("jobs");
    let mut snakemake = Command::new("snakemake");
    let pillion = format!("pillion_lab={PILLION_LAB}");
    snakemake.args(["--cores", "2", "--quiet", "all", "--config", &pillion]);
    let Ok(output) = snakemake.current_dir(&jobs).output() else {
        println!("left out without snakemake");
        return;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_same_as_lab_run(folder.path());
}
