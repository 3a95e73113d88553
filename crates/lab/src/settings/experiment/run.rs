//! Keys of one run: groups, hosts, the receiver, the kernel, and recorded data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use pillion_cli::settings::document::known::flattened;
use pillion_cli::settings::times::PositiveDuration;
use pillion_cli::settings::{Bundling, text, times};
use serde::{Deserialize, Serialize};

use super::{Bottlenecks, Mechanisms, Name, Path, PathOverride, Rate, RoundTrips, Sysctls};
use crate::settings::traffic::ReceiverOptions;
use crate::settings::{numbers, time_text, traffic};

/// One run of an experiment, with the keys of its file, all of them resolved.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Run {
    /// Subject of the experiment, one line.
    #[serde(deserialize_with = "text::some_line")]
    pub title: Option<String>,
    /// Time during which messages are due, from when all connections are established.
    pub duration: PositiveDuration,
    /// Seed of losses, times, sizes and content; in the virtual engine also of the kernel.
    #[serde(default = "one")]
    pub seed: u32,
    /// Memory of the lab kernel in MiB; `None`: the value of `--memory`, or the default.
    #[serde(deserialize_with = "numbers::some_memory")]
    pub memory: Option<u32>,
    /// Lab kernel of the run.
    pub kernel: Kernel,
    /// Router.
    pub bottleneck: Bottlenecks,
    /// Emulator.
    pub path: Path,
    /// Kernel parameters of every host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
    /// Receiver and its application.
    pub receiver: Receiver,
    /// Recorded data.
    pub measure: Measure,
    /// Sending hosts that groups share, or that have settings of their own.
    pub host: BTreeMap<Name, Host>,
    /// Groups of streams.
    pub group: BTreeMap<Name, Group>,
}

fn one() -> u32 {
    1
}

impl Run {
    /// Removes the hosts that no group uses, and returns their names.
    pub(super) fn remove_unused_hosts(&mut self) -> BTreeSet<String> {
        let groups = self.group.iter();
        let used = groups.map(|(name, group)| group.host.as_deref().unwrap_or(name));
        let used: BTreeSet<&str> = used.collect();
        let hosts = std::mem::take(&mut self.host).into_iter();
        let (used_hosts, unused): (BTreeMap<_, _>, BTreeMap<_, _>) =
            hosts.partition(|(name, _)| used.contains(&**name));
        self.host = used_hosts;
        unused.into_keys().map(|name| name.to_string()).collect()
    }

    /// Returns the run as a file of its own, with every default. It remains the same run if
    /// pillion's defaults change.
    #[must_use]
    pub fn to_text(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

/// Streams with the same settings; the table's name is the group's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Group {
    /// Traffic and socket options.
    #[serde(flatten)]
    pub traffic: traffic::Group,
    /// Whether the streams connect at the group's `start`, together, and not before anything is
    /// sent. They start when all connections are established or have failed, or after a timeout.
    pub connects_at_start: bool,
    /// Sending host; `None`: a host with the group's name.
    pub host: Option<String>,
    /// Round-trip times; `None`: the path's.
    #[serde(with = "time_text::option")]
    pub rtt: Option<RoundTrips>,
    /// Own path toward the receiver.
    #[serde(flatten)]
    pub forward: PathOverride,
    /// Own path toward the senders.
    pub back: PathOverride,
    /// TCP mechanisms of the group's host.
    pub mechanisms: Mechanisms,
    /// Bundling by pillion; `None`: plain TCP.
    #[serde(with = "bundle")]
    pub bundle: Option<Bundling>,
}

flattened!(Group);

/// `bundle`: a bool, or a table of options.
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
        from.deserialize_any(BoolOrTable)
    }

    pub(super) fn serialize<S: Serializer>(
        bundle: &Option<Bundling>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bundle {
            Some(options) => options.serialize(to),
            None => to.serialize_bool(false),
        }
    }

    struct BoolOrTable;

    impl<'de> Visitor<'de> for BoolOrTable {
        type Value = Option<Bundling>;

        fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
            f.write_str("true, false, or options, as in { max-packets = 1 }")
        }

        fn visit_bool<E: Error>(self, enabled: bool) -> Result<Option<Bundling>, E> {
            Ok(enabled.then(Bundling::default))
        }

        fn visit_map<A: MapAccess<'de>>(self, options: A) -> Result<Option<Bundling>, A::Error> {
            // Through the trait: the derived function of that name accepts unknown keys.
            Deserialize::deserialize(MapAccessDeserializer::new(options)).map(Some)
        }
    }
}

