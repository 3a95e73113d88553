//! A connection with whose it is.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pillion_bundler::{Flow, cgroup2_mount};
use pillion_host::{RuntimeFiles, SocketOwner, Unit, cgroup_units, socket_owners};
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

/// How often it is looked whose new connections are: that goes through all processes, and all cgroups.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// Whose connections are, as far as is known by now.
#[derive(Debug, Default)]
pub struct Owners {
    by_inode: HashMap<u64, Option<SocketOwner>>,
    by_cgroup: HashMap<u64, Option<Unit>>,
    files: RuntimeFiles,
    /// What containers are called, by their ids.
    containers: HashMap<String, String>,
    looked: Option<Instant>,
}

impl Owners {
    /// The connections with their owners; it is looked again where some are new.
    pub fn of(&mut self, flows: Vec<Flow>) -> Vec<Connection> {
        let is_due = self.looked.is_none_or(|it| it.elapsed() >= LOOK_EVERY);
        if is_due && flows.iter().any(|flow| self.is_new(flow)) {
            self.look(&flows);
        }
        flows
            .into_iter()
            .map(|flow| self.with_owner(flow))
            .collect()
    }

    fn is_new(&self, flow: &Flow) -> bool {
        let is_new_inode = |inode| !self.by_inode.contains_key(&inode);
        let is_new_cgroup = |cgroup| !self.by_cgroup.contains_key(&cgroup);
        flow.inode.is_some_and(is_new_inode) || flow.cgroup.is_some_and(is_new_cgroup)
    }

    fn look(&mut self, flows: &[Flow]) {
        let owners = socket_owners();
        let inodes = flows.iter().filter_map(|flow| flow.inode);
        // An inode comes as often as pillions have its connection.
        self.by_inode = inodes
            .map(|inode| (inode, owners.get(&inode).cloned()))
            .collect();
        let units = cgroup2_mount().map(|mount| cgroup_units(&mount));
        let units = units.unwrap_or_default();
        let cgroups = flows.iter().filter_map(|flow| flow.cgroup);
        self.by_cgroup = cgroups
            .map(|cgroup| (cgroup, units.get(&cgroup).cloned()))
            .collect();
        self.name_containers();
        self.looked = Some(Instant::now());
    }

    fn name_containers(&mut self) {
        let owners = self.by_inode.values().flatten();
        let units = owners.filter_map(|owner| owner.unit.as_ref());
        let units = units.chain(self.by_cgroup.values().flatten());
        let ids = units.filter_map(|unit| match unit {
            Unit::Container(id) => Some(id.as_str()),
            Unit::Managed(_) => None,
        });
        let ids: BTreeSet<_> = ids.collect();
        let described = self.files.describe(ids.iter().copied());
        let named = ids.into_iter().zip(described);
        let named = named.filter_map(|(id, it)| Some((id.to_owned(), it.name()?.to_owned())));
        self.containers = named.collect();
    }

    /// A container by its name, where its runtime's files tell.
    fn words(&self, unit: &Unit) -> String {
        let name = match unit {
            Unit::Container(id) => self.containers.get(id),
            Unit::Managed(_) => None,
        };
        name.map_or_else(|| unit.to_string(), |name| format!("container {name}"))
    }

    /// The unit is the process's, which may not be that of its socket; or the socket's, where no
    /// process is known that has it open.
    fn with_owner(&self, flow: Flow) -> Connection {
        let inode = flow.inode.as_ref();
        let owner = inode.and_then(|inode| self.by_inode.get(inode)?.as_ref());
        let cgroup = flow.cgroup.as_ref();
        let unit = match owner {
            Some(owner) => owner.unit.as_ref(),
            None => cgroup.and_then(|cgroup| self.by_cgroup.get(cgroup)?.as_ref()),
        };
        Connection {
            process: owner.map(|owner| owner.process.clone()),
            pid: owner.map(|owner| owner.pid),
            unit: unit.map(|unit| self.words(unit)),
            flow,
        }
    }
}
