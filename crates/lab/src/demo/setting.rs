use std::fmt;

use crate::settings::experiment::{Limit, Loss, Run};
use crate::traffic::Distribution;

/// The demo's run in a few numbers.
#[derive(Debug)]
pub struct Setting<'a> {
    /// Streams in each group.
    pub(super) streams: u16,
    /// Payload of a message in bytes.
    pub(super) size: f64,
    /// Mean inter-transmission time in milliseconds.
    pub(super) itt_ms: f64,
    /// Standard deviation of the inter-transmission time in milliseconds.
    pub(super) itt_sd_ms: f64,
    /// Round-trip time in milliseconds, half of it in each direction.
    pub(super) rtt_ms: f64,
    /// Share of packets lost in the data direction, 0 to 1.
    pub(super) loss: f64,
    /// Seconds of sending.
    pub(super) seconds: f64,
    /// Packets that may wait where the path has a rate.
    pub(super) queue: u32,
    /// Congestion control of all streams.
    pub(super) congestion: &'a str,
}

impl<'a> Setting<'a> {
    /// Takes it from a run of one group; what the run does not say is 0.
    #[must_use]
    pub fn of(run: &'a Run) -> Self {
        let traffic = run.group.values().next().map(|group| &group.traffic);
        let itt = traffic.and_then(|traffic| traffic.itt.as_ref());
        let size = traffic.and_then(|traffic| traffic.size.as_ref());
        Self {
            streams: traffic.map_or(0, |traffic| traffic.streams),
            size: size.map_or(0.0, Distribution::mean),
            itt_ms: itt.map_or(0.0, Distribution::mean),
            itt_sd_ms: match itt {
                Some(Distribution::Normal { sd, .. }) => *sd,
                _ => 0.0,
            },
            rtt_ms: run.path.rtt.as_secs_f64() * 1e3,
            loss: match run.path.forward.loss {
                Some(Loss::Uniform(share)) => share,
                _ => 0.0,
            },
            seconds: run.duration.0.as_secs_f64(),
            queue: match run.bottleneck.forward.limit {
                Some(Limit::Packets(packets)) => packets,
                _ => 0,
            },
            congestion: traffic
                .and_then(|traffic| traffic.congestion.as_deref())
                .unwrap_or_default(),
        }
    }
}

impl fmt::Display for Setting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{0} plain and {0} bundled streams, {1} B each {2} ms, RTT {3} ms, loss {4} %, {5} s",
            self.streams,
            self.size,
            self.itt_ms,
            self.rtt_ms,
            (self.loss * 1e8).round() / 1e6,
            self.seconds,
        )
    }
}
