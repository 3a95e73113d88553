//! A connection with whose it is.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pillion_bundler::Flow;
use pillion_host::{SocketOwner, socket_owners};
use serde::Serialize;

/// A connection, and who has it open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Connection {
    /// The name of a process that has it open.
    pub process: Option<String>,
    /// This process's id.
    pub pid: Option<u32>,
    /// The container or unit that the process is of.
    pub unit: Option<String>,
    #[serde(flatten)]
    pub flow: Flow,
}

/// How often it is looked whose new connections are: that goes through all processes.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Whose connections are, as far as is known by now.
#[derive(Debug, Default)]
pub struct Owners {
    by_inode: HashMap<u64, Option<SocketOwner>>,
    looked: Option<Instant>,
}

impl Owners {
    /// The connections with their owners; it is looked again where some are new.
    pub fn of(&mut self, flows: Vec<Flow>) -> Vec<Connection> {
        let inodes = || flows.iter().filter_map(|flow| flow.inode);
        let is_due = self.looked.is_none_or(|it| it.elapsed() >= LOOK_EVERY);
        if is_due && inodes().any(|inode| !self.by_inode.contains_key(&inode)) {
            let mut found = socket_owners();
            self.by_inode = inodes()
                .map(|inode| (inode, found.remove(&inode)))
                .collect();
            self.looked = Some(Instant::now());
        }
        flows
            .into_iter()
            .map(|flow| self.with_owner(flow))
            .collect()
    }

    fn with_owner(&self, flow: Flow) -> Connection {
        let inode = flow.inode.as_ref();
        let owner = inode.and_then(|inode| self.by_inode.get(inode)?.as_ref());
        Connection {
            process: owner.map(|owner| owner.process.clone()),
            pid: owner.map(|owner| owner.pid),
            unit: owner.and_then(|owner| Some(owner.unit.as_ref()?.to_string())),
            flow,
        }
    }
}
