//! Executes one run: builds the testbed, sends the streams, and writes all results to a folder.
//! docs/lab/overview.md describes its files.

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

pub use counts::PathCounts;
pub use layout::{
    BUNDLING_FILE, EXPERIMENT_FILE, FAILED_SUFFIX, MANIFEST_FILE, PARTIAL_SUFFIX, PATH_FILE,
    QUEUE_FILE, RECEIVER_TRACE, RECORDS_FILE, RUN_FILE, SENDER_TRACE, STREAMS_FILE, SUMMARY_FILE,
    WORKFLOW_FILE,
};
pub use recording::QueueProbeCounts;
pub use streams::GroupBundlingTotals;
pub use summary::{GroupSummary, Summary};

use crate::capture::Capture;
use crate::testbed::{DEVICE, Emulator, IN, Log, Node, OUT, TO_ROUTER, Testbed};
use crate::{Error, kernel_release};
use counts::{DeviceListing, is_idle};
use folder::{Manifest, RunFolder, StartTime};
use layout::{DEVICES_FILE, LOG_FILE, QUEUE_BACK_FILE, SYSCTLS_FILE};
pub(crate) use layout::{JOBS_FOLDER, failed_path, folder_name, scale_folder, summary_cache_file};
use recording::QueueRecorder;
use streams::{GroupBundler, Streams, StreamsResult};
use summary::GroupReport;

/// Parameters of a run that are not part of its experiment.
pub struct RunOptions<'a> {
    /// pillion's version, for the manifest.
    pub version: &'a str,
    /// The engine that executes the run.
    pub engine: Engine,
    /// The hash of the lab kernel; `None` on other kernels.
    pub lab_kernel: Option<String>,
    /// Whether to use pillion's own path between router and receiver even if the kernel has netem.
    /// It loses the same packets for the same seed on every kernel.
    pub own_path: bool,
    /// Set to stop the run early; it then fails.
    pub stop: Arc<AtomicBool>,
    /// A callback for each stage of the run.
    pub progress: &'a dyn Fn(Stage),
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The testbed is being built.
    Building,
    /// The streams connect.
    Connecting,
    /// The streams send for this duration.
    Sending(Duration),
    /// The streams' last bytes are delivered, and the results are written.
    Finishing,
}

/// Folders of the sysctls that are stored for each end.
const SYSCTL_FOLDERS: [&str; 2] = ["/proc/sys/net/ipv4", "/proc/sys/net/core"];
/// Interval between two checks for waiting packets.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of checks for waiting packets.
const MAX_IDLE_CHECKS: usize = 600;

/// Executes a run, into a folder that does not exist yet. Until it is complete, the folder has the
/// suffix [`PARTIAL_SUFFIX`]; after a failure it has [`FAILED_SUFFIX`].
///
/// # Errors
///
/// Any of [`Error`].
pub fn perform(run: &Run, folder: &Path, options: &RunOptions) -> Result<Summary, Error> {
    let plan = run.plan()?;
    let folder = RunFolder::create(folder)?;
    let done = perform_in(&folder, run, &plan, options);
    match done.and_then(|summary| folder.finish().map(|()| summary)) {
        Ok(summary) => Ok(summary),
        Err(error) => {
            folder.mark_failed(&error);
            Err(error)
        }
    }
}

