//! Group of streams, and its kinds.

use std::time::Duration;

use clap::{Args, ValueEnum};
use pillion_cli::settings::text;
use pillion_cli::settings::times::{self};
use serde::{Deserialize, Serialize};

use super::{InvalidOption, Writes};
use crate::settings::time_text::{self, Itt, parse_time_distribution};
use crate::settings::{Rate, numbers};
use crate::traffic::{Distribution, Kind, RampUp, SocketOptions, profiles};

/// Streams with the same settings: one group on the command line, several in a file.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Group {
    /// Name in reports; otherwise the profile or the kind.
    #[arg(skip)]
    pub name: Option<String>,

    /// Start of sending, counted from when all connections are established.
    #[arg(skip)]
    #[serde(with = "times::seconds")]
    pub start: Duration,

    /// Maximum time of sending after `start`.
    #[arg(skip)]
    pub duration: Option<times::PositiveDuration>,

    /// TCP connections, or streams of datagrams
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(deserialize_with = "numbers::positive")]
    pub streams: u16,

    /// Kind of traffic of each stream [default: thin]
    #[arg(long, value_enum)]
    pub kind: Option<KindName>,

    /// Send with the sizes and times of an application, from `pillion-lab traffic profiles`
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,

    /// Time between two messages (kinds thin, isochronous and burst) or between the starts of two
    /// streams (kind flow): 30ms, 30ms:3ms (normal), exponential:30ms, pareto:30ms:1.5,
    /// lognormal:30ms:10ms or table:FILE [default: 100ms:10ms, or 100ms if it must be fixed]
    #[arg(long, value_name = "TIME", value_parser = parse_time_distribution)]
    #[serde(with = "time_text::option")]
    pub itt: Option<Distribution>,

    /// Payload of a message in bytes: 120, 120:20 and so on, as for --itt [default: 120, greedy
    /// 65536, datagrams 1470]
    #[arg(long, value_name = "BYTES")]
    #[serde(with = "text::option")]
    pub size: Option<Distribution>,

    /// Time from a response to the next message (kind request-response), in the form of --itt
    /// [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = parse_time_distribution)]
    #[serde(with = "time_text::option")]
    pub think: Option<Distribution>,

    /// Payload of a response in bytes (kind request-response) [default: 120]
    #[arg(long, value_name = "BYTES")]
    pub response_size: Option<u32>,

    /// Payload rate of each stream, as in 2.5mbit (kind datagrams)
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,

    /// Writes of an application (kind replay): file:FILE, CSV with the header gap_ms,size, or
    /// list:GAP=SIZE,... as in list:12.5ms=120,30ms=80
    #[arg(long, value_name = "WRITES")]
    #[serde(with = "text::option")]
    pub writes: Option<Writes>,

    /// Messages of each stream [default: as many as are due]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(deserialize_with = "numbers::some_positive")]
    pub messages: Option<u64>,

    /// Time between the starts of two streams, and its standard deviation [default: the
    /// inter-transmission time divided by the number of streams; 0ms for kind burst and without
    /// that time]
    #[arg(long, value_name = "TIME[:SD]")]
    #[serde(with = "time_text::option")]
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

    /// Request bundling from pillion by its socket option, or refuse it [default: as the rules
    /// define]
    #[arg(long, value_name = "SWITCH", value_enum)]
    pub pillion: Option<Switch>,

    /// Maximum previous segments in a bundle, by pillion's socket option; 0: as many as the rules
    /// allow
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    #[serde(deserialize_with = "numbers::some_int")]
    pub max_packets: Option<u32>,

    /// Retransmissions of an unanswered SYN before the connection fails, 1 to 127 (TCP_SYNCNT)
    /// [default: the host's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=127))]
    #[serde(deserialize_with = "numbers::some_syn_retries")]
    pub syn_retries: Option<u8>,

    /// Connect again, from the same port, when a connection is not answered
    #[arg(long)]
    pub reconnect: bool,
}

/// Request of an application to pillion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Switch {
    /// Bundle
    On,
    /// Do not bundle
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
            response_size: None,
            rate: None,
            writes: None,
            messages: None,
            ramp_up: None,
            nagle: false,
            linear_timeouts: false,
            congestion: None,
            pillion: None,
            max_packets: None,
            syn_retries: None,
            reconnect: false,
        }
    }
}