/// Sending host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Rate of its link; `None`: no limit.
    pub rate: Option<Rate>,
    /// Delay of its link in each direction.
    #[serde(with = "times::milliseconds")]
    pub delay: Duration,
    /// Whether its device has the queueing discipline fq, which heeds departure times.
    pub fq: bool,
    /// TCP mechanisms of this host.
    pub mechanisms: Mechanisms,
    /// Further kernel parameters of this host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
}

/// Receiver.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Receiver {
    /// Behaviour of the receiving application.
    #[serde(flatten)]
    pub application: ReceiverOptions,
    /// Whether TCP may delay ACKs. Without delays it acknowledges each segment (thesis, tables 4.2
    /// and 5.1: "No DelAck").
    pub delayed_acks: bool,
    /// TCP mechanisms for the data that it sends.
    pub mechanisms: Mechanisms,
    /// Kernel parameters of this host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
}

impl Default for Receiver {
    /// Returns the settings of stock kernels.
    fn default() -> Self {
        Self {
            application: ReceiverOptions::default(),
            delayed_acks: true,
            mechanisms: Mechanisms::default(),
            sysctl: Sysctls::new(),
        }
    }
}

flattened!(Receiver);

/// Lab kernel: the clock of all machines of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kernel {
    /// Tick rate (`HZ`): 100, 250, 300 or 1000 per second.
    #[serde(deserialize_with = "numbers::ticks")]
    pub ticks_per_second: u32,
    /// Whether timers expire exactly (`highres`) instead of at the next tick.
    pub high_resolution_timers: bool,
}

impl Kernel {
    /// Tick rate of the kernel that `make lab-kernel` builds.
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

/// Engine that makes the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Lab kernels, in virtual time
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

/// Recorded data, in addition to the reports of sender and receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measure {
    /// Captured bytes of each packet, at the bridge and at the receiver; `None`: no traces.
    #[serde(with = "traces")]
    pub traces: Option<u32>,
    /// Interval between samples of every stream's socket; `None`: no samples.
    #[serde(with = "sockets")]
    pub sockets: Option<Duration>,
    /// Whether to record every packet that enters and leaves the bottleneck's queue.
    pub queue: bool,
    /// Whether to record every message's delivery latency.
    pub records: bool,
}

impl Default for Measure {
    /// Returns traces of headers, ten samples per second, the queue, and the records.
    fn default() -> Self {
        Self {
            traces: Some(128),
            sockets: Some(Duration::from_millis(100)),
            queue: true,
            records: true,
        }
    }
}

/// Number, or a bool for its default or `None`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum BoolOrNumber {
    Bool(bool),
    Number(f64),
}

mod traces {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{BoolOrNumber, Measure};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
        match BoolOrNumber::deserialize(from) {
            Ok(BoolOrNumber::Bool(true)) => Ok(Measure::default().traces),
            Ok(BoolOrNumber::Bool(false)) => Ok(None),
            Ok(BoolOrNumber::Number(bytes))
                if (64.0..=65_535.0).contains(&bytes) && bytes.fract() == 0.0 =>
            {
                Ok(Some(bytes as u32))
            }
            _ => Err(D::Error::custom(
                "expected captured bytes of each packet, 64 to 65535, or false",
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

    use super::{BoolOrNumber, Measure};
    use pillion_cli::settings::times::{from_ms, milliseconds};

    pub(super) fn deserialize<'de, D>(from: D) -> Result<Option<Duration>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let interval = match BoolOrNumber::deserialize(from) {
            Ok(BoolOrNumber::Bool(true)) => return Ok(Measure::default().sockets),
            Ok(BoolOrNumber::Bool(false)) => return Ok(None),
            Ok(BoolOrNumber::Number(ms)) => {
                from_ms(ms).filter(|interval| interval.as_millis() >= 1)
            }
            Err(_) => None,
        };
        let expected = "expected milliseconds between samples, at least 1, or false";
        interval.map(Some).ok_or_else(|| D::Error::custom(expected))
    }

    pub(super) fn serialize<S: Serializer>(
        interval: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match interval {
            Some(interval) => milliseconds::serialize(interval, to),
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
                    "invalid parameter `{name}`: expected a parameter of a network namespace, as in \
                 net.ipv4.tcp_sack"
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
