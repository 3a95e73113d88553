use std::sync::atomic::AtomicBool;
use std::thread;

use super::connect::{Attempt, Connection, all_changes};
use super::datagrams;
use super::pace::Pace;
use super::report::StreamSent;
use super::source::Source;
use super::stream::Stream;
use super::work::{Measurements, Work};
use super::{SendError, SendReport, Sender, Sent};
use crate::traffic::poller::{Poller, SystemError};
use crate::traffic::wire::{Preface, Role};

/// The streams of a sender before the barrier: connected, and silent.
pub struct Connected<'a> {
    sender: &'a Sender,
    attempts: Vec<Attempt>,
}

/// A connection, its stream's number, its group's and what it sends.
type Part<'a> = Vec<(Connection, u32, (usize, Source<'a>))>;

impl<'a> Connected<'a> {
    pub(super) fn new(sender: &'a Sender, attempts: Vec<Attempt>) -> Self {
        Self { sender, attempts }
    }

    /// Streams that are connected, or connect when they start.
    pub fn count(&self) -> usize {
        self.attempts.iter().filter(|it| it.is_ok()).count()
    }

    /// Opens the barrier at `start_ns` (`CLOCK_MONOTONIC`), which may be to come, and sends until
    /// the duration is over, all is sent, or `stop` is set (looked at every 100 ms), then waits for
    /// the receiver to close.
    ///
    /// # Errors
    /// When the host refuses epoll or a timer. A stream that breaks does not end the others; its
    /// error is in the report.
    pub fn run(self, start_ns: u64, stop: &AtomicBool) -> Result<Sent, SendError> {
        let Self { sender, attempts } = self;
        let traffic = &sender.traffic;
        let mut parts: Vec<Part> = (0..traffic.threads).map(|_| Vec::new()).collect();
        let mut of_datagrams = datagrams::Part::new();
        let mut streams = Vec::with_capacity(attempts.len());
        let sources = attempts.into_iter().zip(sender.sources());
        for ((attempt, source), number) in sources.zip(traffic.first_stream..) {
            match attempt {
                Ok(Connection::Datagrams(socket)) => of_datagrams.push((socket, number, source)),
                Ok(socket) => {
                    parts[number as usize % traffic.threads].push((socket, number, source));
                }
                Err(why) => streams.push(StreamSent {
                    error: Some(format!("never connected: {why}")),
                    ..StreamSent::new(number, source.0)
                }),
            }
        }
        let results = thread::scope(|scope| {
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            let mut work = parts.map(|part| move || sender.run_part(part, start_ns, stop));
            // They pace themselves, on a thread of their own.
            let of_datagrams = (!of_datagrams.is_empty())
                .then(|| scope.spawn(|| datagrams::run(sender, of_datagrams, start_ns, stop)));
            let first = work.next();
            let others: Vec<_> = work.map(|work| scope.spawn(work)).collect();
            let others = others.into_iter().chain(of_datagrams).map(|thread| {
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
        let mut measured = Measurements::new(traffic.records);
        for (part, more) in results {
            streams.extend(part);
            measured.add(more);
        }
        streams.sort_by_key(|stream: &StreamSent| stream.stream);
        let mut records = measured.records.take().unwrap_or_default();
        records.sort_by_key(|record| (record.stream, record.sequence));
        let report = SendReport::new(traffic, streams, &measured);
        Ok(Sent { report, records })
    }
}

impl Sender {
    /// Runs some streams on the calling thread.
    fn run_part<'a>(
        &'a self,
        part: Part<'a>,
        start_ns: u64,
        stop: &AtomicBool,
    ) -> Result<(Vec<StreamSent>, Measurements), SystemError> {
        let poller = Poller::new()?;
        let mut streams = Vec::with_capacity(part.len());
        for (index, (connection, stream, (group, source))) in part.into_iter().enumerate() {
            if let Connection::Made(socket) = &connection {
                poller.add(socket, index, all_changes())?;
            }
            let wants_answers = source.wants_answers();
            let preface = Preface {
                role: Role::Sender,
                stream,
                seed: self.traffic.seed,
                base_us: start_ns / 1000,
                answer_every: wants_answers.map_or(0, |_| 1),
                answer_size: wants_answers.unwrap_or(0),
            };
            streams.push(Stream::new(connection, preface, group, source));
        }
        let work = Work::new(self.traffic.records);
        let mut pace = Pace::new(streams, poller, work, start_ns, &self.progress);
        pace.run(self.traffic.end(), self.traffic.drain_timeout, stop)?;
        let reports = pace.streams.into_iter().map(Stream::into_report).collect();
        Ok((reports, pace.work.measured))
    }
}
