//! What a run of an experiment is: a testbed, the streams on it, and what is measured.
//!
//! The testbed is that of the papers (LCN 2015, section IV.B; thesis, chapter 3): sending hosts,
//! a bridge, a router with a rate and a queue, an emulator with delay and loss, a receiver.

mod bottleneck;
mod check;
mod emulation;
mod host;
mod measure;
mod mechanism;
mod round_trips;
mod streams;

use std::collections::BTreeMap;
use std::time::Duration;

pub use bottleneck::{Bottleneck, Discipline, Limit, Queue, Shaper};
pub use check::{RunError, RunMistake};
pub use emulation::{Disturbance, Emulation, Jitter};
pub use host::SendingHost;
pub use measure::Measure;
pub use mechanism::{Mechanism, Setting};
/// Which packets of one direction are lost, behind the bottleneck.
pub use pillion_path::Loss;
pub use round_trips::RoundTrips;
pub use streams::Streams;

/// Kernel parameters by name, as in `net.ipv4.tcp_retrans_collapse`.
pub type Sysctls = BTreeMap<String, String>;

/// One run: nothing is left to choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// How long messages fall due, from the barrier on.
    pub duration: Duration,
    /// Seed of losses, times, sizes and content; in the virtual engine of the kernel as well.
    pub seed: u64,
    /// The router's way to the receiver.
    pub bottleneck: Bottleneck,
    /// What the emulator does to packets on their way to the receiver.
    pub forward: Emulation,
    /// What it does to those on their way back.
    pub backward: Emulation,
    /// Where streams come from, each at least one group's.
    pub hosts: Vec<SendingHost>,
    /// What is sent.
    pub streams: Vec<Streams>,
    /// Of every host.
    pub sysctls: Sysctls,
    /// What is written down.
    pub measure: Measure,
}

impl Run {
    /// The path's own round-trip time, without queues and the links' own delays.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Bytes that the bottleneck sends in one round-trip time, if it has a rate.
    #[must_use]
    pub fn bdp_bytes(&self) -> Option<f64> {
        let rate = self.bottleneck.rate_bps?;
        Some(rate as f64 / 8.0 * self.rtt().as_secs_f64())
    }
}
