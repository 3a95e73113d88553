//! One run: its testbed is built, its streams are sent, and all that was measured is written to a
//! folder, which docs/lab.md describes file by file.

mod counts;
mod folder;
mod layout;
mod recording;
mod streams;
mod summary;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use crate::records::Writer;
use crate::settings::experiment::{Engine, Kernel, Plan, Run};

pub use counts::WayCounts;
pub use layout::{
    BROKEN, BUNDLING_FILE, EXPERIMENT_FILE, MANIFEST_FILE, PART, PATH_FILE, QUEUE_FILE,
    RECEIVER_TRACE, RECORDS_FILE, RUN_FILE, SENDER_TRACE, STREAMS_FILE, SUMMARY_FILE,
    WORKFLOW_FILE,
};
pub use recording::QueueSeen;
pub use streams::GroupBundled;
pub use summary::{GroupSummary, Summary};

use crate::capture::Capture;
use crate::testbed::{DEVICE, IN, Log, Node, OUT, TO_ROUTER, Testbed};
use crate::{Error, kernel_release};
use counts::{Listing, is_at_rest};
use folder::{Begin, Folder, Manifest};
use layout::{DEVICES_FILE, LOG_FILE, QUEUE_BACK_FILE, SYSCTLS_FILE};
pub(crate) use layout::{JOBS, digest_file, extent_folder, folder_name, place_of_broken};
use recording::QueueWatch;
use streams::{Bundling, Ended, Streams};
use summary::GroupTraffic;

/// By whom a run is made, and who is told how far it has come.
pub struct How<'a> {
    /// pillion's version, for the manifest.
    pub version: &'a str,
    /// The engine that makes the run.
    pub engine: Engine,
    /// What identifies the lab kernel; `None` on other kernels.
    pub lab_kernel: Option<String>,
    /// Whether pillion's own path stands between router and receiver even where the kernel has
    /// netem: it loses the same packets for the same seed, whatever the kernel.
    pub own_path: bool,
    /// Set to end the run early; what it has measured by then is not whole.
    pub stop: Arc<AtomicBool>,
    /// Is told of each stage of the run.
    pub progress: &'a dyn Fn(Stage),
}

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The testbed is being built.
    Building,
    /// The streams connect.
    Connecting,
    /// The streams send, for so long.
    Sending(Duration),
    /// The streams' last bytes are delivered, and the results are written.
    Ending,
}

/// Folders of the kernel's parameters that are kept of each end.
const PARAMETERS: [&str; 2] = ["/proc/sys/net/ipv4", "/proc/sys/net/core"];
/// Time between two looks whether packets still wait.
const SETTLE: Duration = Duration::from_millis(100);
/// Looks whether packets still wait, at most.
const LOOKS: usize = 600;

/// Makes a run, into a folder that does not exist yet. Meanwhile, and if it fails, the folder has
/// another name: [`PART`], [`BROKEN`].
///
/// # Errors
/// Any of [`Error`].
pub fn perform(run: &Run, folder: &Path, how: &How) -> Result<Summary, Error> {
    let plan = run.plan()?;
    let folder = Folder::begin(folder)?;
    let done = perform_in(&folder, run, &plan, how);
    match done.and_then(|summary| folder.keep().map(|()| summary)) {
        Ok(summary) => Ok(summary),
        Err(error) => {
            folder.give_up(&error);
            Err(error)
        }
    }
}

