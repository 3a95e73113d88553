//! The sender.

mod answers;
mod connect;
mod error;
mod pace;
mod report;
mod source;
mod stream;
mod switch;
mod work;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

pub use error::SendError;
pub use report::{GroupSent, SendLateness, SendReport, StreamSent};

use crate::clock::{now_ns, ns};
use crate::plan::Traffic;
use crate::poller::{Poller, SystemError};
use crate::records::Record;
use crate::wire::{Preface, Role};
use pace::Pace;
use source::Source;
use stream::Stream;
use work::{Measurements, Work};

/// Sends streams from the thread (and so the network namespace) that calls [`Sender::run`], or
/// from so many more that this one starts.
pub struct Sender {
    traffic: Traffic,
    progress: Arc<AtomicU64>,
}

/// All that a sender leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// Counts, errors and quantiles.
    pub report: SendReport,
    /// Every answer, if records were asked for, in the order of streams.
    pub records: Vec<Record>,
}

impl Sender {
    /// Checks the configuration; connects to nothing yet.
    ///
    /// # Errors
    /// [`SendError::Config`].
    pub fn new(traffic: impl Into<Traffic>) -> Result<Self, SendError> {
        let traffic = traffic.into();
        traffic.validate()?;
        Ok(Self {
            traffic,
            progress: Arc::default(),
        })
    }

    /// Number of messages that a full run sends; `None` where that depends on the network.
    pub fn planned(&self) -> Option<u64> {
        self.sources().map(|(_, source)| source.planned()).sum()
    }

    /// When each message is due, counted from the barrier, and on which stream, in order of time;
    /// of streams whose times depend on the network, only the first.
    pub fn due(&self) -> Vec<(Duration, u32)> {
        let mut due = Vec::new();
        for ((_, mut source), stream) in self.sources().zip(0..) {
            let known = source.planned().unwrap_or(1);
            for _ in 0..known {
                if let source::Next::At(at) = source.next(0, true) {
                    due.push((Duration::from_nanos(at), stream));
                    source.take();
                }
            }
        }
        due.sort_unstable();
        due
    }

    /// Number of messages handed over so far, for another thread to watch.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Connects all streams, then sends until the duration is over, all is sent, or `stop` is set
    /// (looked at every 100 ms), then waits for the receiver to close.
    ///
    /// # Errors
    /// When not all streams connect, or the host refuses a socket, epoll or timer. A stream that
    /// breaks later does not end the others; its error is in the report.
    pub fn run(&self, stop: &AtomicBool) -> Result<SendReport, SendError> {
        Ok(self.run_recording(stop)?.report)
    }

    /// The same, with the records.
    ///
    /// # Errors
    /// As [`Sender::run`].
    pub fn run_recording(&self, stop: &AtomicBool) -> Result<Sent, SendError> {
        let sockets = connect::connect_all(&self.traffic, stop)?;
        let start_ns = now_ns();
        let mut parts: Vec<Vec<_>> = (0..self.traffic.threads).map(|_| Vec::new()).collect();
        for (number, (socket, source)) in sockets.into_iter().zip(self.sources()).enumerate() {
            parts[number % self.traffic.threads].push((number as u32, socket, source));
        }
        let results = thread::scope(|scope| {
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            let mut work = parts.map(|part| move || self.run_part(part, start_ns, stop));
            let first = work.next();
            let others: Vec<_> = work.map(|work| scope.spawn(work)).collect();
            let others = others.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let first = first.map(|work| work());
            first
                .into_iter()
                .chain(others)
                .collect::<Result<Vec<_>, _>>()
        })?;
        let mut streams = Vec::new();
        let mut measured = Measurements::new(self.traffic.records);
        for (part, more) in results {
            streams.extend(part);
            measured.add(more);
        }
        streams.sort_by_key(|stream: &StreamSent| stream.stream);
        let mut records = measured.records.take().unwrap_or_default();
        records.sort_by_key(|record| (record.stream, record.sequence));
        let report = SendReport::new(&self.traffic, streams, &measured);
        Ok(Sent { report, records })
    }

    /// What the streams do, in their order, each with its group's number.
    fn sources(&self) -> impl Iterator<Item = (usize, Source<'_>)> {
        let Traffic { seed, duration, .. } = self.traffic;
        let groups = self.traffic.groups.iter().enumerate();
        let starts = groups.flat_map(move |(index, group)| {
            let starts = group.starts(seed).take(group.streams);
            starts.map(move |start| (index, group, start))
        });
        starts.zip(0..).map(move |((index, group, start), stream)| {
            let end = group.end(duration).map_or(u64::MAX, ns);
            (index, Source::new(group, seed, stream, (start, end)))
        })
    }

    /// Runs some streams on the calling thread.
    fn run_part<'a>(
        &'a self,
        part: Vec<(u32, TcpStream, (usize, Source<'a>))>,
        start_ns: u64,
        stop: &AtomicBool,
    ) -> Result<(Vec<StreamSent>, Measurements), SystemError> {
        let poller = Poller::new()?;
        let mut streams = Vec::with_capacity(part.len());
        for (index, (stream, socket, (group, source))) in part.into_iter().enumerate() {
            poller.add(&socket, index, connect::all_changes())?;
            let wants_answers = source.wants_answers();
            let preface = Preface {
                role: Role::Sender,
                stream,
                seed: self.traffic.seed,
                base_us: start_ns / 1000,
                answer_every: wants_answers.map_or(0, |_| 1),
                answer_size: wants_answers.unwrap_or(0),
            };
            streams.push(Stream::new(socket, preface, group, source));
        }
        let work = Work::new(self.traffic.records);
        let mut pace = Pace::new(streams, poller, work, start_ns, &self.progress);
        pace.run(self.traffic.end(), self.traffic.drain_timeout, stop)?;
        let reports = pace.streams.into_iter().map(Stream::into_report).collect();
        Ok((reports, pace.work.measured))
    }
}

impl From<SystemError> for SendError {
    fn from(SystemError { call, source }: SystemError) -> Self {
        Self::System { call, source }
    }
}
