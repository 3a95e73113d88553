//! The published experiments that are part of pillion, and the judgement of their runs.

mod fairness;
mod result;
mod summary_cache;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use pillion_cli::settings::BadInput;

use crate::Error;
use crate::analysis::reproduction::{ExperimentResult, MeasuredRun};
use crate::run::scale_folder;
use crate::settings::experiment::{self, Experiment, PlannedRun, RunScale, Selector};
use crate::store::{BatchFolder, Provenance};

pub use result::assemble;
pub use summary_cache::load_measures;

/// A published experiment.
#[derive(Debug, Clone, Copy)]
pub struct PublishedExperiment {
    /// The name for the command line.
    pub name: &'static str,
    /// The text of the experiment's file.
    pub text: &'static str,
}

macro_rules! published {
    ($($name:literal,)*) => {
        &[$(PublishedExperiment {
            name: $name,
            text: include_str!(concat!("../../../../experiments/published/", $name, ".toml")),
        }),*]
    };
}

/// All published experiments, in the order of the report.
pub const PUBLISHED: &[PublishedExperiment] = published![
    "dpifl",
    "uniform-loss",
    "redundancy-level",
    "tcp-fairness",
    "n-vs-n",
    "application-limited",
    "thin-discrimination",
    "clustering",
    "greedy-rtt",
    "retrans-collapse",
    "duration",
    "queue-disciplines",
    "impact",
    "skype",
    "ssh",
    "rto-restart",
    "game-server",
    "traffic-table",
    "website-rtt",
    "rate-control",
    "at-scale",
    "bursty-loss",
    "current-queues",
];

impl PublishedExperiment {
    /// Returns the experiment with the runs of this scale.
    ///
    /// # Errors
    ///
    /// [`BadInput`]; a test excludes it.
    pub fn load(&self, scale: RunScale) -> Result<Experiment, BadInput> {
        experiment::of_text(&format!("{}.toml", self.name), self.text, scale)
    }
}

/// An experiment to reproduce, and the folder of its runs.
pub struct SelectedExperiment {
    /// The name of runs and figures.
    pub name: String,
    /// The text of the experiment's file.
    pub text: String,
    /// The experiment at the requested scale. All its existing runs are judged.
    pub experiment: Experiment,
    /// The runs to make, if they do not exist.
    pub requested_runs: Vec<PlannedRun>,
    /// The folder of the experiment's runs.
    pub batch: BatchFolder,
}

impl SelectedExperiment {
    /// Finds a published experiment by name, or a file with `[reproduction]` by path. Its runs have
    /// a folder in `store` for this scale.
    ///
    /// # Errors
    ///
    /// [`BadInput`] if no such experiment exists, the file has mistakes, or a claim cannot be
    /// judged.
    pub fn find(name: &str, scale: RunScale, store: &Path) -> Result<Self, BadInput> {
        let path = Path::new(name);
        let published = PUBLISHED.iter().find(|it| it.name == name);
        let (name, folder_name, text, experiment) = match published {
            Some(it) => {
                let text = it.text.to_owned();
                (name.to_owned(), name.to_owned(), text, it.load(scale)?)
            }
            None if path.is_file() => {
                let experiment = experiment::load_part(path, scale)?;
                let text = fs::read_to_string(path)
                    .map_err(|error| BadInput(format!("{name}: {error}")))?;
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                // A published experiment of the same name has another folder.
                let folder_name = format!("{stem}.toml");
                (stem.into_owned(), folder_name, text, experiment)
            }
            None => {
                let names: Vec<_> = PUBLISHED.iter().map(|it| it.name).collect();
                return Err(BadInput(format!(
                    "unknown experiment `{name}`: expected a file, or one of {}",
                    names.join(", ")
                )));
            }
        };
        // Report claims that cannot be judged now, not after hours of runs.
        assemble(&name, &experiment, Vec::new())?;
        Ok(Self {
            batch: BatchFolder::at(&scale_folder(store, &folder_name, scale)),
            name,
            text,
            requested_runs: experiment.runs.clone(),
            experiment,
        })
    }

    /// Drops requested runs that match none of `selectors`.
    pub fn retain_requested(&mut self, selectors: &[Selector]) {
        self.requested_runs
            .retain(|planned| selectors.iter().any(|it| it.matches(&planned.name)));
    }

    /// Returns the total sending time of the runs to make, in seconds of virtual time.
    #[must_use]
    pub fn sending_time_s(&self) -> f64 {
        let runs = self.requested_runs.iter();
        let all: Duration = runs.map(|planned| planned.plan.duration).sum();
        all.as_secs_f64()
    }

    /// Caches the measures of a new run. [`Self::judge`] reports errors.
    pub fn cache_measures(&self, planned: &PlannedRun) {
        if let Ok(Some(run)) = self.batch.finished_run(planned) {
            let _ = load_measures(&run, planned);
        }
    }