fn perform_in(folder: &Folder, run: &Run, plan: &Plan, how: &How) -> Result<Summary, Error> {
    if how.engine == Engine::Live && run.kernel != Kernel::default() {
        return Err(Error::Lacks {
            what: "a clock and timers of the run's choice (`kernel`)".to_owned(),
            kernel: kernel_release(),
        });
    }
    (how.progress)(Stage::Building);
    let begin = Begin::now();
    folder.write(RUN_FILE, &run.to_text())?;
    let log_file = folder.file(LOG_FILE);
    let log = Log::create(&log_file).map_err(Error::file(&log_file))?;
    let testbed = Testbed::build(plan, how.own_path, &log)?;
    let parameters: BTreeMap<&str, _> = testbed
        .endpoints()
        .map(|node| Ok((node.name.as_str(), parameters(node)?)))
        .collect::<Result<_, Error>>()?;
    folder.write_json(SYSCTLS_FILE, &parameters)?;

    let captures = plan.measure.traces.map(|snap| {
        let trace =
            |node, device, name: &str| Capture::start(node, device, snap, &folder.file(name));
        let sender = trace(&testbed.bridge, TO_ROUTER, SENDER_TRACE)?;
        let receiver = trace(&testbed.receiver, DEVICE, RECEIVER_TRACE)?;
        Ok::<_, Error>([sender, receiver])
    });
    let captures = captures.transpose()?;
    let watched = [
        (OUT, QUEUE_FILE, true),
        (IN, QUEUE_BACK_FILE, plan.has_queue_back()),
    ];
    let queues = watched.map(|(device, name, is_there)| {
        let watch = || QueueWatch::start(&testbed, device, &folder.file(name));
        (plan.measure.queue && is_there).then(watch).transpose()
    });
    let [queue, queue_back] = queues;
    let queues = [queue?, queue_back?];
    let streams = Streams::listen(plan, &testbed, Arc::clone(&how.stop))?;
    let mut bundlings = Vec::new();
    for (number, group) in plan.streams.iter().enumerate() {
        let host = &testbed.hosts[group.host];
        bundlings.extend(Bundling::start(group, host, streams::port(number))?);
    }
    let samplers = recording::sample(plan, &testbed, &bundlings, folder)?;
    log.say("the streams connect");
    (how.progress)(Stage::Connecting);
    let ended = streams.send(plan, &testbed, || {
        log.say("the streams send");
        (how.progress)(Stage::Sending(plan.duration));
    })?;
    log.say("the streams have ended");
    (how.progress)(Stage::Ending);
    for sampler in samplers {
        sampler.stop()?;
    }
    let bundled = bundlings.into_iter().map(Bundling::finish);
    let bundled: Vec<_> = bundled.collect::<Result<_, _>>()?;
    if !bundled.is_empty() {
        folder.write_json(BUNDLING_FILE, &bundled)?;
    }

    testbed.silence()?;
    let listing = settle(&testbed)?;
    let captured = captures.map(|[sender, receiver]| {
        let sender = sender.finish();
        Ok::<_, Error>([sender?, receiver.finish()?])
    });
    let captured = captured.transpose()?;
    let [queue, queue_back] = queues.map(|queue| queue.map(QueueWatch::finish).transpose());
    let seen = [queue?, queue_back?];
    folder.write_json(DEVICES_FILE, &listing)?;
    if let Some(ledger) = testbed.emulator.ledger() {
        folder.write_json(PATH_FILE, &ledger)?;
    }
    write_streams(folder, plan, &testbed, &ended)?;
    let counts = counts::count(plan, &testbed, &listing, captured, seen);
    let summary = Summary::new(plan, &ended.groups, counts, captured);
    folder.write_json(SUMMARY_FILE, &summary)?;
    let emulator = testbed.emulator.name();
    let manifest = Manifest::new(how, &begin, emulator, plan.seed, ended.barrier_ns);
    folder.write_json(MANIFEST_FILE, &manifest)?;
    log.say("all is written");
    Ok(summary)
}

/// Waits until nothing is under way any more; lists the devices then.
fn settle(testbed: &Testbed) -> Result<Listing, Error> {
    for _ in 0..LOOKS {
        thread::sleep(SETTLE);
        let inside = testbed.emulator.ledger().is_some_and(|ledger| {
            ledger.forward.inside.packets + ledger.backward.inside.packets > 0
        });
        if !inside && is_at_rest(testbed)? {
            // What has just left a queue needs a moment to be seen behind it.
            thread::sleep(SETTLE);
            break;
        }
    }
    Listing::take(testbed)
}

fn write_streams(
    folder: &Folder,
    plan: &Plan,
    testbed: &Testbed,
    ended: &Ended,
) -> Result<(), Error> {
    let groups = plan.streams.iter().zip(&ended.traffic);
    let groups = groups.zip(&ended.groups);
    let groups: Vec<_> = groups
        .map(|((streams, traffic), ended)| {
            let host = &testbed.hosts[streams.host].name;
            let address = IpAddr::from(Testbed::address(streams.host));
            GroupTraffic::new(host, address, traffic, ended)
        })
        .collect();
    folder.write_json(STREAMS_FILE, &groups)?;
    if plan.measure.records {
        let all = ended.groups.iter();
        let all = all.flat_map(|(sent, received)| [&received.records[..], &sent.records[..]]);
        let path = folder.file(RECORDS_FILE);
        let written = Writer::create(&path).and_then(|mut file| {
            file.write(all.flatten())?;
            file.finish()
        });
        written.map_err(Error::file(&path))?;
    }
    Ok(())
}

/// The kernel's parameters in a machine, by name.
fn parameters(node: &Node) -> Result<BTreeMap<String, String>, Error> {
    let read = node.enter(|| {
        let mut all = BTreeMap::new();
        for folder in PARAMETERS {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                // Folders, and some that can only be written.
                if let Ok(value) = fs::read_to_string(&path) {
                    let name = path.strip_prefix("/proc/sys").unwrap_or(&path);
                    let name = name.to_string_lossy().replace('/', ".");
                    all.insert(name, value.trim().to_owned());
                }
            }
        }
        Ok::<_, io::Error>(all)
    })?;
    read.map_err(|source| Error::System {
        action: "read the kernel's parameters",
        source,
    })
}
