//! The options that describe a group of streams, on the command line and in files.

use clap::ValueEnum;
use pillion_traffic::{ConfigError, Group, RampUp, SocketOptions};

use super::kind::KindArgs;
use crate::times::{Itt, parse_itt};
use pillion_settings::BadInput;

#[derive(Debug, clap::Args)]
pub struct GroupArgs {
    /// TCP connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    streams: u16,

    #[command(flatten)]
    pub kind: KindArgs,

    /// Messages of each stream [default: as many as fall due]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
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

    /// Ask pillion for bundling by its socket option, or decline it [default: as its rules say]
    #[arg(long, value_name = "SWITCH")]
    pillion: Option<Switch>,

    /// Previous segments in a bundle at most, by pillion's socket option; 0: as many as its
    /// rules allow
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    max_packets: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// An option that cannot be as it is, beside the others.
#[derive(Debug)]
pub struct Wrong {
    pub option: &'static str,
    /// What it is, with options in backticks; and after a semicolon, what to do.
    pub text: String,
}

impl Wrong {
    pub fn new(option: &'static str, text: String) -> Self {
        Self { option, text }
    }
}

/// The same on the command line.
pub fn bad_input(wrong: Vec<Wrong>) -> BadInput {
    let text = |Wrong { option, text }: Wrong| {
        let names = [option, "kind"].into_iter();
        names.fold(text, |text, name| {
            text.replace(&format!("`{name}`"), &format!("--{name}"))
        })
    };
    let texts: Vec<_> = wrong.into_iter().map(text).collect();
    BadInput(texts.join("\npillion: "))
}

impl GroupArgs {
    /// The group that they make, called like its kind or profile.
    ///
    /// # Errors
    /// Each option that does not go with the kind.
    pub fn group(&self) -> Result<Group, Vec<Wrong>> {
        let kind = self.kind.kind()?;
        let profile = self.kind.profile.clone();
        let name = profile.unwrap_or_else(|| kind.name().to_owned());
        Ok(Group {
            streams: self.streams.into(),
            messages: self.messages,
            ramp_up: self.ramp_up.map_or(RampUp::Spread, Itt::ramp_up),
            socket: SocketOptions {
                nagle: self.nagle,
                linear_timeouts: self.linear_timeouts,
                congestion: self.congestion.clone(),
                pillion: self.pillion.map(|switch| switch == Switch::On),
                max_packets: self.max_packets,
            },
            ..Group::new(name, kind)
        })
    }
}

/// Which option a mistake of a group is about.
pub fn option_of(error: &ConfigError) -> &'static str {
    match error {
        ConfigError::Streams(_) => "streams",
        ConfigError::Size(_) => "size",
        ConfigError::Distribution { what, .. } if what.contains("size") => "size",
        ConfigError::Distribution { what, .. } if what.contains("think") => "think",
        ConfigError::Distribution { .. } | ConfigError::Itt(_) | ConfigError::Messages { .. } => {
            "itt"
        }
        ConfigError::NoMessages => "messages",
        ConfigError::Start { .. } => "start",
        ConfigError::Duration => "duration",
        ConfigError::RampUp { .. } | ConfigError::RampUpTime(_) => "ramp-up",
        ConfigError::Endless
        | ConfigError::Port(_)
        | ConfigError::SourcePorts { .. }
        | ConfigError::Threads(_)
        | ConfigError::Speed(_)
        | ConfigError::NoWrites => "",
    }
}
