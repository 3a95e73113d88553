//! A rule as a file has it, and the values of its conditions.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use pillion_bpf::{
    CgroupName, Companion, Companions, ContainerChoice, ContainerLabel, ContainerName, Direction,
    Mode, Options,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::document::known::{flattened, keys};
use crate::settings::document::{self, Mistake, Value, merge, span_of};
use crate::settings::host_name::{addresses, is_name};
use crate::settings::{BadInput, idle_key, refuse_unsafe, text};

/// A rule as a file has it: conditions, all of which must hold, and what becomes of the
/// connections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Rule {
    /// Ports of which the connection has one, at either end.
    #[serde(with = "text::list")]
    pub ports: Vec<Ports>,
    /// Ports of this host's end.
    #[serde(with = "text::list")]
    pub local_ports: Vec<Ports>,
    /// Ports of the peer's end.
    #[serde(with = "text::list")]
    pub remote_ports: Vec<Ports>,
    /// Networks of the peer.
    #[serde(with = "text::list")]
    pub peers: Vec<Peer>,
    /// The socket's cgroup, or one above it.
    #[serde(with = "text::list")]
    pub cgroup: Vec<CgroupName>,
    /// The container that the socket is of, by its name.
    #[serde(with = "text::list")]
    pub container: Vec<ContainerName>,
    /// The container that the socket is of, by a label.
    #[serde(with = "text::list")]
    pub container_label: Vec<ContainerLabel>,
    /// The user whose the socket is.
    #[serde(deserialize_with = "uid")]
    pub uid: Option<u32>,
    /// Who opened the connection.
    pub direction: Option<Direction>,
    /// What becomes of them.
    pub mode: RuleMode,
    /// How they are bundled.
    #[serde(flatten)]
    pub options: Options,
    /// What of TCP's own they get.
    #[serde(flatten)]
    pub companions: Companions,
}

flattened!(Rule);

/// What becomes of the connections that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleMode {
    /// The connections are bundled, unless their application declines.
    #[default]
    Bundle,
    /// The connections are bundled once their application asks.
    Allow,
    /// The connections get companions, and are not bundled.
    Companions,
    /// The connections get no companions, and are not bundled.
    LeaveAlone,
}

impl From<Rule> for pillion_bpf::Rule {
    fn from(rule: Rule) -> Self {
        let ranges = |ports: Vec<Ports>| ports.into_iter().map(|Ports(range)| range).collect();
        Self {
            ports: ranges(rule.ports),
            local_ports: ranges(rule.local_ports),
            remote_ports: ranges(rule.remote_ports),
            peers: rule.peers.into_iter().flat_map(|peer| peer.nets).collect(),
            cgroups: rule.cgroup,
            containers: ContainerChoice {
                names: rule.container,
                labels: rule.container_label,
            },
            uid: rule.uid,
            direction: rule.direction,
            mode: match rule.mode {
                RuleMode::Bundle => Mode::Bundle(rule.options),
                RuleMode::Allow => Mode::Allow(rule.options),
                RuleMode::Companions => Mode::Companions,
                RuleMode::LeaveAlone => Mode::LeaveAlone,
            },
            companions: rule.companions,
        }
    }
}

/// Reads one rule, with the defaults for what it does not say; none if that is impossible.
pub(super) fn read(
    value: &Value,
    defaults: &DeTable,
    allow_unsafe: bool,
    mistakes: &mut Vec<Mistake>,
) -> Option<pillion_bpf::Rule> {
    let DeValue::Table(own) = value.get_ref() else {
        let text = "no table; begin each rule with [[rule]]";
        mistakes.push(Mistake::new(value.span(), text));
        return None;
    };
    let known = mistakes.len();
    let mode = own.get("mode");
    let mode = mode.and_then(|mode| document::read(mode, &mut Vec::new()));
    let mode = mode.unwrap_or_default();
    mistakes.extend(surplus(own, mode));
    mistakes.extend(cgroup_twice(own));
    let mut whole = match mode {
        RuleMode::LeaveAlone => DeTable::new(),
        _ => defaults.clone(),
    };
    merge(&mut whole, own);
    let span = value.span();
    let whole = Spanned::new(span.clone(), DeValue::Table(whole));
    let rule: Rule = document::read(&whole, mistakes)?;
    if matches!(mode, RuleMode::Bundle | RuleMode::Allow) {
        let keys = whole.get_ref().as_table().unwrap_or(own);
        refuse(&rule.options, keys, allow_unsafe, mistakes);
        // Those of all rules may be there for others.
        if let Some((key, text)) = idle_key(&rule.options)
            && let Some(value) = own.get(key)
        {
            mistakes.push(Mistake::new(value.span(), text));
        }
    }
    if mode == RuleMode::Companions && rule.companions.is_empty() && mistakes.len() == known {
        let text = format!("no companion; give one of {}", companions().join(", "));
        mistakes.push(Mistake::new(span, text));
    }
    Some(rule.into())
}

