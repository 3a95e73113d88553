use std::time::Duration;

use crate::traffic::{Distribution, RampUp, SocketOptions};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::{KindName, Writes, Wrong};
use crate::settings::Itt;
use crate::settings::{Rate, numbers};
use pillion_cli::settings::text;
use pillion_cli::settings::times::{self};

/// Streams that are alike: one group on the command line, and each one of a file.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Group {
    /// What reports call it; else its profile or kind.
    #[arg(skip)]
    pub name: Option<String>,

    /// When it begins, after all connections are made.
    #[arg(skip)]
    #[serde(with = "times::seconds")]
    pub start: Duration,

    /// How long it sends after that at most.
    #[arg(skip)]
    pub duration: Option<times::Length>,

    /// TCP connections, or streams of datagrams
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(deserialize_with = "numbers::positive")]
    pub streams: u16,

    /// What each stream does [default: thin]
    #[arg(long, value_enum)]
    pub kind: Option<KindName>,

    /// Send with the sizes and times of an application that `pillion-lab traffic profiles` lists
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,

    /// Milliseconds between two messages (kinds thin, isochronous and burst), or between the starts
    /// of two streams (kind flow): MEAN, MEAN:SD
    /// (normal), exponential:MEAN, pareto:MEAN:SHAPE, lognormal:MEAN:SD or table:FILE
    /// [default: 100:10, and 100 where it must be fixed]
    #[arg(long, value_name = "MS")]
    #[serde(with = "text::option")]
    pub itt: Option<Distribution>,

    /// Payload of a message in bytes, in the same ways [default: 120, greedy 65536,
    /// datagrams 1470]
    #[arg(long, value_name = "BYTES")]
    #[serde(with = "text::option")]
    pub size: Option<Distribution>,

    /// Milliseconds from an answer to the next message (kind request-response), in the same
    /// ways [default: 100]
    #[arg(long, value_name = "MS")]
    #[serde(with = "text::option")]
    pub think: Option<Distribution>,

    /// Payload of an answer in bytes (kind request-response) [default: 120]
    #[arg(long, value_name = "BYTES")]
    pub answer: Option<u32>,

    /// Payload of each stream in Mbit/s (kind datagrams)
    #[arg(long, value_name = "MBIT/S")]
    pub rate: Option<Rate>,

    /// What an application wrote (kind replay): file:FILE, CSV with the heading gap_ms,size, or
    /// list:GAP=SIZE,...
    #[arg(long, value_name = "WRITES")]
    #[serde(with = "text::option")]
    pub writes: Option<Writes>,

    /// Messages of each stream [default: as many as fall due]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(deserialize_with = "numbers::some_positive")]
    pub messages: Option<u64>,

    /// Milliseconds between the starts of two streams, and their standard deviation
    /// [default: the inter-transmission time divided by the number of streams; where there is none,
    /// and of kind burst, all start at once]
    #[arg(long, value_name = "MS[:SD]")]
    #[serde(with = "text::option")]
    pub ramp_up: Option<Itt>,

    /// Leave Nagle's algorithm on
    #[arg(long)]
    pub nagle: bool,

    /// Linear time-outs for thin streams (TCP_THIN_LINEAR_TIMEOUTS)
    #[arg(long)]
    pub linear_timeouts: bool,

    /// Congestion control of the connections [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub congestion: Option<String>,

    /// Ask pillion for bundling by its socket option, or decline it [default: as its rules say]
    #[arg(long, value_name = "SWITCH", value_enum)]
    pub pillion: Option<Switch>,

    /// Previous segments in a bundle at most, by pillion's socket option; 0: as many as its
    /// rules allow
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    #[serde(deserialize_with = "numbers::some_int")]
    pub max_packets: Option<u32>,
}

/// What an application asks of pillion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// To bundle
    On,
    /// Not to
    Off,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: None,
            start: Duration::ZERO,
            duration: None,
            streams: 1,
            kind: None,
            profile: None,
            itt: None,
            size: None,
            think: None,
            answer: None,
            rate: None,
            writes: None,
            messages: None,
            ramp_up: None,
            nagle: false,
            linear_timeouts: false,
            congestion: None,
            pillion: None,
            max_packets: None,
        }
    }
}

impl Group {
    /// What is to be sent; without a name, it is called like its kind or profile.
    ///
    /// # Errors
    /// Each option that does not go with the kind.
    pub fn group(&self) -> Result<crate::traffic::Group, Vec<Wrong>> {
        let kind = self.made_kind()?;
        let name = self.name.clone().or(self.profile.clone());
        let name = name.unwrap_or_else(|| kind.name().to_owned());
        Ok(crate::traffic::Group {
            name,
            streams: self.streams.into(),
            kind,
            messages: self.messages,
            start: self.start,
            duration: self.duration.map(|times::Length(time)| time),
            ramp_up: self.ramp_up.map_or(RampUp::Spread, Itt::ramp_up),
            connects_at_start: false,
            socket: SocketOptions {
                nagle: self.nagle,
                linear_timeouts: self.linear_timeouts,
                congestion: self.congestion.clone(),
                pillion: self.pillion.map(|switch| switch == Switch::On),
                max_packets: self.max_packets,
            },
        })
    }
}
