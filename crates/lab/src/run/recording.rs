//! Records made while the streams send: samples of sockets and flows, and packets of the queue.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pillion_bpf::host::Ticks;
use pillion_bpf::{Counters, Flow, FlowReader, Outcome};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::folder::RunFolder;
use super::layout::{flows_file, sockets_file};
use super::streams::GroupBundler;
use crate::Error;
use crate::queue::{Disposition, Event, Packet, Reasons, Recording, Row, Target};
use crate::records::Writer;
use crate::settings::experiment::Plan;
use crate::sockets::{Sample, Sockets};
use crate::testbed::Testbed;

// Samples of the streams' sockets and of pillion's state of them, at the same times.

/// A thread that samples one host's connections until it is stopped.
pub(super) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), Error>>,
}

/// Starts a sampler on each host that sends streams.
pub(super) fn start_samplers(
    plan: &Plan,
    testbed: &Testbed,
    bundlers: &[GroupBundler],
    folder: &RunFolder,
) -> Result<Vec<Sampler>, Error> {
    let Some(interval) = plan.measure.sockets else {
        return Ok(Vec::new());
    };
    let samplers = testbed.hosts.iter().enumerate().map(|(number, host)| {
        let sockets = host.enter(Sockets::open)??;
        let to = CsvFile::create(folder, &sockets_file(&host.name))?;
        let bundlers = bundlers.iter().filter(|it| it.host == number);
        let readers = bundlers.map(GroupBundler::flows);
        let flows = match readers.collect::<Result<Vec<_>, _>>()? {
            empty if empty.is_empty() => None,
            readers => {
                let to = CsvFile::create(folder, &flows_file(&host.name))?;
                Some((readers, to))
            }
        };
        Ok(Sampler::start(interval, (sockets, to), flows))
    });
    samplers.collect()
}

/// A file of samples, with its path for error messages.
struct CsvFile {
    path: PathBuf,
    file: Writer,
}

impl CsvFile {
    fn create(folder: &RunFolder, name: &str) -> Result<Self, Error> {
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
        (mut sockets, mut samples_to): (Sockets, CsvFile),
        mut flows: Option<(Vec<FlowReader>, CsvFile)>,
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
                    flows_to.write(FlowSample::matching(&samples, &flows))?;
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

    /// Stops the thread after the next sample.
    ///
    /// # Errors
    ///
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

/// Returns the connections that pillion bundles now, by their two ends.
fn read(readers: &[FlowReader]) -> Result<HashMap<[SocketAddr; 2], Flow>, Error> {
    let mut flows = HashMap::new();
    for reader in readers {
        let read = reader.read()?.into_iter();
        flows.extend(read.map(|flow| ([flow.local, flow.peer], flow)));
    }
    Ok(flows)
}

/// pillion's state of a connection at one moment. The columns have the names of [`Flow`]'s JSON
/// fields; `segments` and `bundled` are sums of outcomes.
pub(super) struct FlowSample<'a> {
    at_ns: u64,
    flow: &'a Flow,
}

impl<'a> FlowSample<'a> {
    /// Returns samples of the bundled connections, in the order of `samples`. pillion also has a
    /// closed connection until its application closes the socket.
    pub(super) fn matching(
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
    // A manual implementation, because CSV does not support nested fields.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Flow {
            local,
            peer,
            loss_rule,
            level,
            last_outcome,
            counters,
            tfrc_decision,
            governor,
            ..
        } = self.flow;
        let mut fields = serializer.serialize_struct("FlowSample", 13 + Counters::NAMES.len())?;
        fields.serialize_field("at_ns", &self.at_ns)?;
        fields.serialize_field("local", local)?;
        fields.serialize_field("peer", peer)?;
        fields.serialize_field("loss_rule", loss_rule)?;
        fields.serialize_field("level", level)?;
        fields.serialize_field("last_outcome", last_outcome)?;
        fields.serialize_field("segments", &counters.segments())?;
        fields.serialize_field("bundled", &counters.of(Outcome::Bundled))?;
        for (name, value) in Counters::NAMES.iter().zip(counters.values()) {
            fields.serialize_field(name, &value)?;
        }
        let decision = tfrc_decision.as_ref();
        fields.serialize_field(
            "tfrc_allowed_bytes_per_s",
            &decision.map(|it| it.tfrc_allowed_bytes_per_s),
        )?;
        fields.serialize_field(
            "tfrc_sent_bytes_per_s",
            &decision.map(|it| it.tfrc_sent_bytes_per_s),
        )?;
        let governor = governor.as_ref();
        fields.serialize_field("share", &governor.map(|it| it.share))?;
        fields.serialize_field("verdict", &governor.and_then(|it| it.verdict))?;
        fields.serialize_field("alarm", &governor.and_then(|it| it.alarm))?;
        fields.end()
    }
}

/// A recorder of one of the bottleneck's queues.
#[derive(Debug)]
pub(super) struct QueueRecorder {
    file: PathBuf,
    source: QueueSource,
    events: Arc<Mutex<Events>>,
}

