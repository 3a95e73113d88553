use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use pillion_traffic::{Group, RampUp, SocketOptions, Traffic};

use super::kind::KindArgs;
use super::sending;
use crate::times::{Itt, parse_itt, parse_s};

/// Send streams to `pillion traffic receive`
///
/// All connections are made first; then each stream sends as its kind says. docs/traffic.md
/// describes the kinds.
#[derive(clap::Args)]
pub struct Args {
    /// The receiver
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,

    /// TCP connections
    #[arg(long, value_name = "N", default_value_t = 1)]
    streams: usize,

    #[command(flatten)]
    kind: KindArgs,

    /// Seconds of sending [default: 10, or until all messages are sent]
    #[arg(long, value_name = "S", value_parser = parse_s)]
    duration: Option<Duration>,

    /// Messages of each stream [default: as many as fall due]
    #[arg(long, value_name = "N")]
    messages: Option<u64>,

    /// Milliseconds between the starts of two streams, and their standard deviation
    /// [default: the inter-transmission time divided by the number of streams; kinds burst and
    /// greedy all start at once]
    #[arg(long, value_name = "MS[:SD]", value_parser = parse_itt)]
    ramp_up: Option<Itt>,

    /// Leave Nagle's algorithm on
    #[arg(long)]
    nagle: bool,

    /// Linear time-outs for thin streams (TCP_THIN_LINEAR_TIMEOUTS)
    #[arg(long)]
    linear_timeouts: bool,

    /// Congestion control of the connections [default: the host's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,

    /// Seed of times, sizes and content
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    #[command(flatten)]
    sending: sending::SendingArgs,
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let kind = self.kind.kind()?;
        let group = Group {
            streams: self.streams,
            messages: self.messages,
            ramp_up: self.ramp_up.map_or(RampUp::Spread, Itt::ramp_up),
            socket: SocketOptions {
                nagle: self.nagle,
                linear_timeouts: self.linear_timeouts,
                congestion: self.congestion,
            },
            ..Group::new(kind.name(), kind)
        };
        let default = self.messages.is_none().then_some(sending::DURATION);
        let traffic = Traffic {
            duration: self.duration.or(default),
            seed: self.seed,
            ..Traffic::new(self.to, group)
        };
        self.sending.execute(traffic)
    }
}
