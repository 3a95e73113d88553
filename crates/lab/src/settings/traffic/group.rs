//! A group of streams, and the kinds that it can be of.

use std::time::Duration;

use clap::{Args, ValueEnum};
use pillion_cli::settings::text;
use pillion_cli::settings::times::{self};
use serde::{Deserialize, Serialize};

use super::{Writes, Wrong};
use crate::settings::{Itt, Rate, numbers};
use crate::traffic::{Distribution, Kind, RampUp, SocketOptions, profiles};

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
    /// The first option that does not go with the kind.
    pub fn group(&self) -> Result<crate::traffic::Group, Wrong> {
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

/// What each stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// A message each inter-transmission time, whatever TCP does
    #[default]
    Thin,
    /// A message of always the same size on a fixed beat
    Isochronous,
    /// A message of every stream at each tick, as a game server sends
    Burst,
    /// As much as TCP takes
    Greedy,
    /// A message, its answer, a time to think, and the next
    RequestResponse,
    /// A connection that opens when the stream starts, sends its messages at once, and closes
    Flow,
    /// The writes of a list, once
    Replay,
    /// UDP datagrams at a rate, whatever becomes of them
    Datagrams,
}

impl KindName {
    /// The kind's name on the command line and in files.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }

    /// Whether an option says something of it.
    pub(super) fn has(self, option: &str) -> bool {
        use KindName::{Burst, Datagrams, Flow, Isochronous, Replay, RequestResponse, Thin};
        match option {
            "itt" => matches!(self, Thin | Isochronous | Burst | Flow),
            "ramp-up" => self != Flow,
            "size" => self != Replay,
            "writes" => self == Replay,
            "think" | "answer" => self == RequestResponse,
            "rate" => self == Datagrams,
            "nagle" | "linear-timeouts" | "congestion" | "pillion" | "max-packets" | "bundle" => {
                self != Datagrams
            }
            _ => true,
        }
    }
}

impl Group {
    /// What its streams do.
    ///
    /// # Errors
    /// The first option that says something which the kind has not, or which must be fixed; or that
    /// stands beside a profile.
    pub(super) fn made_kind(&self) -> Result<Kind, Wrong> {
        let given = [
            ("kind", self.kind.is_some()),
            ("itt", self.itt.is_some()),
            ("size", self.size.is_some()),
            ("think", self.think.is_some()),
            ("answer", self.answer.is_some()),
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
                    let text = format!("`{option}` beside `profile`, which says it; leave one out");
                    Err(Wrong::new(option, text))
                }
                None => profile(name),
            };
        }
        let kind = self.kind.unwrap_or_default();
        match given
            .chain(self.options_of_tcp())
            .find(|option| !kind.has(option))
        {
            Some(option) => Err(surplus_of(kind, option)),
            None => self.made(kind),
        }
    }

    /// The options given that say something of connections.
    fn options_of_tcp(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("nagle", self.nagle),
            ("linear-timeouts", self.linear_timeouts),
            ("congestion", self.congestion.is_some()),
            ("pillion", self.pillion.is_some()),
            ("max-packets", self.max_packets.is_some()),
        ];
        given
            .into_iter()
            .filter(|(_, given)| *given)
            .map(|(option, _)| option)
    }

    fn made(&self, kind: KindName) -> Result<Kind, Wrong> {
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
                itt: self.beat()?,
                size: bytes("size", Some(&size), 120)?,
            },
            Burst => Kind::Burst {
                tick: self.beat()?,
                size,
            },
            Greedy => Kind::Greedy {
                write: bytes("size", self.size.as_ref(), 65_536)?,
            },
            RequestResponse => Kind::RequestResponse {
                think: self.think.clone().unwrap_or(Distribution::constant(100.0)),
                size,
                answer: self.answer.unwrap_or(120),
            },
            Flow => Kind::Flow {
                arrival: self.itt.clone().unwrap_or(Distribution::constant(100.0)),
                size,
            },
            Replay => {
                let none = || {
                    let text = "`kind` replay without `writes`; give the list, as in \
                                \"file:writes.csv\"";
                    Wrong::new("kind", text.to_owned())
                };
                let super::Writes(writes) = self.writes.clone().ok_or_else(none)?;
                Kind::Replay { writes, speed: 1.0 }
            }
            Datagrams => {
                let none = || {
                    let text = "`kind` datagrams without `rate`; give Mbit/s, as in 20";
                    Wrong::new("kind", text.to_owned())
                };
                Kind::Datagrams {
                    size: bytes("size", self.size.as_ref(), 1470)?,
                    rate: self.rate.ok_or_else(none)?.bps(),
                }
            }
        })
    }

    fn beat(&self) -> Result<Duration, Wrong> {
        let ms = fixed("itt", self.itt.as_ref(), 100.0)?;
        Duration::try_from_secs_f64(ms / 1e3)
            .map_err(|error| Wrong::new("itt", format!("`itt` {ms}: {error}")))
    }
}

fn surplus_of(kind: KindName, option: &'static str) -> Wrong {
    let kinds = KindName::value_variants().iter();
    let kinds = kinds.filter(|kind| kind.has(option));
    let kinds: Vec<_> = kinds.map(|kind| kind.name()).collect();
    let text = format!(
        "`{option}` goes with `kind` {} and not with {}; leave it out",
        kinds.join(" or "),
        kind.name(),
    );
    Wrong::new(option, text)
}

fn profile(name: &str) -> Result<Kind, Wrong> {
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
        Wrong::new(
            "profile",
            format!("no profile `{name}`; there are: {names}"),
        )
    };
    let kind = found.ok_or_else(unknown)?.kind();
    kind.map_err(|error| Wrong::new("profile", format!("profile {name}: {error}")))
}

fn fixed(option: &'static str, given: Option<&Distribution>, default: f64) -> Result<f64, Wrong> {
    match given {
        None => Ok(default),
        Some(Distribution::Constant { mean }) => Ok(*mean),
        Some(_) => {
            let text = format!("`{option}`: this kind has a fixed one; give a single number");
            Err(Wrong::new(option, text))
        }
    }
}

fn bytes(option: &'static str, given: Option<&Distribution>, default: u32) -> Result<u32, Wrong> {
    let bytes = fixed(option, given, default.into())?;
    match (0.0..=f64::from(u32::MAX)).contains(&bytes) && bytes.fract() == 0.0 {
        true => Ok(bytes as u32),
        false => {
            let text = format!("`{option}` {bytes}: give a whole number of bytes");
            Err(Wrong::new(option, text))
        }
    }
}
