//! A connection with whose it is.

use std::collections::BTreeMap;

use pillion_bpf::host::{Owners, Socket};
use pillion_bpf::{Flow, cgroup2_mount};
use serde::Serialize;

use super::network_namespaces;

/// A connection, and who has it open.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Connection {
    /// The name of a process that has it open.
    pub process: Option<String>,
    /// This process's id.
    pub pid: Option<u32>,
    /// The container or unit that the process is of, or its socket; a container by its name, or the
    /// digits of its id.
    pub unit: Option<String>,
    /// What its network namespace is called; where nothing tells, the number.
    pub namespace: String,
    #[serde(flatten)]
    pub flow: Flow,
}

/// Whose connections are that are to be listed.
pub fn owners() -> Owners {
    Owners::new(cgroup2_mount().ok())
}

/// The connections with their owners; it is looked again where some are new.
pub fn owned(flows: Vec<Flow>, owners: &mut Owners) -> Vec<Connection> {
    let sockets: Vec<_> = flows.iter().map(socket).collect();
    owners.look(&sockets);
    let units: Vec<_> = sockets.iter().map(|socket| owners.unit(*socket)).collect();
    let names = network_namespaces::names();
    let of_units = flows.iter().zip(&units);
    let of_units = of_units.filter_map(|(flow, unit)| Some((flow.netns, unit.clone()?)));
    let of_units: BTreeMap<_, _> = of_units.collect();
    let all = flows.into_iter().zip(sockets).zip(units);
    let owned = all.map(|((flow, socket), unit)| {
        let process = owners.process(socket);
        let number = flow.netns.unwrap_or(0);
        let name = names.get(&u64::from(number)).cloned();
        let name = name.or_else(|| Some(format!("of {}", of_units.get(&flow.netns)?)));
        Connection {
            process: process.map(|it| it.process.clone()),
            pid: process.map(|it| it.pid),
            unit,
            namespace: name.unwrap_or_else(|| number.to_string()),
            flow,
        }
    });
    owned.collect()
}

fn socket(flow: &Flow) -> Socket {
    Socket {
        inode: flow.inode,
        cgroup: flow.cgroup,
    }
}
