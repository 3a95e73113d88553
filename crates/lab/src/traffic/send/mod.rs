//! The sender.

mod connect;
mod datagrams;
mod report;
mod send_loop;
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
use report::{Measurements, ThreadState};
use send_loop::SendLoop;
use source::Source;
use stream::Stream;

pub use report::{GroupSendReport, SendLateness, SendReport, StreamSendReport};

/// Sends streams from the thread, and thus the network namespace, that calls [`Sender::run`], or
/// from additional threads that it starts.
pub struct Sender {
    traffic: Traffic,
    progress: Arc<AtomicU64>,
}

/// The results of a sender.
#[derive(Debug, Clone, PartialEq)]
pub struct SendResult {
    /// Counts, errors and quantiles.
    pub report: SendReport,
    /// Every response, in the order of streams, if records are enabled.
    pub records: Vec<Record>,
}

impl Sender {
    /// Checks the configuration; does not connect yet.
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

    /// Returns the number of messages of a complete run; `None` if it depends on the network.
    pub fn planned(&self) -> Option<u64> {
        self.sources().map(|(_, source)| source.planned()).sum()
    }

    /// Returns the due time of each message since the barrier's opening, and its stream, ordered by
    /// time. For streams whose times depend on the network, only the first message is included.
    pub fn due(&self) -> Vec<(Duration, u32)> {
        let mut due = Vec::new();
        for ((_, mut source), stream) in self.sources().zip(self.traffic.first_stream..) {
            let count = source.planned().unwrap_or(1);
            for _ in 0..count {
                if let source::Next::At(at) = source.next(0, true) {
                    due.push((Duration::from_nanos(at), stream));
                    source.take();
                }
            }
        }
        due.sort_unstable();
        due
    }

    /// Returns the counter of written messages, for another thread.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Connects all streams and sends until the duration is over, all messages are sent, or `stop`
    /// is set (checked every 100 ms). Then waits for the receiver to close.
    ///
    /// # Errors
    /// Those of [`Sender::connect`] and of single streams.
    pub fn run(&self, stop: &AtomicBool) -> Result<SendReport, SendError> {
        Ok(self.run_recording(stop)?.report)
    }

    /// [`Sender::run`], with the records.
    ///
    /// # Errors
    /// As [`Sender::run`].
    pub fn run_recording(&self, stop: &AtomicBool) -> Result<SendResult, SendError> {
        self.connect(stop)?.run(now_ns(), stop)
    }

    /// Connects all streams, but sends nothing yet.
    ///
    /// # Errors
    /// If not all streams connect and [`Traffic::partly`] is false, if the host cannot create a
    /// socket, epoll instance or timer, or if `stop` is set.
    pub fn connect(&self, stop: &AtomicBool) -> Result<ConnectedSender<'_>, SendError> {
        let sockets = connect_all(&self.traffic, stop)?;
        Ok(ConnectedSender::new(self, sockets))
    }

    /// Returns the sources of the streams in order, each with its group's number.
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

/// The connected streams of a sender before the barrier opens.
pub struct ConnectedSender<'a> {
    sender: &'a Sender,
    attempts: Vec<Attempt>,
}

/// A connection, its stream's number, its group's number, and the source.
type ThreadStreams<'a> = Vec<(Connection, u32, (usize, Source<'a>))>;

impl<'a> ConnectedSender<'a> {
    fn new(sender: &'a Sender, attempts: Vec<Attempt>) -> Self {
        Self { sender, attempts }
    }

    /// Returns the number of streams that are connected, or connect when they start.
    pub fn count(&self) -> usize {
        self.attempts.iter().filter(|it| it.is_ok()).count()
    }

