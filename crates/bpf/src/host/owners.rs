use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use crate::host::{Known, RuntimeFiles, SocketOwner, Unit, cgroup_units, socket_owners};

/// A socket, as far as it is to be told whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The inode by which processes have it open, if one has.
    pub inode: Option<u64>,
    /// The id of its cgroup.
    pub cgroup: Option<u64>,
}

/// Whose sockets are, as far as is known by now: the process, and the container or unit that this is
/// of.
#[derive(Debug)]
pub struct Owners {
    /// Where cgroups are, if they are mounted.
    mount: Option<PathBuf>,
    processes: Known<SocketOwner>,
    units: Known<Unit>,
    files: RuntimeFiles,
    /// What containers are called, by their ids.
    containers: HashMap<String, String>,
}

impl Owners {
    /// Knows none yet; `mount` is where the cgroup v2 file system is, if it is mounted.
    #[must_use]
    pub fn new(mount: Option<PathBuf>) -> Self {
        Self {
            mount,
            processes: Known::default(),
            units: Known::default(),
            files: RuntimeFiles::default(),
            containers: HashMap::new(),
        }
    }

    /// Looks whose these sockets are, as [`Known::look`] does: that goes through all processes, and
    /// all cgroups.
    pub fn look(&mut self, sockets: &[Socket]) {
        let inodes: Vec<_> = sockets.iter().filter_map(|it| it.inode).collect();
        let cgroups: Vec<_> = sockets.iter().filter_map(|it| it.cgroup).collect();
        let mount = self.mount.as_deref();
        let units = || mount.map(cgroup_units).unwrap_or_default();
        let processes_are_others = self.processes.look(&inodes, socket_owners);
        if self.units.look(&cgroups, units) || processes_are_others {
            self.name_containers();
        }
    }

    fn name_containers(&mut self) {
        let units = self.processes.all().filter_map(|owner| owner.unit.as_ref());
        let units = units.chain(self.units.all());
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

    /// The process that has the socket open.
    #[must_use]
    pub fn process(&self, socket: Socket) -> Option<&SocketOwner> {
        self.processes.of(socket.inode?)
    }

    /// The container or unit in words, a container by its name where its runtime's files tell. It is
    /// that of the process, which may not be that of the socket; or that of the socket, where no
    /// process is known that has it open.
    #[must_use]
    pub fn unit(&self, socket: Socket) -> Option<String> {
        let unit = match self.process(socket) {
            Some(owner) => owner.unit.as_ref(),
            None => self.units.of(socket.cgroup?),
        };
        unit.map(|unit| self.words(unit))
    }

    fn words(&self, unit: &Unit) -> String {
        let name = match unit {
            Unit::Container(id) => self.containers.get(id),
            Unit::Managed(_) => None,
        };
        name.map_or_else(|| unit.to_string(), |name| format!("container {name}"))
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;
    use std::{fs, process};

    use super::*;

    #[test]
    fn a_socket_is_of_its_process_and_one_that_nobody_has_open_of_none() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let digits = link
            .to_str()
            .unwrap()
            .trim_matches(|it: char| !it.is_ascii_digit());
        let socket = |inode| Socket {
            inode,
            cgroup: None,
        };
        let (own, closed) = (socket(digits.parse().ok()), socket(None));
        let mut owners = Owners::new(None);
        owners.look(&[own, closed]);
        assert_eq!(owners.process(own).map(|it| it.pid), Some(process::id()));
        assert_eq!(owners.process(closed), None);
        assert_eq!(owners.unit(closed), None);
    }
}
