//! Options of the sender as a whole, and of the receiving application.

use std::time::Duration;

use clap::Args;
use pillion_cli::settings::times::{self, parse_duration};
use serde::{Deserialize, Serialize};

use super::InvalidOption;
use crate::settings::numbers;
use crate::traffic::wire::MAX_SIZE;
use crate::traffic::{ReadMode, ReceiveBehaviour, ResponseMode, Traffic};

/// Options of the sender that apply to all groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args)]
pub struct SenderOptions {
    /// Threads that share the streams
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,

    /// Time for all connections to be established
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub connect_timeout: Duration,

    /// Time for outstanding data and responses after the last message
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub drain_timeout: Duration,
}

impl SenderOptions {
    /// Applies the threads and timeouts to traffic.
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

/// Behaviour of the receiving application.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ReceiverOptions {
    /// Read this long after data has arrived [default: read immediately]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[serde(with = "times::milliseconds")]
    pub read_delay: Option<Duration>,

    /// Read at most this many bytes per second from each connection
    #[arg(long, value_name = "BYTES/S", value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(deserialize_with = "numbers::some_positive")]
    pub read_rate: Option<u64>,

    /// Send every byte back
    #[arg(long)]
    pub echo: bool,

    /// Respond to every N-th message; streams that request responses get those instead
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(deserialize_with = "numbers::some_positive")]
    pub response_every: Option<u32>,

    /// Payload of such a response in bytes [default: size of the message]
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    #[serde(deserialize_with = "numbers::some_size")]
    pub response_size: Option<u32>,
}

impl ReceiverOptions {
    /// Converts the options for the receiver.
    ///
    /// # Errors
    /// The first option that contradicts another.
    pub fn behaviour(&self) -> Result<ReceiveBehaviour, InvalidOption> {
        let invalid = |option, text: &str| Err(InvalidOption::new(option, text.to_owned()));
        if self.read_delay.is_some() && self.read_rate.is_some() {
            let text = "`read-rate` and `read-delay` exclude each other; remove one";
            return invalid("read-rate", text);
        }
        if self.echo && self.response_every.is_some() {
            let text = "`echo` and `response-every` exclude each other; remove one";
            return invalid("response-every", text);
        }
        if self.response_size.is_some() && self.response_every.is_none() {
            let text = "`response-size` needs `response-every`; set that as well";
            return invalid("response-size", text);
        }
        Ok(ReceiveBehaviour {
            read_mode: match (self.read_delay, self.read_rate) {
                (Some(delay), _) => ReadMode::Delayed(delay),
                (None, Some(rate)) => ReadMode::Rate(rate),
                (None, None) => ReadMode::Immediate,
            },
            response_mode: match (self.echo, self.response_every) {
                (true, _) => ResponseMode::Echo,
                (false, None) => ResponseMode::AsRequested,
                (false, Some(messages)) => ResponseMode::Every {
                    messages,
                    size: self.response_size,
                },
            },
        })
    }
}
