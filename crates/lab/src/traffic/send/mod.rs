//! The sender.

mod answers;
mod connect;
mod connected;
mod datagrams;
mod error;
mod pace;
mod report;
mod source;
mod stream;
mod switch;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

pub use connected::Connected;
pub use error::SendError;
pub use report::{GroupSent, SendLateness, SendReport, StreamSent};

use crate::traffic::clock::{now_ns, ns};
use crate::traffic::plan::Traffic;
use crate::traffic::poller::SystemError;
use crate::traffic::record::Record;
use source::Source;

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
        let sockets = connect::connect_all(&self.traffic, stop)?;
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

impl From<SystemError> for SendError {
    fn from(SystemError { call, source }: SystemError) -> Self {
        Self::System { call, source }
    }
}
