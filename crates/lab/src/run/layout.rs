//! The layout of results: the files in and next to a run's folder, and the folders in which `run`,
//! `reproduce` and `grid` make runs. docs/lab/overview.md describes the files of a run.
//!
//! ```text
//! STORE/EXPERIMENT/TIME/       `run`; for `reproduce` STORE/EXPERIMENT/SCALE/
//!     experiment.toml
//!     RUN/                     RUN.part until it is complete, RUN.broken if it failed
//!         run.toml ... manifest.json
//!     RUN.cache-N.json         only `reproduce`
//! FOLDER/                      `grid`: as above, with
//!     Snakefile
//!     jobs/RUN.toml
//! ```

use std::iter;
use std::path::{Path, PathBuf};

use crate::settings::experiment::{PlannedRun, RunScale};

/// The file with the run as an experiment of its own.
pub const RUN_FILE: &str = "run.toml";
/// The file with the run's [`Summary`](super::Summary).
pub const SUMMARY_FILE: &str = "summary.json";
/// The file with the reports of sender and receiver, per group and stream.
pub const STREAMS_FILE: &str = "streams.json";
/// The file with pillion's totals per bundled group.
pub const BUNDLING_FILE: &str = "bundling.json";
/// The file with the report of pillion's own path, if it replaced netem.
pub const PATH_FILE: &str = "path.json";
/// The file with every packet of the bottleneck's queue ([`crate::queue::Row`]).
pub const QUEUE_FILE: &str = "queue.csv.zst";
/// The same for the queue of the way back.
pub(super) const QUEUE_BACK_FILE: &str = "queue-back.csv.zst";
/// The file with every message ([`crate::traffic::Record`]).
pub const RECORDS_FILE: &str = "records.csv.zst";
/// The trace at the senders.
pub const SENDER_TRACE: &str = "sender.pcap";
/// The trace at the receiver.
pub const RECEIVER_TRACE: &str = "receiver.pcap";
/// The file with version, kernel and times of the run; it is written last.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The file with every set-up command and its time.
pub(super) const LOG_FILE: &str = "log.txt";
/// The file with the sysctls of each end.
pub(super) const SYSCTLS_FILE: &str = "sysctls.json";
/// The file with all devices and queue disciplines at the end of the run.
pub(super) const DEVICES_FILE: &str = "devices.json";

/// Returns the name of the file with samples of a host's sockets.
pub(super) fn sockets_file(host: &str) -> String {
    format!("sockets-{host}.csv.zst")
}

/// Returns the name of the file with samples of a host's bundled connections.
pub(super) fn flows_file(host: &str) -> String {
    format!("flows-{host}.csv.zst")
}

/// The suffix of an incomplete run's folder.
pub const PARTIAL_SUFFIX: &str = "part";
/// The suffix of a failed run's folder, and the name of the file in it with the error.
pub const FAILED_SUFFIX: &str = "broken";

/// The experiment's file in the folder of a batch.
pub const EXPERIMENT_FILE: &str = "experiment.toml";
/// The workflow file of a grid, by the name that Snakemake expects.
pub const WORKFLOW_FILE: &str = "Snakefile";
/// The folder of a grid with one file per run.
pub(crate) const JOBS_FOLDER: &str = "jobs";

/// Returns the folder in which `reproduce` makes an experiment's runs at a scale.
pub(crate) fn scale_folder(store: &Path, experiment: &str, scale: RunScale) -> PathBuf {
    let part = match scale {
        RunScale::Quick => "quick",
        RunScale::Default => "default",
        RunScale::Full => "full",
    };
    store.join(experiment).join(part)
}

/// Returns the name of a run's folder.
#[must_use]
pub fn folder_name(planned: &PlannedRun) -> &str {
    match planned.name.as_str() {
        "" => "run",
        name => name,
    }
}

/// The suffix of a cache file. Its number changes with the cached data.
const CACHE_SUFFIX: &str = ".cache-16.json";

/// Returns the cache file of the run in this folder.
#[must_use]
pub(crate) fn summary_cache_file(run: &Path) -> PathBuf {
    let mut file = run.to_owned().into_os_string();
    file.push(CACHE_SUFFIX);
    file.into()
}

/// Returns the path for a failed run: next to its target, with the first free suffix.
pub(crate) fn failed_path(target: &Path) -> PathBuf {
    let more = (2..).map(|number| format!("{FAILED_SUFFIX}-{number}"));
    let names = iter::once(FAILED_SUFFIX.to_owned()).chain(more);
    let mut candidates = names.map(|name| with_suffix(target, &name));
    let free = candidates.find(|path| path.symlink_metadata().is_err());
    free.unwrap_or_else(|| with_suffix(target, FAILED_SUFFIX))
}

pub(super) fn with_suffix(target: &Path, addition: &str) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(addition);
    target.with_file_name(name)
}
