use std::borrow::Cow;

use pillion_bpf::{
    CgroupName, Companion, Companions, ContainerChoice, ContainerLabel, ContainerName, Direction,
    Mode, Options,
};
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::condition::{self, Peer, Ports};
use crate::settings::bundling::idle_key;
use crate::settings::document::known::{flattened, keys};
use crate::settings::document::{self, Mistake, Value, merge, span_of};
use crate::settings::{refuse_unsafe, text};

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
    #[serde(deserialize_with = "condition::uid")]
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
