//! Connections that are chosen on the command line, by what they are and where they are.

use anyhow::{Context, Result};
use pillion_bundler::{
    CgroupName, ContainerChoice, ContainerLabel, ContainerName, Namespaces, Options, Programs,
    Rule, Scope, Selection, remove_filters,
};
use pillion_settings::Bundling;
use pillion_settings::policy::{Peer, Ports};

use crate::janitor::{self, Janitor};

/// Containers whose connections are chosen.
#[derive(clap::Args)]
pub struct ContainerArgs {
    /// Connections of this container, which may come later and is followed into its network
    /// namespace: its name, or of a pod's POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER, with wildcards
    /// if so wanted: 'web-*'; repeat for more
    #[arg(long = "container", value_name = "NAME", conflicts_with = "cgroups")]
    pub containers: Vec<ContainerName>,

    /// Connections of containers with this label or annotation, as far as their runtime's files have
    /// it; the value may have wildcards; repeat for more
    #[arg(
        long = "container-label",
        value_name = "KEY=VALUE",
        conflicts_with = "cgroups"
    )]
    pub labels: Vec<ContainerLabel>,
}

impl ContainerArgs {
    /// What they ask for.
    pub fn choice(&self) -> ContainerChoice {
        ContainerChoice {
            names: self.containers.clone(),
            labels: self.labels.clone(),
        }
    }
}

/// The rule for connections with these ports and peers.
pub fn rule(ports: &[Ports], peers: &[Peer], how: &Bundling, options: Options) -> Rule {
    Rule {
        ports: ports.iter().map(|Ports(range)| range.clone()).collect(),
        peers: peers.iter().flat_map(|peer| peer.nets.clone()).collect(),
        companions: how.companions,
        ..Rule::all(options)
    }
}

/// Describes connections with these ports, peers, cgroups and containers; `None` if nothing is asked
/// of them.
pub fn words(
    ports: &[Ports],
    peers: &[Peer],
    cgroups: &[CgroupName],
    containers: &ContainerChoice,
) -> Option<String> {
    let list = |kind: &str, values: Vec<String>| {
        (!values.is_empty()).then(|| format!("{kind} {}", values.join(" or ")))
    };
    let ports = list("port", ports.iter().map(ToString::to_string).collect());
    let peers = list("peer", peers.iter().map(ToString::to_string).collect());
    let cgroups = list("cgroup", cgroups.iter().map(ToString::to_string).collect());
    let conditions: Vec<_> = [ports, peers, cgroups].into_iter().flatten().collect();
    let with = (!conditions.is_empty()).then(|| format!("with {}", conditions.join(" and ")));
    let of = (!containers.is_empty()).then(|| format!("of containers {containers}"));
    let parts: Vec<_> = with.into_iter().chain(of).collect();
    (!parts.is_empty()).then(|| format!("connections {}", parts.join(" ")))
}

/// The scope of the namespaces that are asked for.
pub fn scope(namespaces: &Namespaces, selection: &Selection) -> Scope {
    match namespaces.is_own_alone() {
        true => Scope::ThisNamespace,
        false => Scope::Namespaces(selection.namespaces()),
    }
}

/// Sees to it that nothing of the programs stays behind in these namespaces; `None` where nothing
/// could.
pub fn watch(programs: &Programs, namespaces: &Namespaces) -> Result<Option<Janitor>> {
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
