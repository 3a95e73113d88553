//! Runs of an experiment as independent jobs, for as many machines as there are.
//!
//! Who runs them is Snakemake (Mölder et al., Sustainable data analysis with Snakemake,
//! F1000Research 2021), which has executors for Slurm, Kubernetes and others.

use std::fs;
use std::path::Path;

use crate::settings::experiment::{Experiment, Planned};
use pillion_cli::settings::BadInput;

use crate::Error;
use crate::engine::memory_mib;
use crate::run::{EXPERIMENT_FILE, JOBS, MANIFEST_FILE, WORKFLOW_FILE, folder_name};
use crate::store::Making;

/// What its first line ends with.
const MARK: &str = "written by `pillion-lab grid`.";
/// Memory that a job takes beside the lab kernel's own, in MiB.
const BESIDE_MIB: u32 = 256;

/// Writes the workflow that makes the runs of an experiment, whose file has this text, into a folder:
/// one rule, and a job for each run. Each lab kernel has so much memory, in MiB, or else what its run
/// says. What is there already and the same stays, so that Snakemake makes no run again for it.
///
/// # Errors
/// [`Error::Input`] if the folder has an experiment or a workflow that is none of pillion's;
/// [`Error::File`].
pub fn write(
    experiment: &Experiment,
    text: &str,
    given_mib: Option<u32>,
    folder: &Path,
) -> Result<(), Error> {
    refuse_others(folder)?;
    // First of all: what one leaves that is killed is pillion's as well.
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let workflow = workflow(&experiment.runs, given_mib);
    write_new(&folder.join(WORKFLOW_FILE), &workflow)?;
    let making = Making::begin(folder, text)?;
    let jobs = making.folder().join(JOBS);
    fs::create_dir_all(&jobs).map_err(Error::file(&jobs))?;
    for planned in &experiment.runs {
        let file = jobs.join(format!("{}.toml", folder_name(planned)));
        write_new(&file, &planned.run.to_text())?;
    }
    Ok(())
}

/// A folder is pillion's by its workflow; without one, nothing may be in it that would be overwritten.
fn refuse_others(folder: &Path) -> Result<(), BadInput> {
    let workflow = fs::read(folder.join(WORKFLOW_FILE)).ok();
    let other = match workflow {
        Some(text) if text.windows(MARK.len()).any(|it| it == MARK.as_bytes()) => return Ok(()),
        Some(_) => WORKFLOW_FILE,
        None if folder.join(EXPERIMENT_FILE).exists() => EXPERIMENT_FILE,
        None if folder.join(JOBS).exists() => JOBS,
        None => return Ok(()),
    };
    let other = folder.join(other);
    let why = "something else is there, which is never overwritten; name another folder";
    Err(BadInput(format!("{}: {why}", other.display())))
}

fn write_new(file: &Path, text: &str) -> Result<(), Error> {
    match fs::read_to_string(file) {
        Ok(there) if there == text => Ok(()),
        _ => fs::write(file, text).map_err(Error::file(file)),
    }
}

fn workflow(runs: &[Planned], given_mib: Option<u32>) -> String {
    let runs = runs.iter().map(|planned| {
        let memory_mib = memory_mib(given_mib, &planned.run);
        format!("    {:?}: {memory_mib},\n", folder_name(planned))
    });
    let runs: String = runs.collect();
    let given = given_mib.map_or_else(String::new, |mib| format!(" --memory {mib}"));
    format!(
        r#"# The runs of {EXPERIMENT_FILE}, a job each; {MARK}
#
#   snakemake --cores all                    on this machine
#   snakemake --executor slurm --jobs 100    on those of a cluster that share this folder
#
# What is made is kept, so an interrupted workflow goes on where it was. Then, here:
#
#   pillion-lab show .                       what came of the runs
#   pillion-lab compare .                    how surely the variants differ
#
# Where jobs find pillion-lab, and what else they tell `pillion-lab run`:
#
#   snakemake --config pillion_lab=/opt/pillion-lab options="--kernel /opt/lab-kernel" ...

PILLION_LAB = config.get("pillion_lab", "pillion-lab")
OPTIONS = config.get("options", "")

# Each run, and the memory of its lab kernel in MiB.
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
        "{JOBS}/{{run}}.toml",
    output:
        "{{run}}/{MANIFEST_FILE}",
    threads: 1
    resources:
        mem_mb=lambda wildcards: RUNS[wildcards.run] + {BESIDE_MIB},
    shell:
        "{{PILLION_LAB}} run {{input:q}} --folder {{wildcards.run:q}} --jobs 1{given}"
        " {{OPTIONS}}"
"#
    )
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment::{Extent, of_text};

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
        let experiment = of_text("a.toml", text, Extent::Full).unwrap();
        workflow(&experiment.runs, given_mib)
    }

    #[test]
    fn what_somebody_else_put_there_stays() {
        let experiment = of_text("a.toml", TEXT, Extent::Full).unwrap();
        for theirs in [WORKFLOW_FILE, EXPERIMENT_FILE, JOBS] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join(theirs);
            fs::write(&file, "theirs").unwrap();
            let refused = write(&experiment, TEXT, None, folder.path()).unwrap_err();
            assert!(refused.is_bad_input(), "{refused}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            fs::remove_file(&file).unwrap();
            for memory in [None, Some(512)] {
                write(&experiment, TEXT, memory, folder.path()).unwrap();
            }
        }
    }

    #[test]
    fn one_that_was_broken_off_goes_on() {
        let experiment = of_text("a.toml", TEXT, Extent::Full).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let grid = || write(&experiment, TEXT, None, folder.path());
        let in_the_way = folder.path().join(JOBS);
        std::os::unix::fs::symlink("/nonexistent/jobs", &in_the_way).unwrap();
        grid().unwrap_err();
        assert!(folder.path().join(EXPERIMENT_FILE).is_file());
        fs::remove_file(&in_the_way).unwrap();
        grid().unwrap();
    }

    #[test]
    fn each_job_has_the_memory_of_its_run_and_all_have_what_is_given() {
        let own = workflow_of(TEXT, None);
        for line in ["\"small,seed=1\": 2048,\n", "\"large,seed=1\": 8192,\n"] {
            assert!(own.contains(line), "{own}");
        }
        assert!(!own.contains("--memory"), "{own}");
        let none = workflow_of(&TEXT.replace("memory = 2048", ""), None);
        assert!(none.contains("\"small,seed=1\": 1024,\n"), "{none}");
        let given = workflow_of(TEXT, Some(512));
        assert_eq!(given.matches("\": 512,\n").count(), 2, "{given}");
        assert!(given.contains(" --memory 512\"\n"), "{given}");
    }
}
