use std::time::Duration;

use crate::traffic::Traffic;
use clap::Args;

use pillion_cli::settings::times::parse_duration;

/// How streams are sent, whatever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct Sending {
    /// Threads among which the streams are dealt out
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,

    /// Seconds that all connections together may take to establish
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_duration)]
    pub connect_timeout: Duration,

    /// Seconds that what is still on its way may take after the last message
    #[arg(long, value_name = "S", default_value = "30", value_parser = parse_duration)]
    pub drain_timeout: Duration,
}

impl Sending {
    /// Has traffic sent with these threads and timeouts.
    #[must_use]
    pub fn send(&self, traffic: Traffic) -> Traffic {
        Traffic {
            threads: self.threads,
            connect_timeout: self.connect_timeout,
            drain_timeout: self.drain_timeout,
            ..traffic
        }
    }
}
