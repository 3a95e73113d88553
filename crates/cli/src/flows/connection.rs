//! A connection with whose it is.

use pillion_bundler::{Flow, cgroup2_mount};
use pillion_host::{Owners, Socket};
use serde::Serialize;

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
    let owned = flows.into_iter().zip(sockets).map(|(flow, socket)| {
        let process = owners.process(socket);
        Connection {
            process: process.map(|it| it.process.clone()),
            pid: process.map(|it| it.pid),
            unit: owners.unit(socket),
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
