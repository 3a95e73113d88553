//! Whose sockets are: the process that has each one open, and the container or unit that this is of.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host::cgroup_owner::unit_of;
use crate::host::{RuntimeFiles, Unit, cgroup_units};

/// The identity of a socket, to find its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Socket {
    /// The inode by which processes have it open, if one has.
    pub inode: Option<u64>,
    /// The id of its cgroup.
    pub cgroup: Option<u64>,
}

/// Cache of the owners of sockets: the process, and its container or unit.
#[derive(Debug)]
pub struct Owners {
    /// Mount point of cgroup v2, if it is mounted.
    mount: Option<PathBuf>,
    processes: Cache<SocketOwner>,
    units: Cache<Unit>,
    files: RuntimeFiles,
    /// Names of containers, by their ids.
    containers: HashMap<String, String>,
}

impl Owners {
    /// An empty cache; `mount` is the mount point of cgroup v2, if it is mounted.
    #[must_use]
    pub fn new(mount: Option<PathBuf>) -> Self {
        Self {
            mount,
            processes: Cache::default(),
            units: Cache::default(),
            files: RuntimeFiles::default(),
            containers: HashMap::new(),
        }
    }

    /// Looks whose these sockets are, as [`Cache::refresh`] does: that goes through all processes, and
    /// all cgroups.
    pub fn refresh(&mut self, sockets: &[Socket]) {
        let inodes: Vec<_> = sockets.iter().filter_map(|it| it.inode).collect();
        let cgroups: Vec<_> = sockets.iter().filter_map(|it| it.cgroup).collect();
        let mount = self.mount.as_deref();
        let units = || mount.map(cgroup_units).unwrap_or_default();
        let has_new_processes = self.processes.refresh(&inodes, socket_owners);
        if self.units.refresh(&cgroups, units) || has_new_processes {
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
        let infos = self.files.describe(ids.iter().copied());
        let named = ids.into_iter().zip(infos);
        let named = named.filter_map(|(id, it)| Some((id.to_owned(), it.name()?.to_owned())));
        self.containers = named.collect();
    }

    /// The process that has the socket open.
    #[must_use]
    pub fn process(&self, socket: Socket) -> Option<&SocketOwner> {
        self.processes.get(socket.inode?)
    }

    /// The container or unit in words; a container by its name if its runtime's files have it. It
    /// belongs to the process, or to the socket if no process is known to have it open. The two may
    /// differ.
    #[must_use]
    pub fn unit(&self, socket: Socket) -> Option<String> {
        let unit = match self.process(socket) {
            Some(owner) => owner.unit.as_ref(),
            None => self.units.get(socket.cgroup?),
        };
        unit.map(|unit| self.describe(unit))
    }

    fn describe(&self, unit: &Unit) -> String {
        let name = match unit {
            Unit::Container(id) => self.containers.get(id),
            Unit::Managed(_) => None,
        };
        name.map_or_else(|| unit.to_string(), |name| format!("container {name}"))
    }
}

/// A process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOwner {
    /// The process's id, as this process sees it.
    pub pid: u32,
    /// The process's name (`comm`), at most 15 bytes; any characters, with U+FFFD for invalid
    /// UTF-8.
    pub process: String,
    /// The container or unit of the process, from its cgroup.
    pub unit: Option<Unit>,
}

/// Finds the owner of each socket by inode: the oldest visible process that has it open. A child
/// that inherited a socket, and may not have called exec yet, is therefore not its owner. Processes
/// that start or end meanwhile may be missing.
#[must_use]
pub fn socket_owners() -> HashMap<u64, SocketOwner> {
    let mut owners: HashMap<u64, (StartOrder, SocketOwner)> = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let pid = process.file_name().to_str().and_then(|it| it.parse().ok());
        let (Some(pid), Ok(descriptors)) = (pid, fs::read_dir(path.join("fd"))) else {
            continue;
        };
        let sockets = descriptors.flatten().filter_map(|fd| inode(&fd.path()));
        let sockets: Vec<_> = sockets.collect();
        if sockets.is_empty() {
            continue;
        }
        if let (Ok(name), Some(started)) = (fs::read(path.join("comm")), process_start_time(&path))
        {
            let owner = SocketOwner {
                pid,
                process: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
                unit: unit_of(&path),
            };
            for inode in sockets {
                let cache = owners.get(&inode);
                if cache.is_none_or(|(oldest, _)| (started, pid) < *oldest) {
                    owners.insert(inode, ((started, pid), owner.clone()));
                }
            }
        }
    }
    let owners = owners.into_iter();
    owners.map(|(inode, (_, owner))| (inode, owner)).collect()
}