impl Group {
    /// Converts the options to a group. Without a name, it is named after its profile or kind.
    ///
    /// # Errors
    /// The first option that does not apply to the kind.
    pub fn group(&self) -> Result<crate::traffic::Group, InvalidOption> {
        let kind = self.traffic_kind()?;
        let name = self.name.clone().or(self.profile.clone());
        let name = name.unwrap_or_else(|| kind.name().to_owned());
        Ok(crate::traffic::Group {
            name,
            streams: self.streams.into(),
            kind,
            messages: self.messages,
            start: self.start,
            duration: self.duration.map(|times::PositiveDuration(time)| time),
            ramp_up: self.ramp_up.map_or(RampUp::Spread, Itt::ramp_up),
            connects_at_start: false,
            reconnect: self.reconnect,
            socket: SocketOptions {
                nagle: self.nagle,
                linear_timeouts: self.linear_timeouts,
                congestion: self.congestion.clone(),
                pillion: self.pillion.map(|switch| switch == Switch::On),
                max_packets: self.max_packets,
                syn_retries: self.syn_retries,
            },
        })
    }
}

/// Kind of traffic of each stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// A message per inter-transmission time, regardless of TCP's state
    #[default]
    Thin,
    /// Messages of the same size at a fixed interval
    Isochronous,
    /// A message of every stream at each tick, like a game server
    Burst,
    /// As much as TCP accepts
    Greedy,
    /// A message, its response, a think time, then the next message
    RequestResponse,
    /// A connection that opens when the stream starts, sends its messages immediately, and closes
    Flow,
    /// The writes of a list, once
    Replay,
    /// UDP datagrams at a fixed rate, regardless of loss
    Datagrams,
}

impl KindName {
    /// Returns the kind's name on the command line and in files.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Returns whether an option applies to this kind.
    pub(super) fn accepts(self, option: &str) -> bool {
        use KindName::{Burst, Datagrams, Flow, Isochronous, Replay, RequestResponse, Thin};
        match option {
            "itt" => matches!(self, Thin | Isochronous | Burst | Flow),
            "ramp-up" => self != Flow,
            "size" => self != Replay,
            "writes" => self == Replay,
            "think" | "response-size" => self == RequestResponse,
            "rate" => self == Datagrams,
            "nagle" | "linear-timeouts" | "congestion" | "pillion" | "max-packets" | "bundle"
            | "syn-retries" => self != Datagrams,
            // A flow connects when it starts, and its time counts from then.
            "reconnect" => !matches!(self, Datagrams | Flow),
            _ => true,
        }
    }
}

impl Group {
    /// Returns the streams' traffic.
    ///
    /// # Errors
    /// The first option that does not apply to the kind, that must be fixed, or that the profile
    /// replaces.
    pub(super) fn traffic_kind(&self) -> Result<Kind, InvalidOption> {
        let given = [
            ("kind", self.kind.is_some()),
            ("itt", self.itt.is_some()),
            ("size", self.size.is_some()),
            ("think", self.think.is_some()),
            ("response-size", self.response_size.is_some()),
            ("writes", self.writes.is_some()),
            ("rate", self.rate.is_some()),
        ];
        let ramp_up = ("ramp-up", self.ramp_up.is_some() && self.profile.is_none());
        let given = given.into_iter().chain([ramp_up]);
        let given = given.filter(|(_, given)| *given);
        let mut given = given.map(|(option, _)| option);
        if let Some(name) = &self.profile {
            return match given.next() {
                Some(option) => {
                    let text =
                        format!("`{option}` contradicts `profile`, which sets it; remove one");
                    Err(InvalidOption::new(option, text))
                }
                None => profile(name),
            };
        }
        let kind = self.kind.unwrap_or_default();
        match given
            .chain(self.tcp_options())
            .find(|option| !kind.accepts(option))
        {
            Some(option) => Err(inapplicable(kind, option)),
            None => self.build_kind(kind),
        }
    }

