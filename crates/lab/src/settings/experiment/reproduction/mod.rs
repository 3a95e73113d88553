//! What a published experiment's file says beside the runs: the published numbers and figures, and
//! which runs are made for them.

mod figure;
pub(super) mod mistakes;
mod published;
mod table;
mod tolerance;

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Deserializer};

use crate::Part;

use crate::settings::numbers;
use pillion_cli::settings::times::Length;

pub use crate::Selector;
pub use figure::{Drawn, Expected, FigureKind, Series};
pub use published::Published;
pub(crate) use table::measure as cell_measure;
pub use table::{Cell, Heading, Line, PublishedTable};
pub use tolerance::Tolerance;

/// How much of an experiment is run to reproduce it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    /// A first look, within minutes.
    Quick,
    /// What each published figure takes, with intervals over seeds.
    #[default]
    Default,
    /// All that the papers varied.
    Full,
}

/// What is reproduced.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reproduction {
    /// Where it was published, as in `LCN 2015, figure 4`.
    pub source: String,
    /// What was found then, in a sentence.
    pub finding: String,
    /// No paper has it: what is judged are expectations of its own, and counted apart.
    pub beyond: bool,
    /// What runs on the kernel as it is have in their names, as in `kernel=today`.
    pub today: Selector,
    /// What else may have been otherwise then: of each cause, what its runs have in their names
    /// in the place of what those of today have, and what it is.
    pub causes: Vec<Cause>,
    /// Of extents but the full one, which runs are made.
    pub selection: BTreeMap<Extent, Selection>,
    /// Numbers to be met.
    pub published: Vec<Published>,
    /// Tables to be filled.
    pub table: Vec<PublishedTable>,
    /// Figures to be drawn.
    pub figure: Vec<Drawn>,
}

/// A reason for which today's result may differ from the published one; runs show whether it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cause {
    /// The runs in which the reason is taken away.
    pub runs: Selector,
    /// What was otherwise, as in `losses are recovered from as in Linux 3.16`.
    pub is: String,
}

/// A part of an experiment's runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Selection {
    /// How long runs last, in place of the experiment's.
    pub duration: Option<Length>,
    /// Seeds, in place of the experiment's.
    #[serde(deserialize_with = "numbers::some_repetitions")]
    pub repetitions: Option<u32>,
    /// Of what is varied, the values to be run, as in `loss=10`; of a key of which none is named,
    /// all are.
    #[serde(deserialize_with = "parts")]
    pub only: Vec<Part>,
    /// Of these, the values that are run as today alone, and of no cause: no number is published
    /// of them.
    #[serde(deserialize_with = "parts")]
    pub only_today: Vec<Part>,
    /// Runs as today that are made as well, whatever `only` says.
    pub also: Vec<Selector>,
}

fn parts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Part>, D::Error> {
    let parts = Vec::<String>::deserialize(from)?;
    Ok(parts.iter().map(|part| part.as_str().into()).collect())
}
