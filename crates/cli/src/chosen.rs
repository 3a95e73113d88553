//! Connections that are chosen on the command line, by what they are and where they are.

use anyhow::{Context, Result};
use pillion_bundler::{
    CgroupName, NamespaceName, Options, Programs, Rule, Scope, Selection, remove_filters,
};
use pillion_settings::Bundling;
use pillion_settings::policy::{Peer, Ports};

use crate::janitor::{self, Janitor};

/// The rule for connections with these ports and peers.
pub fn rule(ports: &[Ports], peers: &[Peer], how: &Bundling, options: Options) -> Rule {
    Rule {
        ports: ports.iter().map(|Ports(range)| range.clone()).collect(),
        peers: peers.iter().flat_map(|peer| peer.nets.clone()).collect(),
        companions: how.companions,
        ..Rule::all(options)
    }
}

/// Describes connections with these ports, peers and cgroups; `None` if nothing is asked of them.
pub fn words(ports: &[Ports], peers: &[Peer], cgroups: &[CgroupName]) -> Option<String> {
    let list = |kind: &str, values: Vec<String>| {
        (!values.is_empty()).then(|| format!("{kind} {}", values.join(" or ")))
    };
    let ports = list("port", ports.iter().map(ToString::to_string).collect());
    let peers = list("peer", peers.iter().map(ToString::to_string).collect());
    let cgroups = list("cgroup", cgroups.iter().map(ToString::to_string).collect());
    let conditions: Vec<_> = [ports, peers, cgroups].into_iter().flatten().collect();
    (!conditions.is_empty()).then(|| format!("connections with {}", conditions.join(" and ")))
}

/// The scope of the namespaces that are named, or of pillion's own if none is.
pub fn scope(names: &[NamespaceName], selection: &Selection) -> Scope {
    match names.is_empty() {
        true => Scope::ThisNamespace,
        false => Scope::Namespaces(selection.namespaces()),
    }
}

/// Sees to it that nothing of the programs stays behind in these namespaces; `None` where nothing
/// could.
pub fn watch(programs: &Programs, namespaces: &[NamespaceName]) -> Result<Option<Janitor>> {
    let filters = programs.left_behind();
    if filters.is_empty() {
        return Ok(None);
    }
    let clean_up = || {
        let _ = remove_filters(&filters, namespaces);
    };
    janitor::watch(clean_up)
        .context("start the janitor")
        .map(Some)
}