    /// Returns the given options that apply to TCP connections only.
    fn tcp_options(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("nagle", self.nagle),
            ("linear-timeouts", self.linear_timeouts),
            ("congestion", self.congestion.is_some()),
            ("pillion", self.pillion.is_some()),
            ("max-packets", self.max_packets.is_some()),
            ("syn-retries", self.syn_retries.is_some()),
            ("reconnect", self.reconnect),
        ];
        given
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(option, _)| option)
    }

    fn build_kind(&self, kind: KindName) -> Result<Kind, InvalidOption> {
        use KindName::{
            Burst, Datagrams, Flow, Greedy, Isochronous, Replay, RequestResponse, Thin,
        };
        let size = self.size.clone().unwrap_or(Distribution::constant(120.0));
        Ok(match kind {
            Thin => Kind::Thin {
                itt: self.itt.clone().unwrap_or(Distribution::Normal {
                    mean: 100.0,
                    sd: 10.0,
                }),
                size,
            },
            Isochronous => Kind::Isochronous {
                itt: self.interval()?,
                size: bytes("size", Some(&size), 120)?,
            },
            Burst => Kind::Burst {
                tick: self.interval()?,
                size,
            },
            Greedy => Kind::Greedy {
                write: bytes("size", self.size.as_ref(), 65_536)?,
            },
            RequestResponse => Kind::RequestResponse {
                think: self.think.clone().unwrap_or(Distribution::constant(100.0)),
                size,
                answer: self.response_size.unwrap_or(120),
            },
            Flow => Kind::Flow {
                arrival: self.itt.clone().unwrap_or(Distribution::constant(100.0)),
                size,
            },
            Replay => {
                let none = || {
                    let text = "`kind` replay needs `writes`, as in \
                                \"file:writes.csv\"";
                    InvalidOption::new("kind", text.to_owned())
                };
                let super::Writes(writes) = self.writes.clone().ok_or_else(none)?;
                Kind::Replay { writes, speed: 1.0 }
            }
            Datagrams => {
                let none = || {
                    let text = "`kind` datagrams needs a rate: `rate = 20` (Mbit/s) in files, `--rate 20mbit` on the command line";
                    InvalidOption::new("kind", text.to_owned())
                };
                Kind::Datagrams {
                    size: bytes("size", self.size.as_ref(), 1470)?,
                    rate: self.rate.ok_or_else(none)?.bps(),
                }
            }
        })
    }

    fn interval(&self) -> Result<Duration, InvalidOption> {
        let ms = fixed("itt", self.itt.as_ref(), 100.0)?;
        Duration::try_from_secs_f64(ms / 1e3)
            .map_err(|error| InvalidOption::new("itt", format!("`itt` {ms}: {error}")))
    }
}

fn inapplicable(kind: KindName, option: &'static str) -> InvalidOption {
    let kinds = KindName::value_variants().iter();
    let kinds = kinds.filter(|kind| kind.accepts(option));
    let kinds: Vec<_> = kinds.map(|kind| kind.name()).collect();
    let text = format!(
        "`{option}` applies to `kind` {}, not to {}; remove it",
        kinds.join(" or "),
        kind.name(),
    );
    InvalidOption::new(option, text)
}

fn profile(name: &str) -> Result<Kind, InvalidOption> {
    let profiles = profiles();
    let found = profiles.iter().find(|profile| profile.name == name);
    let names = || {
        profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect::<Vec<_>>()
    };
    let unknown = || {
        let names = names().join(", ");
        InvalidOption::new(
            "profile",
            format!("unknown profile `{name}`; known: {names}"),
        )
    };
    let kind = found.ok_or_else(unknown)?.kind();
    kind.map_err(|error| InvalidOption::new("profile", format!("profile {name}: {error}")))
}

fn fixed(
    option: &'static str,
    given: Option<&Distribution>,
    default: f64,
) -> Result<f64, InvalidOption> {
    match given {
        None => Ok(default),
        Some(Distribution::Constant { mean }) => Ok(*mean),
        Some(_) => {
            let text = format!("`{option}` must be fixed for this kind; give a single number");
            Err(InvalidOption::new(option, text))
        }
    }
}

fn bytes(
    option: &'static str,
    given: Option<&Distribution>,
    default: u32,
) -> Result<u32, InvalidOption> {
    let bytes = fixed(option, given, default.into())?;
    match (0.0..=f64::from(u32::MAX)).contains(&bytes) && bytes.fract() == 0.0 {
        true => Ok(bytes as u32),
        false => {
            let text = format!("`{option}` {bytes}: give a whole number of bytes");
            Err(InvalidOption::new(option, text))
        }
    }
}
