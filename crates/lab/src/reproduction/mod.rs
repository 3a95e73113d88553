//! The published experiments that come with pillion, and how what was run of them is judged.

mod chosen;
mod digest;
mod drops;
mod due;
mod fairness;
mod row;

use crate::settings::experiment::{self, Experiment, Extent};
use pillion_cli::settings::BadInput;

pub use chosen::Chosen;
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
