//! What each kind of stream got of the bottleneck.

use std::time::{Duration, Instant};

use pillion_lab::{Seen, fates};

/// The segments of one kind of stream, while the thin ones were sending.
#[derive(Debug, Clone, Copy, Default)]
pub struct Share {
    /// Segments with payload.
    pub sent: u64,
    /// Of these, those that did not arrive.
    pub lost: u64,
    /// Of all that arrived in that time, IP and TCP headers included.
    pub arrived_bytes: u64,
}

impl Share {
    /// Of the streams to a port; `sent` and `arrived` are what passed the two hosts' devices.
    pub fn of(
        port: u16,
        sent: &[Seen],
        arrived: &[Seen],
        begin: Instant,
        duration: Duration,
    ) -> Self {
        let counts =
            |seen: &&Seen| seen.ports[1] == port && seen.at >= begin && seen.at < begin + duration;
        let mut share = Self::default();
        for (packet, arrived) in sent.iter().zip(fates(sent, arrived)) {
            if counts(&packet) {
                share.sent += 1;
                share.lost += u64::from(!arrived);
            }
        }
        let lengths = arrived.iter().filter(counts).map(|seen| seen.length);
        share.arrived_bytes = lengths.map(u64::from).sum();
        share
    }

    pub fn loss(self) -> Option<f64> {
        (self.sent > 0).then(|| self.lost as f64 / self.sent as f64)
    }

    pub fn mbit_per_s(self, duration: Duration) -> f64 {
        self.arrived_bytes as f64 * 8e-6 / duration.as_secs_f64()
    }
}
