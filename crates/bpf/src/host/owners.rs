//! Whose sockets are: the process that has each one open, and the container or unit that this is of.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::host::unit::unit_of;
use crate::host::{RuntimeFiles, Unit, cgroup_units};

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

/// A process that has a socket open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOwner {
    /// The process's id, as this process sees it.
    pub pid: u32,
    /// The process's name (`comm`), at most 15 bytes; may hold any character, and U+FFFD for bytes
    /// that are no UTF-8.
    pub process: String,
    /// The container or unit that the process is of, if its cgroup tells.
    pub unit: Option<Unit>,
}

/// Whose sockets are: of the processes that have each one open and can be seen from here the one
/// that has run longest, by the socket's inode. So a child that inherited a socket, and may not even
/// have begun its own program, is not taken for its owner. A process that comes or goes meanwhile may
/// be missing.
#[must_use]
pub fn socket_owners() -> HashMap<u64, SocketOwner> {
    let mut owners: HashMap<u64, (Age, SocketOwner)> = HashMap::new();
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
        if let (Ok(name), Some(began)) = (fs::read(path.join("comm")), process_began(&path)) {
            let owner = SocketOwner {
                pid,
                process: String::from_utf8_lossy(name.trim_ascii_end()).into_owned(),
                unit: unit_of(&path),
            };
            for inode in sockets {
                let known = owners.get(&inode);
                if known.is_none_or(|(oldest, _)| (began, pid) < *oldest) {
                    owners.insert(inode, ((began, pid), owner.clone()));
                }
            }
        }
    }
    let owners = owners.into_iter();
    owners.map(|(inode, (_, owner))| (inode, owner)).collect()
}

/// When a process began, in ticks since boot, and its id: a parent's is below its child's but where
/// ids began anew within one tick.
type Age = (u64, u32);

/// The inode of the socket that a descriptor stands for, which reads `socket:[12345]`.
fn inode(descriptor: &Path) -> Option<u64> {
    let target = fs::read_link(descriptor).ok()?;
    let inode = target.to_str()?.strip_prefix("socket:[")?;
    inode.strip_suffix(']')?.parse().ok()
}

/// When a process began, in ticks since boot: the field `starttime` of `stat` in its folder of /proc.
/// With its number it is the process's alone. `None` if there is none.
#[must_use]
pub fn process_began(folder: &Path) -> Option<u64> {
    const BEHIND_THE_NAME: usize = 19;
    let stat = fs::read(folder.join("stat")).ok()?;
    // The name, the second field, may hold anything.
    let name_ends = stat.iter().rposition(|&it| it == b')')?;
    let rest = str::from_utf8(&stat[name_ends + 1..]).ok()?;
    rest.split_whitespace().nth(BEHIND_THE_NAME)?.parse().ok()
}

/// How often it is looked at most.
const LOOK_EVERY: Duration = Duration::from_secs(3);

/// What is known by now of things that come and go, by their numbers, where to find that out takes
/// long: it is looked again where some are new, and some seconds after the last time.
#[derive(Debug)]
pub struct Known<T> {
    /// `None` of what was not found.
    all: HashMap<u64, Option<T>>,
    looked: Option<Instant>,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self {
            all: HashMap::new(),
            looked: None,
        }
    }
}

impl<T: Clone> Known<T> {
    /// Looks for what is to be known of the things with these numbers, one or more times each, if some
    /// are new and it is time; what was known of others is forgotten then. True if it has looked.
    pub fn look(&mut self, numbers: &[u64], find: impl FnOnce() -> HashMap<u64, T>) -> bool {
        let is_due = self.looked.is_none_or(|it| it.elapsed() >= LOOK_EVERY);
        if !is_due || numbers.iter().all(|it| self.all.contains_key(it)) {
            return false;
        }
        let found = find();
        let numbers = numbers.iter();
        self.all = numbers.map(|it| (*it, found.get(it).cloned())).collect();
        self.looked = Some(Instant::now());
        true
    }

    /// What is known of the thing with this number.
    #[must_use]
    pub fn of(&self, number: u64) -> Option<&T> {
        self.all.get(&number)?.as_ref()
    }

    /// All that is known.
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

    fn listening() -> (TcpListener, u64) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let descriptor = format!("/proc/self/fd/{}", socket.as_raw_fd());
        let inode = inode(Path::new(&descriptor)).unwrap();
        (socket, inode)
    }

    #[test]
    fn a_socket_of_this_process_is_its_own_though_children_share_it() {
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
    fn a_process_whose_name_is_no_text_is_an_owner_like_others() {
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
    fn it_is_looked_where_some_are_new_and_not_at_once_again() {
        let mut known = Known::default();
        let found = || HashMap::from([(1, "one"), (2, "two")]);
        assert!(!known.look(&[], found));
        assert!(known.look(&[1, 3, 3], found));
        assert_eq!(
            (known.of(1), known.of(2), known.of(3)),
            (Some(&"one"), None, None)
        );
        assert!(!known.look(&[1, 2, 3], found));
        known.looked = Instant::now().checked_sub(LOOK_EVERY);
        assert!(!known.look(&[3], || panic!("it is known that there is none")));
        assert!(known.look(&[2], found));
        assert_eq!(known.all().collect::<Vec<_>>(), [&"two"]);
    }
}
