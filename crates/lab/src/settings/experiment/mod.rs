//! Files of experiments; docs/experiments.md describes every key.
//!
//! The testbed is that of the papers (LCN 2015, section IV.B; thesis, chapter 3): sending hosts,
//! a bridge, a router with a rate and a queue, an emulator with delay and loss, a receiver.

mod bottleneck;
mod check;
mod demo;
mod expand;
mod expression;
mod mechanism;
mod path;
mod plan;
mod read;
mod reproduction;
mod run;
mod values;

use std::collections::BTreeMap;
use std::path::Path as FilePath;

/// Which packets of one direction are lost, behind the bottleneck.
pub use crate::path::Loss;
pub use bottleneck::{Bottleneck, Bottlenecks, Discipline, Limit, Shaper};
pub use check::Contradiction;
pub use demo::Demo;
pub use mechanism::{Mechanism, Mechanisms, Setting};
pub use path::{Disturbance, Emulation, OwnWay, Path, PathDirection, Reorder, RoundTrips};
pub use plan::{Plan, ReceivingHost, SOURCE_PORTS, SendingHost, Streams, source_port};
pub use reproduction::{
    Cause, Cell, Claim, Curve, Expected, Extent, FigureKind, Heading, Line, PublishedCell,
    PublishedTable, Reproduction, Selection, Selector, Sketch, Statement, Tolerance,
};
pub use run::{Engine, Group, Host, Kernel, Measure, Receiver, Run};
pub use values::{Name, Share};

pub use crate::settings::Rate;
use pillion_cli::settings::{BadInput, document};

use crate::RunKey;

/// Kernel parameters by name, as in `net.ipv4.tcp_retrans_collapse`.
pub type Sysctls = BTreeMap<String, String>;

/// What an experiment's file says.
#[derive(Debug)]
pub struct Experiment {
    /// In a few words, what it is about.
    pub title: Option<String>,
    /// All runs, in the order in which they are to be made.
    pub runs: Vec<Planned>,
    /// What it reproduces, if it does.
    pub reproduction: Option<Reproduction>,
}

/// One run of an experiment.
#[derive(Debug, Clone)]
pub struct Planned {
    /// What it differs in from the others, as in `plain,loss=2,seed=1`.
    pub name: RunKey,
    /// The run, in the words of its file.
    pub run: Run,
    /// What the run is, worked out.
    pub plan: Plan,
}

/// Reads an experiment, and expands it to its runs.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load(path: &FilePath) -> Result<Experiment, BadInput> {
    load_part(path, Extent::Full)
}

/// Reads an experiment as far as it is to be run, which its `[reproduction]` says.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load_part(path: &FilePath, extent: Extent) -> Result<Experiment, BadInput> {
    let folder = path.parent().unwrap_or(FilePath::new(""));
    document::load(path, MANUAL, |document, mistakes| {
        read::experiment(document, folder, extent, mistakes)
    })
}

/// The file that describes every key.
const MANUAL: &str = "docs/experiments.md";

/// Reads an experiment that comes with pillion, as far as it is to be run; it has no tables in
/// files of their own.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn of_text(name: &str, text: &str, extent: Extent) -> Result<Experiment, BadInput> {
    document::load_bytes(name, text.into(), MANUAL, |document, mistakes| {
        read::experiment(document, FilePath::new(""), extent, mistakes)
    })
}

/// Reads an experiment of one run, as a run's own file is.
///
/// # Errors
/// [`BadInput`] with a line for each mistake, or that it has more runs.
pub fn load_run(path: &FilePath) -> Result<Planned, BadInput> {
    let mut runs = load(path)?.runs;
    match (runs.pop(), runs.len()) {
        (Some(planned), 0) => Ok(planned),
        (_, others) => Err(BadInput(format!(
            "{}: {} runs; `pillion-lab run` makes more than one",
            path.display(),
            others + 1
        ))),
    }
}

#[cfg(test)]
mod mistake_tests;
#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod varied_tests;