/// Refuses what is unsafe, unless that is allowed.
pub(super) fn refuse(
    options: &Options,
    keys: &DeTable,
    allowed: bool,
    mistakes: &mut Vec<Mistake>,
) {
    if let Err(why) = refuse_unsafe(options, allowed) {
        let span = span_of(keys, &["reaction"]).unwrap_or(0..0);
        mistakes.push(Mistake::new(span, why.to_string()));
    }
}

/// What a rule says of connections that its mode does not have.
fn surplus<'a>(own: &'a DeTable, mode: RuleMode) -> impl Iterator<Item = Mistake> + use<'a> {
    let (options, companions) = (keys::<Options>(), companions());
    own.keys().filter_map(move |key| {
        let is_of = |names: &[String]| names.iter().any(|name| name == key.get_ref());
        let why = match mode {
            RuleMode::Companions if is_of(&options) => {
                "says how to bundle what gets companions alone"
            }
            RuleMode::LeaveAlone if is_of(&options) => "says how to bundle what is left alone",
            RuleMode::LeaveAlone if companions.contains(&name(key)) => {
                "is a companion of what is left alone"
            }
            _ => return None,
        };
        let text = format!("`{}` {why}; remove it", key.get_ref());
        Some(Mistake::new(key.span(), text))
    })
}

/// A container's sockets are of its cgroup.
fn cgroup_twice(own: &DeTable) -> Option<Mistake> {
    let of_containers = |key: &&Spanned<Cow<str>>| name(key).starts_with("container");
    let key = own.keys().find(of_containers)?;
    own.contains_key("cgroup").then(|| {
        let text = format!("`{}` is a cgroup already; leave `cgroup` out", name(key));
        Mistake::new(key.span(), text)
    })
}

fn name<'a>(key: &'a Spanned<Cow<str>>) -> &'a str {
    key.get_ref()
}

fn companions() -> Vec<&'static str> {
    Companion::ALL.iter().map(|one| one.name()).collect()
}

// What the values of a rule's conditions must be.

/// A port from 1 to 65535, or a range of them, as in `8000-8100`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports(pub RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Self(first..=last)),
            _ => Err("expected a port from 1 to 65535, or a range as in \"8000-8100\"".into()),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0.start(), self.0.end());
        match first == last {
            true => first.fmt(f),
            false => write!(f, "{first}-{last}"),
        }
    }
}

/// A network, an address as one of a single host, or a host's name: the addresses that it has when it
/// is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    text: String,
    /// One network; of a name, a host for each of its addresses.
    pub nets: Vec<IpNet>,
}

impl FromStr for Peer {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let address = || text.parse::<IpAddr>().map(IpNet::from);
        let nets = match text.parse::<IpNet>().or_else(|_| address()) {
            Ok(net) => vec![net],
            Err(_) => resolve(text)?,
        };
        Ok(Self {
            text: text.to_owned(),
            nets,
        })
    }
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        Self {
            text: address.to_string(),
            nets: vec![address.into()],
        }
    }
}

/// The addresses of a host by its name.
fn resolve(name: &str) -> Result<Vec<IpNet>, BadInput> {
    if !is_name(name) {
        let expected = "expected an address, a network or a host's name, as in 192.0.2.0/24, \
                        2001:db8::/32 or game.example.org";
        return Err(expected.into());
    }
    let mut nets: Vec<_> = addresses(name)?.into_iter().map(IpNet::from).collect();
    nets.sort();
    nets.dedup();
    Ok(nets)
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// A user's numeric id: the last one stands for any.
pub(super) fn uid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let id = u32::deserialize(from).ok().filter(|id| *id != u32::MAX);
    let expected = "expected a user's numeric id, as in 1000";
    id.map(Some).ok_or_else(|| D::Error::custom(expected))
}
