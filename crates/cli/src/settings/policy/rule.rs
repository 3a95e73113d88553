//! A rule of the file, and the values of its conditions.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use pillion_bpf::{
    CgroupName, ContainerLabel, ContainerName, ContainerSelector, Direction, Holdback, Mode,
    Options, TcpOption, TcpOptions,
};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::settings::document::known::{flattened, keys};
use crate::settings::document::{self, Mistake, Value, merge, span_of};
use crate::settings::host_name::{addresses, is_name};
use crate::settings::{BadInput, refuse_unsafe, text, unused_key};

/// A rule of the file: its conditions, which must all hold, and the mode and options of matching
/// connections.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Rule {
    /// Ports at either end.
    #[serde(with = "text::list")]
    pub port: Vec<Ports>,
    /// Ports of this host.
    #[serde(with = "text::list")]
    pub local_port: Vec<Ports>,
    /// Ports of the peer.
    #[serde(with = "text::list")]
    pub remote_port: Vec<Ports>,
    /// Addresses, networks or host names of the peer.
    #[serde(with = "text::list")]
    pub peer: Vec<Peer>,
    /// Cgroups of the socket, or above it.
    #[serde(with = "text::list")]
    pub cgroup: Vec<CgroupName>,
    /// Names of the socket's container.
    #[serde(with = "text::list")]
    pub container: Vec<ContainerName>,
    /// Labels of the socket's container.
    #[serde(with = "text::list")]
    pub container_label: Vec<ContainerLabel>,
    /// User id of the socket's creator.
    #[serde(deserialize_with = "uid")]
    pub uid: Option<u32>,
    /// The end that opened the connection.
    pub direction: Option<Direction>,
    /// The mode of connections that match.
    pub mode: RuleMode,
    /// Share of the connections that stays plain, for comparison.
    #[serde(with = "text")]
    pub holdback: Holdback,
    /// Bundling options.
    #[serde(flatten)]
    pub options: Options,
    /// TCP options to set.
    #[serde(flatten)]
    pub tcp_options: TcpOptions,
}

flattened!(Rule);

/// Mode of the connections that a rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RuleMode {
    /// Bundle, unless the application declines.
    #[default]
    Bundle,
    /// Bundle when the application requests it.
    OnRequest,
    /// Set TCP options, but never bundle.
    TcpOptions,
    /// Neither bundle nor set TCP options.
    Never,
}

impl From<Rule> for pillion_bpf::Rule {
    fn from(rule: Rule) -> Self {
        let ranges = |ports: Vec<Ports>| ports.into_iter().map(|Ports(range)| range).collect();
        Self {
            ports: ranges(rule.port),
            local_ports: ranges(rule.local_port),
            remote_ports: ranges(rule.remote_port),
            peers: rule.peer.into_iter().flat_map(|peer| peer.nets).collect(),
            cgroups: rule.cgroup,
            containers: ContainerSelector {
                names: rule.container,
                labels: rule.container_label,
            },
            uid: rule.uid,
            direction: rule.direction,
            mode: match rule.mode {
                RuleMode::Bundle => Mode::Bundle(rule.options),
                RuleMode::OnRequest => Mode::OnRequest(rule.options),
                RuleMode::TcpOptions => Mode::TcpOptions,
                RuleMode::Never => Mode::Never,
            },
            tcp_options: rule.tcp_options,
            holdback: rule.holdback,
            source: String::new(),
        }
    }
}