/// The source of a queue's packets.
#[derive(Debug)]
enum QueueSource {
    /// The queue probe, for a queue of the kernel.
    Probe(Recording),
    /// The thread that reads the log of pillion's own path, for the queue of a recorded link.
    Path(JoinHandle<io::Result<()>>),
}

#[derive(Debug)]
struct Events {
    writer: Writer,
    probe_counts: QueueProbeCounts,
}

/// Packet counts of the queue probe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueProbeCounts {
    /// Packets passed to the device.
    pub sent: u64,
    /// Packets dropped on arrival or later.
    pub dropped: u64,
    /// Packets whose end the probe did not observe.
    pub unseen: u64,
    /// Packets that could not be recorded.
    pub missed: u64,
}

impl QueueRecorder {
    /// Starts recording. From now on, every missed packet is counted.
    pub(super) fn start(
        testbed: &Testbed,
        device: &'static str,
        file: &Path,
    ) -> Result<Self, Error> {
        let target = testbed.router.enter(move || Target::find(device))??;
        let reasons = Reasons::from_running_kernel();
        Self::create(file, |events| {
            let recording = Recording::start(&target, move |event| write(&events, event, &reasons));
            Ok(QueueSource::Probe(recording?))
        })
    }

    /// Starts recording the packets that pillion's own path logs.
    pub(super) fn start_log(packets: Receiver<Packet>, file: &Path) -> Result<Self, Error> {
        Self::create(file, |events| {
            let mut reasons = Reasons::default();
            // The kernel's name for a packet beyond the limit of a queueing discipline.
            let reason = reasons.number("QDISC_OVERLIMIT");
            Ok(QueueSource::Path(thread::spawn(move || {
                packets.into_iter().try_for_each(|packet| {
                    write(
                        &events,
                        Event::Packet(Packet { reason, ..packet }),
                        &reasons,
                    )
                })
            })))
        })
    }

    fn create(
        file: &Path,
        start: impl FnOnce(Arc<Mutex<Events>>) -> Result<QueueSource, Error>,
    ) -> Result<Self, Error> {
        let events = Arc::new(Mutex::new(Events {
            writer: Writer::create(file).map_err(Error::file(file))?,
            probe_counts: QueueProbeCounts::default(),
        }));
        Ok(Self {
            file: file.to_owned(),
            source: start(Arc::clone(&events))?,
            events,
        })
    }

    /// Stops recording, once the queue is empty and the path's logs are stopped.
    pub(super) fn finish(self) -> Result<QueueProbeCounts, Error> {
        match self.source {
            QueueSource::Probe(recording) => recording.stop()?,
            QueueSource::Path(thread) => {
                let failed = |_| Err(io::Error::other("the recording's thread failed"));
                let written = thread.join().unwrap_or_else(failed);
                written.map_err(Error::file(&self.file))?;
            }
        }
        let failed =
            || Error::file(&self.file)(io::Error::other("the recording is still in progress"));
        let events = Arc::into_inner(self.events).ok_or_else(failed)?;
        let events = events.into_inner().unwrap_or_else(PoisonError::into_inner);
        events.writer.finish().map_err(Error::file(&self.file))?;
        Ok(events.probe_counts)
    }
}

fn write(events: &Mutex<Events>, event: Event, reasons: &Reasons) -> io::Result<()> {
    let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
    events.probe_counts.count(&event);
    events.writer.write(Row::of(&event, reasons))
}

impl QueueProbeCounts {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Missed(number) => self.missed += number,
            Event::Packet(packet) => match packet.disposition {
                Disposition::Sent => self.sent += 1,
                Disposition::Refused | Disposition::Dropped => self.dropped += 1,
                Disposition::Unseen => self.unseen += 1,
                // The segments that replace this packet are counted instead.
                Disposition::Replaced => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use pillion_bpf::{LossRule, RequestedBy, TcpOptions};

    use super::*;

    #[test]
    fn flow_columns_match_json_fields() {
        let flow = Flow {
            cookie: None,
            inode: None,
            closed_at_s: None,
            cgroup: None,
            srtt_us: None,
            data_packets: 0,
            retransmitted_packets: 0,
            local: "10.77.1.1:20000".parse().unwrap(),
            peer: "10.77.2.1:7001".parse().unwrap(),
            netns: None,
            in_flight: 3,
            waits_for_nagle: false,
            rtt_min_us: None,
            snd_cwnd: 10,
            mss: 1448,
            requested_by: RequestedBy::Rule,
            rule: None,
            disabled_by_application: false,
            loss_rule: LossRule::Dsack,
            level: 2,
            copies_per_segment: 0,
            copies_limited: false,
            has_queue: false,
            path_size: None,
            governor: None,
            ignores_cwr: false,
            tcp_options: TcpOptions::default(),
            tcp_options_refused: Vec::new(),
            last_outcome: Some(Outcome::Bundled),
            counters: Counters {
                outcomes: [(Outcome::Bundled, 5), (Outcome::NotThin, 7)].into(),
                hidden_losses: 4,
                ..Counters::default()
            },
            tfrc_decision: Some(pillion_bpf::TfrcDecision {
                tfrc_allowed_bytes_per_s: 9000,
                tfrc_sent_bytes_per_s: 4000,
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
