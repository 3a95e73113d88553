//! A connection with whose it is.

use std::collections::BTreeMap;

use pillion_bundler::{Flow, cgroup2_mount};
use pillion_host::{Owners, Socket};
use serde::Serialize;

use super::network_namespaces;

/// A connection, and who has it open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    let names = network_namespaces::names();
    let units = flows.iter().zip(&sockets);
    let units = units.filter_map(|(flow, socket)| Some((flow.netns, owners.unit(*socket)?)));
    let units: BTreeMap<_, _> = units.collect();
    let owned = flows.into_iter().zip(sockets).map(|(flow, socket)| {
        let process = owners.process(socket);
        let number = flow.netns.unwrap_or(0);
        let name = names.get(&u64::from(number)).cloned();
        let name = name.or_else(|| Some(format!("of {}", units.get(&flow.netns)?)));
        Connection {
            process: process.map(|it| it.process.clone()),
            pid: process.map(|it| it.pid),
            unit: owners.unit(socket),
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