/// Reads one rule, with the defaults for keys that it does not set; `None` if it has a mistake.
pub(super) fn read(
    value: &Value,
    defaults: &DeTable,
    allow_unsafe: bool,
    mistakes: &mut Vec<Mistake>,
) -> Option<pillion_bpf::Rule> {
    let DeValue::Table(own) = value.get_ref() else {
        let text = "not a table; start each rule with [[rule]]";
        mistakes.push(Mistake::new(value.span(), text));
        return None;
    };
    let mistakes_before = mistakes.len();
    let mode = own.get("mode");
    let mode = mode.and_then(|mode| document::read(mode, &mut Vec::new()));
    let mode = mode.unwrap_or_default();
    mistakes.extend(excluded_keys(own, mode));
    mistakes.extend(cgroup_and_container(own));
    let mut whole = match mode {
        RuleMode::Never => DeTable::new(),
        _ => defaults.clone(),
    };
    merge(&mut whole, own);
    let span = value.span();
    let whole = Spanned::new(span.clone(), DeValue::Table(whole));
    let rule: Rule = document::read(&whole, mistakes)?;
    if matches!(mode, RuleMode::Bundle | RuleMode::OnRequest) {
        let keys = whole.get_ref().as_table().unwrap_or(own);
        refuse(&rule.options, keys, allow_unsafe, mistakes);
        // A key of [defaults] may have an effect in other rules.
        if let Some((key, text)) = unused_key(&rule.options)
            && let Some(value) = own.get(key)
        {
            mistakes.push(Mistake::new(value.span(), text));
        }
    }
    if mode == RuleMode::TcpOptions
        && rule.tcp_options.is_empty()
        && mistakes.len() == mistakes_before
    {
        let text = format!("no TCP option; set one of {}", tcp_options().join(", "));
        mistakes.push(Mistake::new(span, text));
    }
    let source: toml::Table = document::read(&whole, mistakes)?;
    Some(pillion_bpf::Rule {
        source: source.to_string(),
        ..rule.into()
    })
}

/// Refuses unsafe options, unless `allowed`.
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

/// Finds keys of a rule that its mode excludes.
fn excluded_keys<'a>(own: &'a DeTable, mode: RuleMode) -> impl Iterator<Item = Mistake> + use<'a> {
    let (options, tcp_options) = (keys::<Options>(), tcp_options());
    own.keys().filter_map(move |key| {
        let is_of = |names: &[String]| names.iter().any(|name| name == key.get_ref());
        let is_of_bundling = is_of(&options) || name(key) == "holdback";
        let mode = match mode {
            RuleMode::TcpOptions if is_of_bundling => "tcp-options",
            RuleMode::Never if is_of_bundling || tcp_options.contains(&name(key)) => "never",
            _ => return None,
        };
        let text = format!(
            "`{}` has no effect with mode = \"{mode}\"; remove it",
            key.get_ref()
        );
        Some(Mistake::new(key.span(), text))
    })
}

/// Finds a rule with both `cgroup` and a container, which is a cgroup itself.
fn cgroup_and_container(own: &DeTable) -> Option<Mistake> {
    let is_container = |key: &&Spanned<Cow<str>>| name(key).starts_with("container");
    let key = own.keys().find(is_container)?;
    own.contains_key("cgroup").then(|| {
        let text = format!(
            "`{}` cannot be combined with `cgroup`; remove one of them",
            name(key)
        );
        Mistake::new(key.span(), text)
    })
}

fn name<'a>(key: &'a Spanned<Cow<str>>) -> &'a str {
    key.get_ref()
}

fn tcp_options() -> Vec<&'static str> {
    TcpOption::ALL.iter().map(|one| one.name()).collect()
}

// Values of conditions.

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

/// A network, an address, or a host name, which is resolved when it is parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    text: String,
    /// The network, or one host for each address of the name.
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

/// Resolves a host name to single-host networks, sorted.
fn resolve(name: &str) -> Result<Vec<IpNet>, BadInput> {
    if !is_name(name) {
        let expected = "expected an address, a network or a host name, as in 192.0.2.0/24, \
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

/// Reads a numeric user id; `u32::MAX` stands for any user in the programs.
pub(super) fn uid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let id = u32::deserialize(from).ok().filter(|id| *id != u32::MAX);
    let expected = "expected a user's numeric id, as in 1000";
    id.map(Some).ok_or_else(|| D::Error::custom(expected))
}