/// A process's start time in ticks since boot, and its id: a parent sorts before its child, unless
/// ids wrap within one tick.
type StartOrder = (u64, u32);

/// The inode of a socket, from the link `socket:[12345]` of its descriptor.
fn inode(descriptor: &Path) -> Option<u64> {
    let target = fs::read_link(descriptor).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// The start time of a process in ticks since boot: the field `starttime` of `stat` in its folder
/// of /proc. With the PID it is unique. `None` if the process does not exist.
#[must_use]
pub fn process_start_time(folder: &Path) -> Option<u64> {
    const FIELDS_AFTER_NAME: usize = 19;
    let stat = fs::read(folder.join("stat")).ok()?;
    // The name, the second field, may hold anything.
    let name_ends = stat.iter().rposition(|&it| it == b')')?;
    let rest = str::from_utf8(&stat[name_ends + 1..]).ok()?;
    rest.split_whitespace().nth(FIELDS_AFTER_NAME)?.parse().ok()
}

/// Minimum time between two refreshes.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);

/// A cache of lookups that take long, by number: refreshed when new numbers appear, but at most
/// every few seconds.
#[derive(Debug)]
pub struct Cache<T> {
    /// `None` for a number that was not found.
    all: HashMap<u64, Option<T>>,
    refreshed_at: Option<Instant>,
}

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self {
            all: HashMap::new(),
            refreshed_at: None,
        }
    }
}

impl<T: Clone> Cache<T> {
    /// Looks up these numbers if some are new and the interval has passed; drops others. Returns
    /// true if it has refreshed.
    pub fn refresh(&mut self, numbers: &[u64], find: impl FnOnce() -> HashMap<u64, T>) -> bool {
        let is_due = self
            .refreshed_at
            .is_none_or(|it| it.elapsed() >= REFRESH_INTERVAL);
        if !is_due || numbers.iter().all(|it| self.all.contains_key(it)) {
            return false;
        }
        let found = find();
        let numbers = numbers.iter();
        self.all = numbers.map(|it| (*it, found.get(it).cloned())).collect();
        self.refreshed_at = Some(Instant::now());
        true
    }

    /// The cached value of this number.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        self.all.get(&number)?.as_ref()
    }

    /// All cached values.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.all.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::process::{self, Command, Stdio};
    use std::time::Duration;

    use super::*;

    #[test]
    fn open_socket_has_owner_and_closed_socket_none() {
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
        owners.refresh(&[own, closed]);
        assert_eq!(owners.process(own).map(|it| it.pid), Some(process::id()));
        assert_eq!(owners.process(closed), None);
        assert_eq!(owners.unit(closed), None);
    }

    fn listening() -> (TcpListener, u64) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = inode(Path::new(&descriptor)).unwrap();
        (socket, inode)
    }

    #[test]
    fn shared_socket_belongs_to_parent_process() {
        let (socket, inode) = listening();
        let share = || {
            let socket = OwnedFd::from(socket.try_clone().unwrap());
            let mut cat = Command::new("cat");
            cat.stdin(Stdio::piped()).stdout(socket).spawn().unwrap()
        };
        let mut children: Vec<_> = (0..3).map(|_| share()).collect();
        let owner = socket_owners().remove(&inode);
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let owner = owner.unwrap();
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(owner.process, own.trim_end());
        assert_eq!(owner.pid, process::id());
    }

    #[test]
    fn owner_with_non_utf8_name_is_reported() {
        let (socket, inode) = listening();
        let mut child = Command::new("sh")
            .args(["-c", r"printf 'ga) \377me' > /proc/$$/comm; read line"])
            .stdin(Stdio::piped())
            .stdout(OwnedFd::from(socket))
            .spawn()
            .unwrap();
        let named = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            let owner = socket_owners().remove(&inode);
            owner.is_some_and(|it| it.process == "ga) \u{fffd}me")
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(named);
    }

    #[test]
    fn cache_refreshes_for_new_keys_at_most_every_interval() {
        let mut cache = Cache::default();
        let found = || HashMap::from([(1, "one"), (2, "two")]);
        assert!(!cache.refresh(&[], found));
        assert!(cache.refresh(&[1, 3, 3], found));
        assert_eq!(
            (cache.get(1), cache.get(2), cache.get(3)),
            (Some(&"one"), None, None)
        );
        assert!(!cache.refresh(&[1, 2, 3], found));
        cache.refreshed_at = Instant::now().checked_sub(REFRESH_INTERVAL);
        assert!(!cache.refresh(&[3], || panic!("it is known that there is none")));
        assert!(cache.refresh(&[2], found));
        assert_eq!(cache.all().collect::<Vec<_>>(), [&"two"]);
    }
}
