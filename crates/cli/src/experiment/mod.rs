//! Files of experiments; docs/experiments.md describes every key.

mod bottleneck;
mod embed;
mod emulation;
mod expand;
mod hosts;
mod keys;
mod measure;
mod mechanisms;
mod options;
mod run;
mod streams;

use std::path::Path;

use pillion_lab::experiment::Run;
use toml::de::DeTable;

use crate::toml_file::{self, Mistake};
use pillion_settings::BadInput;

/// What such a file says.
#[derive(Debug)]
pub struct Experiment {
    /// In a few words, what it is about.
    pub title: Option<String>,
    /// All runs, in the order in which they are to be made.
    pub runs: Vec<Planned>,
}

/// One of its runs.
#[derive(Debug)]
pub struct Planned {
    /// What it differs in from the others, as in `plain,loss=2,seed=1`.
    pub name: String,
    /// The same run alone, as a file of its own.
    pub text: String,
    /// What it is.
    pub run: Run,
}

/// Reads an experiment, and expands it to its runs.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load(path: &Path) -> Result<Experiment, BadInput> {
    let folder = path.parent().unwrap_or(Path::new(""));
    toml_file::load(path, "docs/experiments.md", |document, mistakes| {
        read(document, folder, mistakes)
    })
}

fn read(document: &DeTable, folder: &Path, mistakes: &mut Vec<Mistake>) -> Experiment {
    let mut title = None;
    let seeds = expand::seeds(document, mistakes);
    let Ok(seeds) = DeTable::parse(&seeds) else {
        unreachable!("a list of numbers is TOML");
    };
    let expanded = expand::expand(document, seeds.get_ref(), folder, mistakes);
    let runs = expanded.into_iter().filter_map(|expanded| {
        let (run, called) = run::read(&expanded.document, mistakes)?;
        title = called;
        Some(Planned {
            name: expanded.name,
            text: expanded.text,
            run,
        })
    });
    let runs = runs.collect();
    Experiment { title, runs }
}

#[cfg(test)]
mod tests;
