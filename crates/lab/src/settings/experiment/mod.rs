//! Experiment files; docs/lab/experiments.md describes every key.
//!
//! The testbed is that of the papers (LCN 2015, section IV.B; thesis, chapter 3): sending hosts, a
//! bridge, a router with a rate and a queue, an emulator with delay and loss, a receiver.

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

/// Losses of one direction, after the bottleneck.
pub use crate::path::Loss;
pub use bottleneck::{Bottleneck, Bottlenecks, Discipline, Limit, Shaper};
pub use demo::DemoOptions;
pub use mechanism::{Mechanism, Mechanisms, Setting};
pub use path::{Emulation, Impairments, Path, PathDirection, PathOverride, Reorder, RoundTrips};
pub use plan::{
    Contradiction, Plan, ReceivingHost, SOURCE_PORTS, SendingHost, Streams, source_port,
};
pub use reproduction::{
    Against, Cause, Cell, Claim, ClaimKind, Curve, Expected, FigureKind, Heading, Line,
    PublishedCell, PublishedTable, Reproduction, RunScale, Selection, Selector, Sketch, Statement,
    Tolerance,
};
pub use run::{Engine, Group, Host, Kernel, Measure, Receiver, Run};
pub use values::{Name, Share};

pub use crate::settings::Rate;
use pillion_cli::settings::{BadInput, document};

use crate::RunKey;

/// Kernel parameters by name, as in `net.ipv4.tcp_retrans_collapse`.
pub type Sysctls = BTreeMap<String, String>;

/// Contents of an experiment file.
#[derive(Debug)]
pub struct Experiment {
    /// Subject of the experiment, one line.
    pub title: Option<String>,
    /// All runs in their order.
    pub runs: Vec<PlannedRun>,
    /// Claims, tables and figures to reproduce.
    pub reproduction: Option<Reproduction>,
}

/// One run of an experiment.
#[derive(Debug, Clone)]
pub struct PlannedRun {
    /// Name of the run, as in `plain,loss=2,seed=1`.
    pub name: RunKey,
    /// Run with the keys of its file.
    pub run: Run,
    /// Resolved run: hosts, streams and paths.
    pub plan: Plan,
}

/// Loads an experiment and expands it to its runs.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load(path: &FilePath) -> Result<Experiment, BadInput> {
    load_part(path, RunScale::Full)
}

/// Loads the runs of an experiment that `[reproduction]` selects for this scale.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn load_part(path: &FilePath, scale: RunScale) -> Result<Experiment, BadInput> {
    let folder = path.parent().unwrap_or(FilePath::new(""));
    document::load(path, MANUAL, |document, mistakes| {
        read::experiment(document, folder, scale, mistakes)
    })
}

/// Document that describes every key.
const MANUAL: &str = "docs/lab/experiments.md";

/// Loads the selected runs of an experiment that is part of pillion. It cannot refer to files.
///
/// # Errors
/// [`BadInput`] with a line for each mistake.
pub fn of_text(name: &str, text: &str, scale: RunScale) -> Result<Experiment, BadInput> {
    document::load_bytes(name, text.into(), MANUAL, |document, mistakes| {
        read::experiment(document, FilePath::new(""), scale, mistakes)
    })
}

/// Loads an experiment of one run, such as the file in a run's folder.
///
/// # Errors
/// [`BadInput`] with a line for each mistake, or if there are several runs.
pub fn load_run(path: &FilePath) -> Result<PlannedRun, BadInput> {
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
