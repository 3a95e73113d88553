//! The layout of results: the files of a run's folder, what stands beside it, and the folders in which
//! `run`, `reproduce` and `grid` make runs. docs/lab.md describes the files of a run.
//!
//! ```text
//! STORE/EXPERIMENT/TIME/       of `run`; of `reproduce` STORE/EXPERIMENT/EXTENT/
//!     experiment.toml
//!     RUN/                     RUN.part while it is made, RUN.broken if it failed
//!         run.toml ... manifest.json
//!     RUN.digest-N.json        of `reproduce`
//! FOLDER/                      of `grid`: as above, with
//!     Snakefile
//!     jobs/RUN.toml
//! ```

use std::iter;
use std::path::{Path, PathBuf};

use crate::settings::experiment::{Extent, Planned};

/// The file with the run, as a file of its own.
pub const RUN_FILE: &str = "run.toml";
/// The file with the run's [`Summary`](super::Summary).
pub const SUMMARY_FILE: &str = "summary.json";
/// The file with what sender and receiver report of each group and each stream.
pub const STREAMS_FILE: &str = "streams.json";
/// The file with what pillion did for each group that it bundled.
pub const BUNDLING_FILE: &str = "bundling.json";
/// The file with what pillion's own path did, where it stood in for netem.
pub const PATH_FILE: &str = "path.json";
/// The file with every packet that was offered to the bottleneck's queue ([`crate::queue::Row`]).
pub const QUEUE_FILE: &str = "queue.csv.zst";
/// The same of the queue of the way back.
pub(super) const QUEUE_BACK_FILE: &str = "queue-back.csv.zst";
/// The file with every message ([`crate::traffic::Record`]).
pub const RECORDS_FILE: &str = "records.csv.zst";
/// The file with the trace at the senders.
pub const SENDER_TRACE: &str = "sender.pcap";
/// The file with the trace at the receiver.
pub const RECEIVER_TRACE: &str = "receiver.pcap";
/// The file that says what made the run, and when; it is written last.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The file with what the testbed was made of, and when.
pub(super) const LOG_FILE: &str = "log.txt";
/// The file with the kernel's parameters at each end.
pub(super) const SYSCTLS_FILE: &str = "sysctls.json";
/// The file with all devices and queue disciplines at the end.
pub(super) const DEVICES_FILE: &str = "devices.json";

/// The file with samples of a host's sockets.
pub(super) fn sockets_file(host: &str) -> String {
    format!("sockets-{host}.csv.zst")
}

/// The file with samples of a host's bundled connections.
pub(super) fn flows_file(host: &str) -> String {
    format!("flows-{host}.csv.zst")
}

/// The end of the name of a folder that is not whole.
pub const PART: &str = "part";
/// The end of the name of a folder whose run failed; a file of that name in it says why.
pub const BROKEN: &str = "broken";

/// The experiment's file in the folder of one making of it.
pub const EXPERIMENT_FILE: &str = "experiment.toml";
/// The workflow's file of a grid; Snakemake looks for it by this name.
pub const WORKFLOW_FILE: &str = "Snakefile";
/// The folder of a grid with the file of each run.
pub(crate) const JOBS: &str = "jobs";

/// The folder of an experiment's runs to an extent, as `reproduce` makes them.
pub(crate) fn extent_folder(store: &Path, experiment: &str, extent: Extent) -> PathBuf {
    let part = match extent {
        Extent::Quick => "quick",
        Extent::Default => "default",
        Extent::Full => "full",
    };
    store.join(experiment).join(part)
}

/// The name of a run's folder.
#[must_use]
pub fn folder_name(planned: &Planned) -> &str {
    match planned.name.as_str() {
        "" => "run",
        name => name,
    }
}

/// The end of the name of a digest's file; another one whenever what is kept of a run changes.
const DIGEST_END: &str = ".digest-15.json";

/// The file with the digest of a run in this folder.
#[must_use]
pub(crate) fn digest_file(run: &Path) -> PathBuf {
    let mut file = run.to_owned().into_os_string();
    file.push(DIGEST_END);
    file.into()
}

/// Where what there is of a run is kept that failed: beside its place, by the first name that is free.
pub(crate) fn place_of_broken(target: &Path) -> PathBuf {
    let more = (2..).map(|number| format!("{BROKEN}-{number}"));
    let names = iter::once(BROKEN.to_owned()).chain(more);
    let mut places = names.map(|name| beside(target, &name));
    let free = places.find(|path| path.symlink_metadata().is_err());
    free.unwrap_or_else(|| beside(target, BROKEN))
}

pub(super) fn beside(target: &Path, addition: &str) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(addition);
    target.with_file_name(name)
}
