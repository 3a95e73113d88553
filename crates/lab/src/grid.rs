//! Runs of an experiment as independent jobs for many machines.
//!
//! Snakemake executes them (Mölder et al., Sustainable data analysis with Snakemake, F1000Research
//! 2021). It has executors for Slurm, Kubernetes and others.

use std::fs;
use std::path::Path;

use crate::settings::experiment::{Experiment, PlannedRun};
use pillion_cli::settings::BadInput;

use crate::Error;
use crate::engine::memory_mib;
use crate::run::{EXPERIMENT_FILE, JOBS_FOLDER, MANIFEST_FILE, WORKFLOW_FILE, folder_name};
use crate::store::BatchFolder;

/// The end of the workflow's first line, by which pillion recognises its own files.
const MARKER: &str = "written by `pillion-lab grid`.";
/// Memory of a job in addition to its lab kernel's, in MiB.
const OVERHEAD_MIB: u32 = 256;

/// Writes a workflow with one rule, and a job per run, into a folder. `text` is the experiment's
/// file. `given_mib` is the memory of each lab kernel in MiB; without it, the runs' own settings
/// apply. Identical files are not rewritten, so that Snakemake does not repeat finished runs.
///
/// # Errors
///
/// [`Error::Input`] if the folder has an experiment or a workflow that pillion did not write;
/// [`Error::File`].
pub fn write(
    experiment: &Experiment,
    text: &str,
    given_mib: Option<u32>,
    folder: &Path,
) -> Result<(), Error> {
    check_folder(folder)?;
    // The workflow is first, so that an interrupted call leaves a folder that pillion recognises.
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let workflow = workflow(&experiment.runs, given_mib);
    write_if_changed(&folder.join(WORKFLOW_FILE), &workflow)?;
    let batch = BatchFolder::open(folder, text)?;
    let jobs = batch.folder().join(JOBS_FOLDER);
    fs::create_dir_all(&jobs).map_err(Error::file(&jobs))?;
    for planned in &experiment.runs {
        let file = jobs.join(format!("{}.toml", folder_name(planned)));
        write_if_changed(&file, &planned.run.to_text())?;
    }
    Ok(())
}

/// Rejects a folder whose workflow pillion did not write. Without a workflow, no file that would be
/// overwritten may exist.
fn check_folder(folder: &Path) -> Result<(), BadInput> {
    let workflow = fs::read(folder.join(WORKFLOW_FILE)).ok();
    let other = match workflow {
        Some(text) if text.windows(MARKER.len()).any(|it| it == MARKER.as_bytes()) => return Ok(()),
        Some(_) => WORKFLOW_FILE,
        None if folder.join(EXPERIMENT_FILE).exists() => EXPERIMENT_FILE,
        None if folder.join(JOBS_FOLDER).exists() => JOBS_FOLDER,
        None => return Ok(()),
    };
    let other = folder.join(other);
    let reason = "the file exists and is never overwritten, because pillion did not write it; \
                  name another folder";
    Err(BadInput(format!("{}: {reason}", other.display())))
}

fn write_if_changed(file: &Path, text: &str) -> Result<(), Error> {
    match fs::read_to_string(file) {
        Ok(existing) if existing == text => Ok(()),
        _ => fs::write(file, text).map_err(Error::file(file)),
    }
}

fn workflow(runs: &[PlannedRun], given_mib: Option<u32>) -> String {
    let runs = runs.iter().map(|planned| {
        let memory_mib = memory_mib(given_mib, &planned.run);
        format!("    {:?}: {memory_mib},\n", folder_name(planned))
    });
    let runs: String = runs.collect();
    let given = given_mib.map_or_else(String::new, |mib| format!(" --memory {mib}"));
    format!(
        r#"# The runs of {EXPERIMENT_FILE}, one job per run; {MARKER}
#
#   snakemake --cores all                    on this machine
#   snakemake --executor slurm --jobs 100    on a cluster with a shared folder
#
# Finished runs are stored, so an interrupted workflow resumes. Afterwards, in this folder:
#
#   pillion-lab show .                       results of each run
#   pillion-lab compare .                    differences between variants, with intervals
#
# The path of pillion-lab on the machines, and options for `pillion-lab run`:
#
#   snakemake --config pillion_lab=/opt/pillion-lab options="--kernel /opt/lab-kernel" ...

PILLION_LAB = config.get("pillion_lab", "pillion-lab")
OPTIONS = config.get("options", "")

# The memory of each run's lab kernel, in MiB.
RUNS = {{
{runs}}}


wildcard_constraints:
    run="[^/]+",


rule all:
    default_target: True
    input:
        [run + "/{MANIFEST_FILE}" for run in RUNS],


rule run:
    input:
        "{JOBS_FOLDER}/{{run}}.toml",
    output:
        "{{run}}/{MANIFEST_FILE}",
    threads: 1
    resources:
        mem_mb=lambda wildcards: RUNS[wildcards.run] + {OVERHEAD_MIB},
    shell:
        "{{PILLION_LAB}} run {{input:q}} --folder {{wildcards.run:q}} --jobs 1{given}"
        " {{OPTIONS}}"
"#
    )
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment::{RunScale, of_text};

    use super::*;

    const TEXT: &str = "
duration = 1
memory = 2048
[group.thin]
[variant.small]
[variant.large]
memory = 8192
";

    fn workflow_of(text: &str, given_mib: Option<u32>) -> String {
        let experiment = of_text("a.toml", text, RunScale::Full).unwrap();
        workflow(&experiment.runs, given_mib)
    }

    #[test]
    fn foreign_files_are_not_overwritten() {
        let experiment = of_text("a.toml", TEXT, RunScale::Full).unwrap();
        for foreign in [WORKFLOW_FILE, EXPERIMENT_FILE, JOBS_FOLDER] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(foreign);
            fs::write(&file, "theirs").unwrap();
            let error = write(&experiment, TEXT, None, folder.path()).unwrap_err();
            assert!(error.is_bad_input(), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            fs::remove_file(&file).unwrap();
            for memory in [None, Some(512)] {
                write(&experiment, TEXT, memory, folder.path()).unwrap();
            }
        }
    }

    #[test]
    fn interrupted_grid_can_be_written_again() {
        let experiment = of_text("a.toml", TEXT, RunScale::Full).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let grid = || write(&experiment, TEXT, None, folder.path());
        let obstacle = folder.path().join(JOBS_FOLDER);
        std::os::unix::fs::symlink("/nonexistent/jobs", &obstacle).unwrap();
        grid().unwrap_err();
        assert!(folder.path().join(EXPERIMENT_FILE).is_file());
        fs::remove_file(&obstacle).unwrap();
        grid().unwrap();
    }

    #[test]
    fn jobs_declare_memory_of_run_or_option() {
        let own = workflow_of(TEXT, None);
        for line in ["\"small,seed=1\": 2048,\n", "\"large,seed=1\": 8192,\n"] {
            assert!(own.contains(line), "{own}");
        }
        assert!(!own.contains("--memory"), "{own}");
        let unset = workflow_of(&TEXT.replace("memory = 2048", ""), None);
        assert!(unset.contains("\"small,seed=1\": 1024,\n"), "{unset}");
        let given = workflow_of(TEXT, Some(512));
        assert_eq!(given.matches("\": 512,\n").count(), 2, "{given}");
        assert!(given.contains(" --memory 512\"\n"), "{given}");
    }
}
