//! The sender.

mod connect;
mod datagrams;
mod pace;
mod report;
mod source;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;

use crate::traffic::latency::{Record, now_ns, ns};
use crate::traffic::plan::{ConfigError, Traffic};
use crate::traffic::poller::{Poller, SystemError};
use crate::traffic::wire::{Preface, Role};
use connect::{Attempt, Connection, all_changes, connect_all};
use pace::Pace;
use report::{Measurements, Work};
use source::Source;
use stream::Stream;

pub use report::{GroupSent, SendLateness, SendReport, StreamSent};

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
        let mut traffic = traffic.into();
        traffic.validate()?;
        let Traffic { seed, duration, .. } = traffic;
        for group in &mut traffic.groups {
            group.streams = group.streams_until(duration, seed);
        }
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
        for ((_, mut source), stream) in self.sources().zip(self.traffic.first_stream..) {
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
    /// As [`Sender::connect`] and [`Connected::run`].
    pub fn run(&self, stop: &AtomicBool) -> Result<SendReport, SendError> {
        Ok(self.run_recording(stop)?.report)
    }

    /// [`Sender::run`], with the records.
    ///
    /// # Errors
    /// As [`Sender::run`].
    pub fn run_recording(&self, stop: &AtomicBool) -> Result<Sent, SendError> {
        self.connect(stop)?.run(now_ns(), stop)
    }

    /// Connects all streams, and sends nothing yet.
    ///
    /// # Errors
    /// When not all streams connect, unless [`Traffic::partly`] goes on without them, or the host
    /// refuses a socket, epoll or timer, or `stop` is set.
    pub fn connect(&self, stop: &AtomicBool) -> Result<Connected<'_>, SendError> {
        let sockets = connect_all(&self.traffic, stop)?;
        Ok(Connected::new(self, sockets))
    }

    /// What the streams do, in their order, each with its group's number.
    fn sources(&self) -> impl Iterator<Item = (usize, Source<'_>)> {
        let Traffic { seed, duration, .. } = self.traffic;
        let groups = self.traffic.groups.iter().enumerate();
        let starts = groups.flat_map(move |(index, group)| {
            let starts = group.starts(seed).take(group.streams);
            starts.map(move |start| (index, group, start))
        });
        starts
            .zip(self.traffic.first_stream..)
            .map(move |((index, group, start), stream)| {
                let end = group.end(duration).map_or(u64::MAX, ns);
                (index, Source::new(group, seed, stream, (start, end)))
            })
    }
}

/// The streams of a sender before the barrier: connected, and silent.
pub struct Connected<'a> {
    sender: &'a Sender,
    attempts: Vec<Attempt>,
}

/// A connection, its stream's number, its group's and what it sends.
type Part<'a> = Vec<(Connection, u32, (usize, Source<'a>))>;

impl<'a> Connected<'a> {
    fn new(sender: &'a Sender, attempts: Vec<Attempt>) -> Self {
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

impl From<SystemError> for SendError {
    fn from(SystemError { call, source }: SystemError) -> Self {
        Self::System { call, source }
    }
}

/// Why sending could not start or go on. What befalls a single stream later is in the report.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The configuration is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The congestion control cannot be used.
    #[error(
        "congestion control {name}: {source}; \
         `sysctl net.ipv4.tcp_available_congestion_control` lists what is loaded"
    )]
    Congestion {
        /// The name asked for.
        name: String,
        /// The kernel's answer.
        source: nix::Error,
    },
    /// pillion does not do what its socket option asks.
    #[error("pillion's socket option {option}: {source}{}", switch_remedy(source))]
    Switch {
        /// The option's name in `pillion.h`.
        option: &'static str,
        /// The answer.
        source: nix::Error,
    },
    /// A source port cannot be had.
    #[error("source port {}: {source}; does another process use it?", local.port())]
    Bind {
        /// The address asked for.
        local: SocketAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A connection failed.
    #[error(
        "connecting to {to}: {source} ({connected} of {streams} streams connected); \
         is the receiver running there?"
    )]
    Connect {
        /// The receiver's address.
        to: SocketAddr,
        /// Streams connected by then.
        connected: usize,
        /// Streams asked for.
        streams: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Not all connections were established in time.
    #[error(
        "connecting to {to}: only {connected} of {streams} streams connected within {timeout:?}; \
         is the path up, and does the receiver accept?"
    )]
    ConnectTimeout {
        /// The receiver's address.
        to: SocketAddr,
        /// Streams connected by then.
        connected: usize,
        /// Streams asked for.
        streams: usize,
        /// The limit.
        timeout: Duration,
    },
    /// Stopped by the caller before the barrier opened.
    #[error("stopped while {connected} of {streams} streams were connected, nothing sent")]
    Stopped {
        /// Streams connected by then.
        connected: usize,
        /// Streams asked for.
        streams: usize,
    },
    /// No socket, epoll or timer could be had.
    #[error("{call}: {source}{}", remedy(source))]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's answer.
        source: nix::Error,
    },
}

impl SendError {
    /// Whether what was asked for has to change, rather than the machine that it was asked of.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Congestion { .. })
    }
}

fn switch_remedy(error: &nix::Error) -> &'static str {
    match error {
        nix::Error::ENOPROTOOPT => {
            "; no pillion is at work here: start `pillion attach`, or send beneath `pillion run`"
        }
        nix::Error::EPERM => "; the rules of the pillion at work here leave all connections alone",
        nix::Error::EINVAL => "; give at most 2147483647",
        _ => "",
    }
}

fn remedy(error: &nix::Error) -> &'static str {
    match error {
        nix::Error::EMFILE => "; raise the limit with `ulimit -n`",
        _ => "",
    }
}