    /// Opens the barrier at `start_ns` (`CLOCK_MONOTONIC`), which may be in the future. Sends until
    /// the duration is over, all messages are sent, or `stop` is set (checked every 100 ms). Then
    /// waits for the receiver to close.
    ///
    /// # Errors
    /// If the host cannot create an epoll instance or a timer. A failed stream does not stop the
    /// others; its error is in the report.
    pub fn run(self, start_ns: u64, stop: &AtomicBool) -> Result<SendResult, SendError> {
        let Self { sender, attempts } = self;
        let traffic = &sender.traffic;
        let mut parts: Vec<ThreadStreams> = (0..traffic.threads).map(|_| Vec::new()).collect();
        let mut datagram_streams = datagrams::ThreadStreams::new();
        let mut streams = Vec::with_capacity(attempts.len());
        let sources = attempts.into_iter().zip(sender.sources());
        for ((attempt, source), number) in sources.zip(traffic.first_stream..) {
            match attempt {
                Ok(Connection::Datagrams(socket)) => {
                    datagram_streams.push((socket, number, source));
                }
                Ok(socket) => {
                    parts[number as usize % traffic.threads].push((socket, number, source));
                }
                Err(why) => streams.push(StreamSendReport {
                    error: Some(format!("never connected: {why}")),
                    ..StreamSendReport::new(number, source.0)
                }),
            }
        }
        let results = thread::scope(|scope| {
            let parts = parts.into_iter().filter(|part| !part.is_empty());
            let mut jobs = parts.map(|part| move || sender.run_part(part, start_ns, stop));
            // Datagrams have their own pace, and a thread of their own.
            let datagram_streams = (!datagram_streams.is_empty())
                .then(|| scope.spawn(|| datagrams::run(sender, datagram_streams, start_ns, stop)));
            let first = jobs.next();
            let others: Vec<_> = jobs.map(|job| scope.spawn(job)).collect();
            let others = others.into_iter().chain(datagram_streams).map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let first = first.map(|job| job());
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
        streams.sort_by_key(|stream: &StreamSendReport| stream.stream);
        let mut records = measured.records.take().unwrap_or_default();
        records.sort_by_key(|record| (record.stream, record.sequence));
        let report = SendReport::new(traffic, streams, &measured);
        Ok(SendResult { report, records })
    }
}

impl Sender {
    /// Runs some streams on the calling thread.
    fn run_part<'a>(
        &'a self,
        part: ThreadStreams<'a>,
        start_ns: u64,
        stop: &AtomicBool,
    ) -> Result<(Vec<StreamSendReport>, Measurements), SystemError> {
        let poller = Poller::new()?;
        let mut streams = Vec::with_capacity(part.len());
        for (index, (connection, stream, (group, source))) in part.into_iter().enumerate() {
            if let Connection::Established(socket) = &connection {
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
        let state = ThreadState::new(self.traffic.records);
        let mut send_loop = SendLoop::new(streams, poller, state, start_ns, &self.progress);
        send_loop.run(self.traffic.end(), self.traffic.drain_timeout, stop)?;
        let reports = send_loop
            .streams
            .into_iter()
            .map(Stream::into_report)
            .collect();
        Ok((reports, send_loop.state.measured))
    }
}

impl From<SystemError> for SendError {
    fn from(SystemError { call, source }: SystemError) -> Self {
        Self::System { call, source }
    }
}

/// Why sending could not start or continue. Errors of single streams are in the report.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The congestion control is unavailable.
    #[error(
        "congestion control {name}: {source}; \
         `sysctl net.ipv4.tcp_available_congestion_control` lists the loaded ones"
    )]
    Congestion {
        /// The requested name.
        name: String,
        /// The kernel's error.
        source: nix::Error,
    },
    /// pillion rejected its socket option.
    #[error("pillion's socket option {option}: {source}{}", switch_remedy(source))]
    Switch {
        /// The option's name in `pillion.h`.
        option: &'static str,
        /// The error.
        source: nix::Error,
    },
    /// A source port is unavailable.
    #[error("source port {}: {source}; does another process use it?", local.port())]
    Bind {
        /// The requested address.
        local: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// A connection failed.
    #[error(
        "connecting to {to}: {source} ({connected} of {streams} streams connected); \
         is the receiver running at this address?"
    )]
    Connect {
        /// The receiver's address.
        to: SocketAddr,
        /// Streams connected before the error.
        connected: usize,
        /// Requested streams.
        streams: usize,
        /// The kernel's error.
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
        /// Streams connected before the timeout.
        connected: usize,
        /// Requested streams.
        streams: usize,
        /// The timeout.
        timeout: Duration,
    },
    /// Stopped by the caller before the barrier opened.
    #[error("stopped while {connected} of {streams} streams were connected, nothing sent")]
    Stopped {
        /// Streams connected before the stop.
        connected: usize,
        /// Requested streams.
        streams: usize,
    },
    /// A socket, epoll instance or timer could not be created.
    #[error("{call}: {source}{}", remedy(source))]
    System {
        /// The system call that failed.
        call: &'static str,
        /// The kernel's error.
        source: nix::Error,
    },
}

impl SendError {
    /// Returns true if the request has to change, rather than the machine.
    #[must_use]
    pub fn is_bad_input(&self) -> bool {
        matches!(self, Self::Config(_) | Self::Congestion { .. })
    }
}

fn switch_remedy(error: &nix::Error) -> &'static str {
    match error {
        nix::Error::ENOPROTOOPT => {
            "; pillion is not running here: start `pillion attach`, or send from within `pillion run`"
        }
        nix::Error::EPERM => "; the rules of the running pillion never bundle connections",
        nix::Error::EINVAL => "; expected at most 2147483647",
        _ => "",
    }
}

fn remedy(error: &nix::Error) -> &'static str {
    match error {
        nix::Error::EMFILE => "; raise the limit with `ulimit -n`",
        _ => "",
    }
}
