//! What is written down while the streams send: samples of sockets and flows, and packets in the queue.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pillion_bpf::host::Ticks;
use pillion_bpf::{Counters, Flow, FlowReader, Outcome};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::folder::Folder;
use super::layout::{flows_file, sockets_file};
use super::streams::Bundling;
use crate::Error;
use crate::queue::{Event, Fate, Reasons, Recording, Row, Target};
use crate::records::Writer;
use crate::settings::experiment::Plan;
use crate::sockets::{Sample, Sockets};
use crate::testbed::Testbed;

// Samples of the streams' sockets, and of what pillion knows of them, at the same moments.

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
        let to = Csv::create(folder, &sockets_file(&host.name))?;
        let bundlings = bundlings.iter().filter(|it| it.host == number);
        let readers = bundlings.map(Bundling::flows);
        let flows = match readers.collect::<Result<Vec<_>, _>>()? {
            none if none.is_empty() => None,
            readers => {
                let to = Csv::create(folder, &flows_file(&host.name))?;
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
        let path = folder.file(name);
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

/// What pillion knows of a connection at one moment. Its fields have the names that they have in
/// [`Flow`] as JSON; `segments` and `bundled` are sums of its outcomes.
pub(super) struct FlowSample<'a> {
    at_ns: u64,
    flow: &'a Flow,
}

impl<'a> FlowSample<'a> {
    /// Of the sampled connections that are bundled, in the samples' order. A connection whose
    /// application has not closed it yet is known to pillion even when it has ended.
    pub(super) fn of(
        samples: &'a [Sample],
        flows: &'a HashMap<[SocketAddr; 2], Flow>,
    ) -> impl Iterator<Item = Self> {
        samples.iter().filter_map(|sample| {
            let flow = flows.get(&[sample.local, sample.peer])?;
            let at_ns = sample.at_ns;
            Some(Self { at_ns, flow })
        })
    }
}

impl Serialize for FlowSample<'_> {
    // By hand, for CSV has no fields within fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Flow {
            local,
            peer,
            loss_rule,
            level,
            last,
            counters,
            decision,
            governor,
            ..
        } = self.flow;
        let mut fields = serializer.serialize_struct("FlowSample", 13 + Counters::NAMES.len())?;
        fields.serialize_field("at_ns", &self.at_ns)?;
        fields.serialize_field("local", local)?;
        fields.serialize_field("peer", peer)?;
        fields.serialize_field("loss_rule", loss_rule)?;
        fields.serialize_field("level", level)?;
        fields.serialize_field("last", last)?;
        fields.serialize_field("segments", &counters.segments())?;
        fields.serialize_field("bundled", &counters.of(Outcome::Bundled))?;
        for (name, value) in Counters::NAMES.iter().zip(counters.values()) {
            fields.serialize_field(name, &value)?;
        }
        let decision = decision.as_ref();
        fields.serialize_field("rate_allowed", &decision.map(|it| it.rate_allowed))?;
        fields.serialize_field("rate_sent", &decision.map(|it| it.rate_sent))?;
        let governor = governor.as_ref();
        fields.serialize_field("share", &governor.map(|it| it.share))?;
        fields.serialize_field("verdict", &governor.and_then(|it| it.verdict))?;
        fields.serialize_field("alarm", &governor.and_then(|it| it.alarm))?;
        fields.end()
    }
}

/// A queue of the bottleneck's being watched.
#[derive(Debug)]
pub(super) struct QueueWatch {
    file: PathBuf,
    recording: Recording,
    events: Arc<Mutex<Events>>,
}

#[derive(Debug)]
struct Events {
    writer: Writer,
    seen: QueueSeen,
}

/// Packets of any kind that the queue probe saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueSeen {
    /// Packets that went on to the device.
    pub sent: u64,
    /// Packets that were dropped, as they arrived or later.
    pub dropped: u64,
    /// Packets whose end was not seen.
    pub unseen: u64,
    /// Packets that could not be noted.
    pub missed: u64,
}

impl QueueWatch {
    /// Begins to watch; from now on nothing is missed without being counted.
    pub(super) fn start(
        testbed: &Testbed,
        device: &'static str,
        file: &Path,
    ) -> Result<Self, Error> {
        let target = testbed.router.enter(move || Target::find(device))??;
        let reasons = Reasons::of_this_kernel();
        let events = Arc::new(Mutex::new(Events {
            writer: Writer::create(file).map_err(Error::file(file))?,
            seen: QueueSeen::default(),
        }));
        let shared = Arc::clone(&events);
        let recording = Recording::start(&target, move |event| {
            let mut events = shared.lock().unwrap_or_else(PoisonError::into_inner);
            events.seen.count(&event);
            events.writer.write(Row::of(&event, &reasons))
        })?;
        Ok(Self {
            file: file.to_owned(),
            recording,
            events,
        })
    }

    /// Ends the watch, once the queue is empty.
    pub(super) fn finish(self) -> Result<QueueSeen, Error> {
        self.recording.stop()?;
        let failed = || Error::file(&self.file)(io::Error::other("it is written still"));
        let events = Arc::into_inner(self.events).ok_or_else(failed)?;
        let events = events.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.writer.finish().map_err(Error::file(&self.file))?;
        Ok(events.seen)
    }
}

impl QueueSeen {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Missed(number) => self.missed += number,
            Event::Packet(packet) => match packet.fate {
                Fate::Sent => self.sent += 1,
                Fate::Refused | Fate::Dropped => self.dropped += 1,
                Fate::Unseen => self.unseen += 1,
                // Those in its place are counted.
                Fate::Replaced => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use pillion_bpf::{Companions, Decision, LossRule, WantedBy};

    use super::*;

    #[test]
    fn columns_are_fields_of_the_flow_as_json() {
        let flow = Flow {
            cookie: None,
            inode: None,
            closed_at: None,
            cgroup: None,
            srtt_us: None,
            data_packets: 0,
            retransmitted: 0,
            local: "10.77.1.1:20000".parse().unwrap(),
            peer: "10.77.2.1:7001".parse().unwrap(),
            netns: None,
            in_flight: 3,
            rtt_min_us: None,
            snd_cwnd: 10,
            mss: 1448,
            wanted_by: WantedBy::Rule,
            rule: None,
            off: false,
            loss_rule: LossRule::Dsack,
            level: 2,
            path_size: None,
            governor: None,
            ignores_cwr: false,
            companions: Companions::default(),
            companions_refused: Vec::new(),
            last: Some(Outcome::Bundled),
            counters: Counters {
                outcomes: [(Outcome::Bundled, 5), (Outcome::NotThin, 7)].into(),
                hidden_losses: 4,
                ..Counters::default()
            },
            decision: Some(Decision {
                rate_allowed: 9000,
                rate_sent: 4000,
            }),
        };
        let at_ns = 1;
        let row = serde_json::to_value(FlowSample { at_ns, flow: &flow }).unwrap();
        let json = serde_json::to_value(&flow).unwrap();
        assert_eq!((&row["segments"], &row["bundled"]), (&12.into(), &5.into()));
        let own = ["at_ns", "segments", "bundled", "share", "verdict", "alarm"];
        let fields = row.as_object().unwrap().iter();
        for (name, value) in fields.filter(|(name, _)| !own.contains(&name.as_str())) {
            assert_eq!(json.get(name), Some(value), "{name}");
        }
    }
}