fn perform_in(
    folder: &RunFolder,
    run: &Run,
    plan: &Plan,
    options: &RunOptions,
) -> Result<Summary, Error> {
    if options.engine == Engine::Live && run.kernel != Kernel::default() {
        return Err(Error::Unsupported {
            feature: "a clock and timers of the run's choice (`kernel`)".to_owned(),
            kernel: kernel_release(),
        });
    }
    (options.progress)(Stage::Building);
    let start_time = StartTime::now();
    folder.write(RUN_FILE, &run.to_text())?;
    let log_file = folder.file(LOG_FILE);
    let log = Log::create(&log_file).map_err(Error::file(&log_file))?;
    let testbed = Testbed::build(plan, options.own_path, &log)?;
    let sysctls: BTreeMap<&str, _> = testbed
        .endpoints()
        .map(|node| Ok((node.name.as_str(), sysctls(node)?)))
        .collect::<Result<_, Error>>()?;
    folder.write_json(SYSCTLS_FILE, &sysctls)?;

    let captures = plan.measure.traces.map(|snap| {
        let trace =
            |node, device, name: &str| Capture::start(node, device, snap, &folder.file(name));
        let sender = trace(&testbed.bridge, TO_ROUTER, SENDER_TRACE)?;
        let receiver = trace(&testbed.receiver, DEVICE, RECEIVER_TRACE)?;
        Ok::<_, Error>([sender, receiver])
    });
    let captures = captures.transpose()?;
    let queues_to_record = [
        (0, OUT, QUEUE_FILE, true),
        (1, IN, QUEUE_BACK_FILE, plan.has_queue_back()),
    ];
    let queues = queues_to_record.map(|(direction, device, name, exists)| {
        let file = folder.file(name);
        let start_recorder = || match &testbed.emulator {
            Emulator::Path(path) if plan.is_recorded()[direction] => {
                QueueRecorder::start_log(path.log_queue(direction), &file)
            }
            _ => QueueRecorder::start(&testbed, device, &file),
        };
        (plan.measure.queue && exists)
            .then(start_recorder)
            .transpose()
    });
    let [queue, queue_back] = queues;
    let queues = [queue?, queue_back?];
    let streams = Streams::listen(plan, &testbed, Arc::clone(&options.stop))?;
    let mut bundlers = Vec::new();
    for (number, group) in plan.streams.iter().enumerate() {
        let host = &testbed.hosts[group.host];
        bundlers.extend(GroupBundler::start(group, host, streams::port(number))?);
    }
    let samplers = recording::start_samplers(plan, &testbed, &bundlers, folder)?;
    log.log("the streams connect");
    (options.progress)(Stage::Connecting);
    let results = streams.send(plan, &testbed, || {
        log.log("the streams send");
        (options.progress)(Stage::Sending(plan.duration));
    })?;
    log.log("the streams have finished");
    (options.progress)(Stage::Finishing);
    for sampler in samplers {
        sampler.stop()?;
    }
    let bundled = bundlers.into_iter().map(GroupBundler::finish);
    let bundled: Vec<_> = bundled.collect::<Result<_, _>>()?;
    if !bundled.is_empty() {
        folder.write_json(BUNDLING_FILE, &bundled)?;
    }

    testbed.stop_sending()?;
    let device_listing = wait_until_idle(&testbed)?;
    let capture_counts = captures.map(|[sender, receiver]| {
        let sender = sender.finish();
        Ok::<_, Error>([sender?, receiver.finish()?])
    });
    let capture_counts = capture_counts.transpose()?;
    if let Emulator::Path(path) = &testbed.emulator {
        path.stop_queue_logs();
    }
    let [queue, queue_back] = queues.map(|queue| queue.map(QueueRecorder::finish).transpose());
    let probe_counts = [queue?, queue_back?];
    folder.write_json(DEVICES_FILE, &device_listing)?;
    if let Some(stats) = testbed.emulator.stats() {
        folder.write_json(PATH_FILE, &stats)?;
    }
    write_streams(folder, plan, &testbed, &results)?;
    let counts = counts::count(
        plan,
        &testbed,
        &device_listing,
        capture_counts,
        probe_counts,
    );
    let summary = Summary::new(plan, &results.groups, counts, capture_counts);
    folder.write_json(SUMMARY_FILE, &summary)?;
    let emulator = testbed.emulator.name();
    let manifest = Manifest::new(
        options,
        &start_time,
        emulator,
        plan.seed,
        results.barrier_ns,
    );
    folder.write_json(MANIFEST_FILE, &manifest)?;
    log.log("all results are written");
    Ok(summary)
}

/// Waits until no packet is in transit, and then lists all devices.
fn wait_until_idle(testbed: &Testbed) -> Result<DeviceListing, Error> {
    for _ in 0..MAX_IDLE_CHECKS {
        thread::sleep(IDLE_CHECK_INTERVAL);
        let in_transit = match &testbed.emulator {
            Emulator::Path(path) => !path.is_idle(),
            Emulator::Netem { .. } => false,
        };
        if !in_transit && is_idle(testbed)? {
            // A packet that just left a queue needs time to reach the next one.
            thread::sleep(IDLE_CHECK_INTERVAL);
            break;
        }
    }
    DeviceListing::read(testbed)
}

fn write_streams(
    folder: &RunFolder,
    plan: &Plan,
    testbed: &Testbed,
    results: &StreamsResult,
) -> Result<(), Error> {
    let groups = plan.streams.iter().zip(&results.traffic);
    let groups = groups.zip(&results.groups);
    let groups: Vec<_> = groups
        .map(|((streams, traffic), results)| {
            let host = &testbed.hosts[streams.host].name;
            let address = IpAddr::from(Testbed::address(streams.host));
            GroupReport::new(host, address, traffic, results)
        })
        .collect();
    folder.write_json(STREAMS_FILE, &groups)?;
    if plan.measure.records {
        let all = results.groups.iter();
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

/// Returns the sysctls of a machine by name.
fn sysctls(node: &Node) -> Result<BTreeMap<String, String>, Error> {
    let read = node.enter(|| {
        let mut all = BTreeMap::new();
        for folder in SYSCTL_FOLDERS {
            for entry in fs::read_dir(folder)? {
                let path = entry?.path();
                // The rest are folders and write-only files.
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
