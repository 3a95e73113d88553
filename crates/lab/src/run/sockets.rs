//! Samples of the streams' sockets, and of what pillion knows of them, at the same moments.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::records::Writer;
use crate::settings::experiment::Plan;
use crate::sockets::Sockets;
use pillion_bpf::host::Ticks;
use pillion_bpf::{Flow, FlowReader};
use serde::Serialize;

use super::bundling::Bundling;
use super::flows::FlowSample;
use super::folder::Folder;
use crate::Error;
use crate::testbed::Testbed;

/// Samples one host's connections until it is stopped.
pub(super) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

/// Begins to sample, on every host that streams come from.
pub(super) fn sample(
    plan: &Plan,
    testbed: &Testbed,
    bundlings: &[Bundling],
    folder: &Folder,
) -> Result<Vec<Sampler>, Error> {
    let Some(interval) = plan.measure.sockets else {
        return Ok(Vec::new());
    };
    let samplers = testbed.hosts.iter().enumerate().map(|(number, host)| {
        let sockets = host.enter(Sockets::open)??;
        let to = Csv::create(folder, &format!("sockets-{}", host.name))?;
        let bundlings = bundlings.iter().filter(|it| it.host == number);
        let readers = bundlings.map(Bundling::flows);
        let flows = match readers.collect::<Result<Vec<_>, _>>()? {
            none if none.is_empty() => None,
            readers => {
                let to = Csv::create(folder, &format!("flows-{}", host.name))?;
                Some((readers, to))
            }
        };
        Ok(Sampler::start(interval, (sockets, to), flows))
    });
    samplers.collect()
}

/// A file of samples, and its path for what is said of it.
struct Csv {
    path: PathBuf,
    file: Writer,
}

impl Csv {
    fn create(folder: &Folder, name: &str) -> Result<Self, Error> {
        let path = folder.file(&format!("{name}.csv.zst"));
        let file = Writer::create(&path).map_err(Error::file(&path))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, records: impl IntoIterator<Item: Serialize>) -> Result<(), Error> {
        let written = self.file.write(records);
        written.map_err(|source| Error::file(&self.path)(source))
    }

    fn finish(self) -> Result<(), Error> {
        self.file.finish().map_err(Error::file(&self.path))
    }
}

impl Sampler {
    fn start(
        interval: Duration,
        (mut sockets, mut samples_to): (Sockets, Csv),
        mut flows: Option<(Vec<FlowReader>, Csv)>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut ticks = Ticks::every(interval);
            while !stopped.load(Ordering::Relaxed) {
                let at_ns = ticks.sleep();
                let samples = sockets.sample(at_ns)?;
                if let Some((readers, flows_to)) = &mut flows {
                    let flows = read(readers)?;
                    flows_to.write(FlowSample::of(&samples, &flows))?;
                }
                samples_to.write(&samples)?;
            }
            if let Some((_, flows_to)) = flows {
                flows_to.finish()?;
            }
            samples_to.finish()
        });
        Self { stop, thread }
    }

    /// Stops the sampling after the next round.
    ///
    /// # Errors
    /// [`Error::Sockets`], [`Error::Bundler`], [`Error::File`].
    pub(super) fn stop(self) -> Result<(), Error> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| {
            Err(Error::System {
                action: "sample the streams' sockets",
                source: std::io::Error::other("the thread failed"),
            })
        })
    }
}

/// The connections that pillion bundles now, by their ends.
fn read(readers: &[FlowReader]) -> Result<HashMap<[SocketAddr; 2], Flow>, Error> {
    let mut flows = HashMap::new();
    for reader in readers {
        let read = reader.read()?.into_iter();
        flows.extend(read.map(|flow| ([flow.local, flow.peer], flow)));
    }
    Ok(flows)
}
