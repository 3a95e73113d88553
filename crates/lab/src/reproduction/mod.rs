//! The published experiments that come with pillion, and how what was run of them is judged.

mod digest;
mod fairness;
mod row;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use pillion_cli::settings::BadInput;

use crate::Error;
use crate::analysis::reproduction::{DigestedRun, Row};
use crate::run::extent_folder;
use crate::settings::experiment::{self, Experiment, Extent, Planned, Selector};
use crate::store::{Maker, Making};

pub use digest::digest;
pub use row::row;

/// An experiment that was published.
#[derive(Debug, Clone, Copy)]
pub struct PublishedExperiment {
    /// The name by which the experiment is asked for.
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

/// All of them, in the order of the report.
pub const PUBLISHED: &[PublishedExperiment] = published![
    "dpifl",
    "uniform-loss",
    "redundancy-level",
    "tcp-fairness",
    "n-vs-n",
    "application-limited",
    "thin-discrimination",
    "clustering",
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
    "todays-queues",
];

impl PublishedExperiment {
    /// What is to be run of it.
    ///
    /// # Errors
    /// [`BadInput`], which a test rules out.
    pub fn load(&self, extent: Extent) -> Result<Experiment, BadInput> {
        experiment::of_text(&format!("{}.toml", self.name), self.text, extent)
    }
}

/// An experiment that is to be reproduced, and where its runs are.
pub struct Chosen {
    /// The name under which runs and figures are kept.
    pub name: String,
    /// The text of the experiment's file.
    pub text: String,
    /// The experiment to the extent that was asked for: what is judged, as far as it is there.
    pub experiment: Experiment,
    /// Of its runs, those that are to be made.
    pub to_make: Vec<Planned>,
    /// Where its runs are, or are to be made.
    pub making: Making,
}

impl Chosen {
    /// A published experiment by its name, or a file that reproduces something by its path; with
    /// the folder in `store` that is for its runs of this extent.
    ///
    /// # Errors
    /// [`BadInput`] where there is no such experiment, where the file has mistakes, or where a
    /// published number in it says nothing that can be judged.
    pub fn find(name: &str, extent: Extent, store: &Path) -> Result<Self, BadInput> {
        let path = Path::new(name);
        let published = PUBLISHED.iter().find(|it| it.name == name);
        let (name, place, text, experiment) = match published {
            Some(it) => {
                let text = it.text.to_owned();
                (name.to_owned(), name.to_owned(), text, it.load(extent)?)
            }
            None if path.is_file() => {
                let experiment = experiment::load_part(path, extent)?;
                let text = fs::read_to_string(path)
                    .map_err(|error| BadInput(format!("{name}: {error}")))?;
                let stem = path.file_stem().unwrap_or_default().to_string_lossy();
                // Of a published experiment by that name, its runs must not take the place.
                let place = format!("{stem}.toml");
                (stem.into_owned(), place, text, experiment)
            }
            None => {
                let known: Vec<_> = PUBLISHED.iter().map(|it| it.name).collect();
                return Err(BadInput(format!(
                    "no published experiment, and no file, is called `{name}`; there are {}",
                    known.join(", ")
                )));
            }
        };
        // What says nothing to be judged is told before hours of work.
        row(&name, &experiment, Vec::new())?;
        Ok(Self {
            making: Making::of(&extent_folder(store, &place, extent)),
            name,
            text,
            to_make: experiment.runs.clone(),
            experiment,
        })
    }

    /// Has only those runs made that one of `wanted` takes.
    pub fn narrow(&mut self, wanted: &[Selector]) {
        self.to_make
            .retain(|planned| wanted.iter().any(|it| it.takes(&planned.name)));
    }

    /// Virtual time in seconds that the runs to be made send, all together.
    #[must_use]
    pub fn sending_s(&self) -> f64 {
        let runs = self.to_make.iter();
        let all: Duration = runs.map(|planned| planned.plan.duration).sum();
        all.as_secs_f64()
    }

    /// Keeps what is judged of a run that was just made, so that it need not be read again. What
    /// keeps it from being read is said by [`Self::judged`].
    pub fn keep_digest(&self, planned: &Planned) {
        if let Ok(Some(run)) = self.making.made(planned) {
            let _ = digest(&run, planned);
        }
    }

    /// What was run of it, judged; and what made those runs.
    ///
    /// # Errors
    /// As [`digest`].
    pub fn judged(&self) -> Result<(Row, BTreeSet<Maker>), Error> {
        let (mut digested, mut makers) = (Vec::new(), BTreeSet::new());
        for planned in &self.experiment.runs {
            if let Some(run) = self.making.made(planned)? {
                let read = || Ok((run.maker()?, digest(&run, planned)?));
                let (maker, digest) = read().map_err(|why| run.damaged(why))?;
                makers.insert(maker);
                let name = planned.name.clone();
                let duration_s = planned.plan.duration.as_secs_f64();
                digested.push(DigestedRun {
                    name,
                    duration_s,
                    digest,
                });
            }
        }
        let row = row(&self.name, &self.experiment, digested)?;
        Ok((row, makers))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_round_trips_of_web_sites_are_those_of_the_list() {
        let list = include_str!("../../../../experiments/website-rtt.csv");
        let values: Vec<&str> = list.lines().skip(1).collect();
        let values = format!("\"values:{}\"", values.join(","));
        let row = PUBLISHED.iter().find(|it| it.name == "website-rtt");
        assert!(row.unwrap().text.contains(&values));
    }

    #[test]
    fn reproductions_bundle_as_published() {
        for published in PUBLISHED {
            for run in published.load(Extent::Full).unwrap().runs {
                let mut bundled = run.plan.streams.iter().filter_map(|it| it.bundling);
                let as_published = bundled.all(|how| how.options.published);
                assert!(as_published, "{}: {}", published.name, run.name);
            }
        }
    }

    #[test]
    fn each_file_is_known_and_sound_to_any_extent() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/published");
        let files = fs::read_dir(folder).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.collect();
        files.sort();
        let mut known: Vec<String> = PUBLISHED
            .iter()
            .map(|it| format!("{}.toml", it.name))
            .collect();
        known.sort();
        assert_eq!(files, known);
        for published in PUBLISHED {
            let runs = [Extent::Quick, Extent::Default, Extent::Full].map(|extent| {
                let experiment = published.load(extent).unwrap();
                assert!(row(published.name, &experiment, Vec::new()).is_ok());
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
