//! The sender.

mod config;
mod connect;
mod error;
mod pace;
mod poller;
mod report;
mod stream;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

pub use config::{ConfigError, SendConfig};
pub use error::SendError;
pub use report::{SendLateness, SendReport, StreamSent};

use crate::wire::Preface;
use pace::Pace;
use poller::Poller;
use stream::Stream;

/// Sends thin streams from the thread (and so the network namespace) that calls [`Sender::run`].
pub struct Sender {
    config: SendConfig,
    /// Messages of each stream, which the schedules fix beforehand.
    planned: Vec<u32>,
    progress: Arc<AtomicU64>,
}

impl Sender {
    /// Checks the configuration and plans the messages; connects to nothing yet.
    pub fn new(config: SendConfig) -> Result<Self, SendError> {
        config.validate()?;
        let planned = (0..config.streams as u32)
            .map(|stream| config.schedule(stream).count() as u32)
            .collect();
        Ok(Self {
            config,
            planned,
            progress: Arc::default(),
        })
    }

    /// Number of messages that a full run sends.
    pub fn planned(&self) -> u64 {
        self.planned.iter().copied().map(u64::from).sum()
    }

    /// Number of messages handed over so far, for another thread to watch.
    pub fn progress(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.progress)
    }

    /// Connects all streams, then sends until the duration is over or `stop` is set (looked at
    /// every 100 ms), then waits for the receiver to close. Stopped early, the receiver counts the
    /// streams as incomplete.
    ///
    /// # Errors
    /// When not all streams connect, or the host refuses a socket, epoll or timer. A stream that
    /// breaks later does not end the others; its error is in the report.
    pub fn run(self, stop: &AtomicBool) -> Result<SendReport, SendError> {
        let mut poller = Poller::new()?;
        let sockets = connect::connect_all(&self.config, &mut poller, stop)?;
        let mut streams: Vec<Stream> = (0..)
            .zip(sockets)
            .zip(&self.planned)
            .map(|((stream, socket), &messages)| {
                let preface = Preface {
                    stream,
                    seed: self.config.seed,
                    messages,
                    size: self.config.size as u32,
                };
                Stream::new(socket, preface, self.config.schedule(stream))
            })
            .collect();
        let mut pace = Pace {
            streams: &mut streams,
            poller: &mut poller,
            scratch: Vec::new(),
            progress: &self.progress,
        };
        let late_ns = pace.send(self.config.duration, stop)?;
        pace.drain(self.config.drain_timeout)?;
        let streams = streams.into_iter().map(Stream::into_report).collect();
        Ok(SendReport::new(streams, &late_ns))
    }
}
