//! How streams are sent, and what the receiving application does with them.

use std::time::Duration;

use clap::Args;
use pillion_cli::settings::times::{self, parse_duration, parse_ms};
use serde::{Deserialize, Serialize};

use super::Wrong;
use crate::settings::numbers;
use crate::traffic::wire::MAX_SIZE;
use crate::traffic::{Answering, Manner, Reading, Traffic};

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

/// What the receiving application does with what comes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Receiving {
    /// Read so many milliseconds after something has come [default: at once]
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    #[serde(with = "times::milliseconds")]
    pub read_delay: Option<Duration>,

    /// Read at most so many bytes a second of each connection
    #[arg(long, value_name = "BYTES/S", value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(deserialize_with = "numbers::some_positive")]
    pub read_rate: Option<u64>,

    /// Send back every byte
    #[arg(long)]
    pub echo: bool,

    /// Answer each N-th message; streams that ask for answers themselves get those
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(deserialize_with = "numbers::some_positive")]
    pub answer_every: Option<u32>,

    /// Payload of such an answer in bytes [default: that of the message]
    #[arg(long, value_name = "BYTES",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SIZE)))]
    #[serde(deserialize_with = "numbers::some_size")]
    pub answer_size: Option<u32>,
}

impl Receiving {
    /// What that is for the receiver.
    ///
    /// # Errors
    /// The first option that does not go with the others.
    pub fn manner(&self) -> Result<Manner, Wrong> {
        let wrong = |option, text: &str| Err(Wrong::new(option, text.to_owned()));
        if self.read_delay.is_some() && self.read_rate.is_some() {
            let text = "`read-rate` says when to read, and so does `read-delay`; keep one of them";
            return wrong("read-rate", text);
        }
        if self.echo && self.answer_every.is_some() {
            let text = "`echo` sends back all that comes, and `answer-every` something else; keep \
                        one of them";
            return wrong("answer-every", text);
        }
        if self.answer_size.is_some() && self.answer_every.is_none() {
            let text = "`answer-size` is that of the answers which `answer-every` asks for; give \
                        that as well";
            return wrong("answer-size", text);
        }
        Ok(Manner {
            reading: match (self.read_delay, self.read_rate) {
                (Some(delay), _) => Reading::Late(delay),
                (None, Some(rate)) => Reading::Rate(rate),
                (None, None) => Reading::AtOnce,
            },
            answering: match (self.echo, self.answer_every) {
                (true, _) => Answering::Echo,
                (false, None) => Answering::AsAsked,
                (false, Some(messages)) => Answering::Every {
                    messages,
                    size: self.answer_size,
                },
            },
        })
    }
}