    /// Judges the existing runs, and returns what made them.
    ///
    /// # Errors
    ///
    /// As [`load_measures`].
    pub fn judge(&self) -> Result<(ExperimentResult, BTreeSet<Provenance>), Error> {
        let (mut measured_runs, mut provenances) = (Vec::new(), BTreeSet::new());
        for planned in &self.experiment.runs {
            if let Some(run) = self.batch.finished_run(planned)? {
                let read = || Ok((run.provenance()?, load_measures(&run, planned)?));
                let (provenance, measures) = read().map_err(|reason| run.damaged(reason))?;
                provenances.insert(provenance);
                let name = planned.name.clone();
                let duration_s = planned.plan.duration.as_secs_f64();
                measured_runs.push(MeasuredRun {
                    name,
                    duration_s,
                    measures,
                });
            }
        }
        let result = assemble(&self.name, &self.experiment, measured_runs)?;
        Ok((result, provenances))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::settings::experiment::Claim;

    #[test]
    fn website_rtts_match_list() {
        let list = include_str!("../../../../experiments/website-rtt.csv");
        let values: Vec<String> = list.lines().skip(1).map(|it| format!("{it}ms")).collect();
        let values = format!("\"values:{}\"", values.join(","));
        let result = PUBLISHED.iter().find(|it| it.name == "website-rtt");
        assert!(result.unwrap().text.contains(&values));
    }

    #[test]
    fn reproductions_bundle_as_published() {
        for published in PUBLISHED {
            for run in published.load(RunScale::Full).unwrap().runs {
                let mut bundled = run.plan.streams.iter().filter_map(|it| it.bundling);
                let as_published = bundled.all(|how| how.options.published);
                assert!(as_published, "{}: {}", published.name, run.name);
            }
        }
    }

    #[test]
    fn published_bundles_do_not_depend_on_defaults() {
        let files = std::fs::read_dir("../../experiments/published").expect("the folder exists");
        let texts = files.map(|file| std::fs::read_to_string(file.expect("a file").path()));
        let mut bundles = 0;
        for line in texts.flat_map(|it| {
            it.expect("a text")
                .lines()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        }) {
            let Some((_, keys)) = line.split_once("bundle = { published = true,") else {
                assert!(!line.contains("bundle = true"), "{line}");
                continue;
            };
            for key in ["level", "max-packets", "reaction", "loss-rule"] {
                assert!(keys.contains(&format!(" {key} = ")), "{key}: {line}");
            }
            bundles += 1;
        }
        assert!(bundles > 20, "{bundles}");
    }

    #[test]
    fn other_cases_of_published_claims_are_run_at_each_scale() {
        for published in PUBLISHED {
            // The full scale has all runs.
            for scale in [RunScale::Quick, RunScale::Default] {
                let experiment = published.load(scale).unwrap();
                let reproduction = experiment.reproduction.unwrap();
                let exists = |runs: &Selector, baseline: &Selector| {
                    let mut names = experiment.runs.iter().map(|run| &run.name);
                    names.any(|name| runs.matches(name) && baseline.matches(name))
                };
                let all_exist = |claim: &Claim, baseline: &Selector| {
                    let mut measured = claim.measured();
                    measured.all(|(runs, _)| exists(&runs, baseline))
                };
                let baseline = &reproduction.baseline;
                for claim in &reproduction.claims {
                    let (Some(other), Some(against)) = (claim.in_other_case(), &claim.against)
                    else {
                        continue;
                    };
                    let of_other = baseline.without_keys_of(&against.runs);
                    assert!(
                        !all_exist(claim, baseline) || all_exist(&other, &of_other),
                        "{} at {scale:?}: `{}` needs the runs of its other case, `{}`",
                        published.name,
                        claim.description,
                        against.runs
                    );
                }
            }
        }
    }

    /// A claim that also held in its other case is recorded as a self-check, and must be one in its
    /// file.
    #[test]
    fn recorded_claims_have_the_kinds_of_their_files() {
        let recorded = include_str!("../../../../docs/evidence/claims.csv");
        let mut reader = csv::ReaderBuilder::new()
            .comment(Some(b'#'))
            .from_reader(recorded.as_bytes());
        let lines = reader.deserialize::<BTreeMap<String, String>>();
        let recorded: BTreeMap<_, _> = lines
            .map(|line| {
                let line = line.unwrap();
                let claim = ["experiment", "description", "source"].map(|it| line[it].clone());
                (claim, line["kind"].clone())
            })
            .collect();
        for published in PUBLISHED {
            let experiment = published.load(RunScale::Quick).unwrap();
            let result = assemble(published.name, &experiment, Vec::new()).unwrap();
            for claim in &result.reproduction.claims {
                let name = published.name.to_owned();
                let key = [name, claim.description.clone(), claim.source.clone()];
                let kind = recorded.get(&key).map(String::as_str);
                assert_eq!(kind, Some(claim.kind().as_str()), "{key:?}");
            }
        }
    }

    #[test]
    fn published_files_are_listed_and_valid_at_each_scale() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/published");
        let files = fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.collect();
        files.sort();
        let mut names: Vec<String> = PUBLISHED
            .iter()
            .map(|it| format!("{}.toml", it.name))
            .collect();
        names.sort();
        assert_eq!(files, names);
        for published in PUBLISHED {
            let runs = [RunScale::Quick, RunScale::Default, RunScale::Full].map(|scale| {
                let experiment = published.load(scale).unwrap();
                assert!(assemble(published.name, &experiment, Vec::new()).is_ok());
                experiment.runs.len()
            });
            assert!(
                runs.is_sorted() && runs[0] > 0,
                "{}: {runs:?}",
                published.name
            );
        }
    }
}
