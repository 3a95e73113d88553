//! One run in the words of its file: groups, hosts, the receiver, the kernel, and what is measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::times::Length;
use pillion_cli::settings::{Bundling, text, times};
use serde::{Deserialize, Serialize};

use super::{Bottlenecks, Mechanisms, Name, OwnWay, Path, Rate, RoundTrips, Sysctls};
use crate::settings::traffic::Receiving;
use crate::settings::{numbers, traffic};

/// One run of an experiment, in the words of its file: nothing is left to choose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    /// In a few words, what the experiment is about.
    #[serde(deserialize_with = "text::some_line")]
    pub title: Option<String>,
    /// How long messages fall due, from the moment when all connections are made.
    pub duration: Length,
    /// Seed of losses, times, sizes and content; in the virtual engine of the kernel as well.
    #[serde(default = "one")]
    pub seed: u32,
    /// Memory of the lab kernel that makes the run, in MiB; `None` leaves it to who makes it.
    #[serde(deserialize_with = "numbers::some_memory")]
    pub memory: Option<u32>,
    /// The lab kernel that makes the run.
    pub kernel: Kernel,
    /// The router.
    pub bottleneck: Bottlenecks,
    /// The emulator.
    pub path: Path,
    /// Kernel parameters of every host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
    /// The receiver and its application.
    pub receiver: Receiver,
    /// What is written down.
    pub measure: Measure,
    /// Sending hosts that groups share, or that differ from others.
    pub host: BTreeMap<Name, Host>,
    /// What is sent.
    pub group: BTreeMap<Name, Group>,
}

fn one() -> u32 {
    1
}

impl Run {
    /// Takes out the hosts that no group's streams come from, and gives their names.
    pub(super) fn take_idle_hosts(&mut self) -> BTreeSet<String> {
        let groups = self.group.iter();
        let used = groups.map(|(name, group)| group.host.as_deref().unwrap_or(name));
        let used: BTreeSet<&str> = used.collect();
        let hosts = std::mem::take(&mut self.host).into_iter();
        let (kept, idle): (BTreeMap<_, _>, BTreeMap<_, _>) =
            hosts.partition(|(name, _)| used.contains(&**name));
        self.host = kept;
        idle.into_keys().map(|name| name.to_string()).collect()
    }

    /// The run as a file of its own, which says every default as well: it stays this run when
    /// pillion's defaults change.
    #[must_use]
    pub fn to_text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

/// Streams that are alike, as files describe them; their name is the table's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Group {
    /// What they send, and how their sockets are set.
    #[serde(flatten)]
    pub traffic: traffic::Group,
    /// Whether they connect when the group is to start, all at once, and not before anything is sent;
    /// they start once all are connected or have failed to, or have waited long.
    pub connects_at_start: bool,
    /// The host that they come from; `None` for one of the group's own name.
    pub host: Option<String>,
    /// Round-trip times that differ from the path's.
    #[serde(with = "text::option")]
    pub rtt: Option<RoundTrips>,
    /// What their packets meet on the way to the receiver.
    #[serde(flatten)]
    pub forward: OwnWay,
    /// What packets meet on the way back to them.
    pub back: OwnWay,
    /// TCP's mechanisms on the group's host.
    pub mechanisms: Mechanisms,
    /// How pillion bundles them; `None` leaves them plain.
    #[serde(with = "bundle")]
    pub bundle: Option<Bundling>,
}

flattened!(Group);

/// `bundle`: whether, or how.
mod bundle {
    use std::fmt;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{Error, MapAccess, Visitor};
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};

    use pillion_cli::settings::Bundling;

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Bundling>, D::Error>
    where
        D: Deserializer<'de>,
    {
        from.deserialize_any(WhetherOrHow)
    }

    pub(super) fn serialize<S: Serializer>(
        bundle: &Option<Bundling>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bundle {
            Some(how) => how.serialize(to),
            None => to.serialize_bool(false),
        }
    }

    struct WhetherOrHow;

    impl<'de> Visitor<'de> for WhetherOrHow {
        type Value = Option<Bundling>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("true, false, or how, as in { max-packets = 1 }")
        }

        fn visit_bool<E: Error>(self, whether: bool) -> Result<Option<Bundling>, E> {
            Ok(whether.then(Bundling::default))
        }

        fn visit_map<A: MapAccess<'de>>(self, how: A) -> Result<Option<Bundling>, A::Error> {
            // By the trait: the function of that name in Bundling lets unknown keys pass.
            Deserialize::deserialize(MapAccessDeserializer::new(how)).map(Some)
        }
    }
}

/// A sending host, as files describe it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Rate of its link; `None` sets none.
    pub rate: Option<Rate>,
    /// Delay of its link, each way.
    #[serde(with = "times::milliseconds")]
    pub delay: Duration,
    /// TCP's mechanisms on it.
    pub mechanisms: Mechanisms,
    /// More kernel parameters of this host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
}

/// The receiver, as files describe it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Receiver {
    /// What its application does with what comes.
    #[serde(flatten)]
    pub application: Receiving,
    /// Whether its TCP may wait for a second segment before it sends an ACK; if not, it
    /// acknowledges each (thesis, tables 4.2 and 5.1: "No DelAck").
    pub delayed_acks: bool,
    /// TCP's mechanisms on it, for what it sends itself.
    pub mechanisms: Mechanisms,
    /// Kernel parameters of this host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
}

