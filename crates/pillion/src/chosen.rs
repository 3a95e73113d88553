//! Connections that are chosen on the command line, by what they are and where they are.

use anyhow::{Context, Result};
use pillion_bpf::{
    CgroupName, ContainerChoice, ContainerLabel, ContainerName, NamespaceName, Namespaces, Options,
    Programs, Rule,
};
use pillion_cli::settings::Bundling;
use pillion_cli::settings::policy::{Peer, Ports};

use crate::janitor::{self, Janitor};

/// What they are.
#[derive(clap::Args)]
pub struct ChoiceArgs {
    /// Connections with this local or remote port, or one of a range, as in 8000-8100; repeat for
    /// more
    #[arg(long = "port", value_name = "PORTS")]
    ports: Vec<Ports>,

    /// Connections with a peer at this address or in this network, as in 192.0.2.0/24, or a host of
    /// this name; repeat for more
    #[arg(long = "peer", value_name = "PEER")]
    pub peers: Vec<Peer>,

    /// Connections of sockets of this cgroup or one below it, as in `/proc/PID/cgroup`; `*`, `?` and
    /// `[...]` are as in shells: '/system.slice/game-*.service'. It need not be there yet; repeat for
    /// more
    #[arg(long = "cgroup", value_name = "CGROUP")]
    pub cgroups: Vec<CgroupName>,

    /// Connections of this container, which may come later and is followed into its network
    /// namespace: its name, or of a pod's POD, NAMESPACE/POD or NAMESPACE/POD/CONTAINER, with wildcards
    /// if so wanted: 'web-*'; repeat for more
    #[arg(long = "container", value_name = "NAME", conflicts_with = "cgroups")]
    containers: Vec<ContainerName>,

    /// Connections of containers with this label or annotation, as far as their runtime's files have
    /// it; the value may have wildcards; repeat for more
    #[arg(
        long = "container-label",
        value_name = "KEY=VALUE",
        conflicts_with = "cgroups"
    )]
    labels: Vec<ContainerLabel>,
}

/// Where they are.
#[derive(clap::Args)]
pub struct NamespaceArgs {
    /// Connections of this network namespace and no longer of pillion's own: a name under
    /// /run/netns, the PID of a process that is in it, or a file, the first and the last with wildcards
    /// if so wanted: 'cni-*'; repeat for more (its own: /proc/self/ns/net)
    #[arg(long = "netns", value_name = "NAMESPACE")]
    pub named: Vec<NamespaceName>,
}

impl ChoiceArgs {
    /// True if nothing is asked of them.
    pub fn is_empty(&self) -> bool {
        let of_addresses = self.ports.is_empty() && self.peers.is_empty();
        of_addresses && self.cgroups.is_empty() && self.containers().is_empty()
    }

    /// The containers whose they are.
    pub fn containers(&self) -> ContainerChoice {
        ContainerChoice {
            names: self.containers.clone(),
            labels: self.labels.clone(),
        }
    }

    /// The rule for them.
    pub fn rule(&self, how: &Bundling, options: Options) -> Rule {
        Rule {
            ports: self
                .ports
                .iter()
                .map(|Ports(range)| range.clone())
                .collect(),
            peers: self.peers.iter().flat_map(|it| it.nets.clone()).collect(),
            cgroups: self.cgroups.clone(),
            containers: self.containers(),
            companions: how.companions,
            ..Rule::all(options)
        }
    }

    /// Describes them; `None` if nothing is asked of them.
    pub fn words(&self) -> Option<String> {
        let containers = self.containers();
        let with = [
            list("port", &self.ports),
            list("peer", &self.peers),
            list("cgroup", &self.cgroups),
        ];
        let with: Vec<_> = with.into_iter().flatten().collect();
        let with = (!with.is_empty()).then(|| format!("with {}", with.join(" and ")));
        let of = (!containers.is_empty()).then(|| format!("of containers {containers}"));
        let parts: Vec<_> = with.into_iter().chain(of).collect();
        (!parts.is_empty()).then(|| format!("connections {}", parts.join(" ")))
    }

    /// The same, described alike in whatever order they were named.
    pub fn in_order(&self) -> Self {
        Self {
            ports: in_order(&self.ports),
            peers: in_order(&self.peers),
            cgroups: in_order(&self.cgroups),
            containers: in_order(&self.containers),
            labels: in_order(&self.labels),
        }
    }
}

/// Values of one kind, in words.
fn list(kind: &str, values: &[impl ToString]) -> Option<String> {
    let values: Vec<_> = values.iter().map(ToString::to_string).collect();
    (!values.is_empty()).then(|| format!("{kind} {}", values.join(" or ")))
}

/// What is named, in the order of its text, and of numbers in that of their values.
pub fn in_order<T: Clone + ToString>(all: &[T]) -> Vec<T> {
    let mut all = all.to_vec();
    all.sort_by_cached_key(|it| {
        let text = it.to_string();
        (text.len(), text)
    });
    all
}

/// Starts a janitor that detaches all programs in these namespaces if this process is killed.
pub fn watch(programs: &Programs, namespaces: &Namespaces) -> Result<Janitor> {
    let remains = programs.remains();
    janitor::watch(|| remains.clear(namespaces, None)).context("start the janitor")
}
