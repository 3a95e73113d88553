//! Samples of the streams' sockets, and of what pillion knows of them, at the same moments.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pillion_bundler::FlowReader;
use pillion_host::Ticks;
use pillion_settings::experiment::Plan;
use pillion_sockets::{CSV_HEADING, CsvFile, Sample, Sockets, csv_line};

use super::bundling::Bundling;
use super::flows::{flow_line, flows_heading};
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
        let to = Csv::create(folder, &format!("sockets-{}", host.name), CSV_HEADING)?;
        let bundlings = bundlings.iter().filter(|it| it.host == number);
        let readers = bundlings.map(Bundling::flows);
        let flows = match readers.collect::<Result<Vec<_>, _>>()? {
            none if none.is_empty() => None,
            readers => {
                let to = Csv::create(folder, &format!("flows-{}", host.name), &flows_heading())?;
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
    file: CsvFile,
}

impl Csv {
    fn create(folder: &Folder, name: &str, heading: &str) -> Result<Self, Error> {
        let path = folder.file(&format!("{name}.csv.zst"));
        let file = CsvFile::create(&path, heading).map_err(Error::file(&path))?;
        Ok(Self { path, file })
    }

    fn write(&mut self, lines: impl IntoIterator<Item = String>) -> Result<(), Error> {
        let written = self.file.write(lines);
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
                    flows_to.write(flow_lines(&samples, readers)?)?;
                }
                samples_to.write(samples.iter().map(csv_line))?;
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

/// Lines of CSV for the sampled connections that are bundled, in the samples' order. A connection
/// whose application has not closed it yet is known to pillion even when it has ended.
fn flow_lines(samples: &[Sample], readers: &[FlowReader]) -> Result<Vec<String>, Error> {
    let mut flows = HashMap::new();
    for reader in readers {
        let read = reader.read()?.into_iter();
        flows.extend(read.map(|flow| ((flow.local, flow.peer), flow)));
    }
    let lines = samples.iter().filter_map(|sample| {
        let flow = flows.get(&(sample.local, sample.peer))?;
        Some(flow_line(sample.at_ns, flow))
    });
    Ok(lines.collect())
}