impl Default for Receiver {
    /// As stock kernels are.
    fn default() -> Self {
        Self {
            application: Receiving::default(),
            delayed_acks: true,
            mechanisms: Mechanisms::default(),
            sysctl: Sysctls::new(),
        }
    }
}

flattened!(Receiver);

/// The lab kernel that makes a run: the clock of all its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kernel {
    /// How often the clock ticks (`HZ`): 100, 250, 300 or 1000 times a second.
    #[serde(deserialize_with = "numbers::ticks")]
    pub ticks_per_second: u32,
    /// Whether timers go off when they are due (`highres`), and not at the next tick.
    pub high_resolution_timers: bool,
}

impl Kernel {
    /// Ticks of the kernel that `make lab-kernel` builds.
    pub const TICKS_PER_SECOND: u32 = 1000;
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            ticks_per_second: Self::TICKS_PER_SECOND,
            high_resolution_timers: true,
        }
    }
}

/// What makes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Kernels of the lab, in virtual time
    Virtual,
    /// This host's kernel, in real time
    Live,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        value.map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// What a run writes down, beside the traffic's own account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measure {
    /// Bytes kept of each packet, in a trace at the bridge and one at the receiver; `None` takes
    /// no traces.
    #[serde(with = "traces")]
    pub traces: Option<u32>,
    /// The time between two samples of every stream's socket; `None` takes none.
    #[serde(with = "sockets")]
    pub sockets: Option<Duration>,
    /// Every packet that enters and leaves the bottleneck's queue.
    pub queue: bool,
    /// Every message's delivery latency.
    pub records: bool,
}

impl Default for Measure {
    /// Traces of the headers, samples ten times a second, the queue, and the records.
    fn default() -> Self {
        Self {
            traces: Some(128),
            sockets: Some(Duration::from_millis(100)),
            queue: true,
            records: true,
        }
    }
}

/// A number, or whether at all.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Switched {
    Whether(bool),
    Number(f64),
}

mod traces {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Measure, Switched};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        match Switched::deserialize(from) {
            Ok(Switched::Whether(true)) => Ok(Measure::default().traces),
            Ok(Switched::Whether(false)) => Ok(None),
            Ok(Switched::Number(bytes))
                if (64.0..=65_535.0).contains(&bytes) && bytes.fract() == 0.0 =>
            {
                Ok(Some(bytes as u32))
            }
            _ => Err(D::Error::custom(
                "expected bytes kept of each packet, 64 to 65535, or false",
            )),
        }
    }

    pub(super) fn serialize<S: Serializer>(bytes: &Option<u32>, to: S) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => bytes.serialize(to),
            None => false.serialize(to),
        }
    }
}

mod sockets {
    use std::time::Duration;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Measure, Switched};
    use pillion_cli::settings::times::{milliseconds, of_ms};

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let every = match Switched::deserialize(from) {
            Ok(Switched::Whether(true)) => return Ok(Measure::default().sockets),
            Ok(Switched::Whether(false)) => return Ok(None),
            Ok(Switched::Number(ms)) => of_ms(ms).filter(|every| every.as_millis() >= 1),
            Err(_) => None,
        };
        let expected = "expected milliseconds between samples, at least 1, or false";
        every.map(Some).ok_or_else(|| D::Error::custom(expected))
    }

    pub(super) fn serialize<S: Serializer>(
        every: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match every {
            Some(every) => milliseconds::serialize(every, to),
            None => false.serialize(to),
        }
    }
}

/// Kernel parameters of a network namespace by name, as in `"net.ipv4.tcp_sack" = 1`.
mod sysctls {
    use std::collections::BTreeMap;
    use std::fmt;

    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::super::Sysctls;
    use pillion_cli::settings::text::Text;

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Sysctls, D::Error> {
        let all = BTreeMap::<Parameter, Value>::deserialize(from)?;
        let all = all.into_iter();
        Ok(all
            .map(|(Parameter(name), Value(text))| (name, text))
            .collect())
    }

    pub(super) fn serialize<S: Serializer>(sysctls: &Sysctls, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(
            sysctls
                .iter()
                .map(|(name, text)| (name, Value(text.clone()))),
        )
    }

    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Parameter(String);

    impl<'de> Deserialize<'de> for Parameter {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            let name = String::deserialize(from)?;
            if name == "net" {
                return Err(D::Error::custom(
                    "a table; write the parameter's name in quotes, as in \"net.ipv4.tcp_sack\" = 1",
                ));
            }
            if !name.starts_with("net.") || name.split('.').any(str::is_empty) {
                return Err(D::Error::custom(format!(
                    "`{name}` is no parameter of a network namespace; expected one that begins with \
                 net."
                )));
            }
            Ok(Self(name))
        }
    }

    struct Value(String);

    impl Serialize for Value {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            Text(&self.0).serialize(to)
        }
    }

    impl<'de> Deserialize<'de> for Value {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any(NumberOrText).map(Self)
        }
    }

    struct NumberOrText;

    impl Visitor<'_> for NumberOrText {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("a number or a text")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
            Ok(number.to_string())
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
            Ok(number.to_string())
        }
    }
}
