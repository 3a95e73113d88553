//! Requested network namespaces: names and containers.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use pillion_stats::names::escaped;

use crate::host::pattern::{is_pattern, matching};
use crate::host::{Container, ContainerSelector, Containers, atomic_file, process_start_time};
use crate::{Error, Namespace, cgroup1_mount, cgroup2_mount};

/// The folder with the names of `ip netns`.
const NETNS_DIR: &str = "/run/netns";

/// A user's name for a network namespace: a name under `/run/netns`, the PID of a process in it, or
/// a file that refers to it. The namespace may change. A name or a file name may have shell
/// wildcards, and then matches several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceName {
    name: OsString,
    path: PathBuf,
    kind: NameKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    File,
    /// A name if it exists at lookup, otherwise a PID.
    Number(Process),
    Process(Process),
    Container,
}

/// The process that had a number when it was named; a later process may reuse it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    number: u32,
    /// `None` if there was none.
    started: Option<u64>,
}

impl Process {
    fn named(number: u32) -> Self {
        let started = process_start_time(Path::new(&format!("/proc/{number}")));
        Self { number, started }
    }

    fn has_ended(self) -> bool {
        self.started.is_none() || self != Self::named(self.number)
    }
}

impl From<&OsStr> for NamespaceName {
    /// A number is a PID unless such a name exists at lookup.
    fn from(name: &OsStr) -> Self {
        let number = name.to_str().and_then(|name| name.parse().ok());
        let number = number.map(Process::named);
        Self {
            name: name.to_owned(),
            path: match name.as_bytes().contains(&b'/') {
                true => PathBuf::from(name),
                false => Path::new(NETNS_DIR).join(name),
            },
            kind: number.map_or(NameKind::File, NameKind::Number),
        }
    }
}

/// The name of a network namespace is empty.
#[derive(Debug, thiserror::Error)]
#[error(
    "empty name: expected a network namespace, a name under {NETNS_DIR} or a file such as /proc/PID/ns/net"
)]
pub struct EmptyNamespaceName;

impl FromStr for NamespaceName {
    type Err = EmptyNamespaceName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "" => Err(EmptyNamespaceName),
            _ => Ok(OsStr::new(name).into()),
        }
    }
}

impl NamespaceName {
    /// Returns the same name, never as a PID. A lookup before the name exists, as at boot, would
    /// find an unrelated process with that number, usually in the host's namespace.
    #[must_use]
    pub fn without_process(self) -> Self {
        let kind = match self.kind {
            NameKind::Number(_) => NameKind::File,
            kind => kind,
        };
        Self { kind, ..self }
    }

    /// Returns the name with a number resolved to what it is now.
    pub(crate) fn resolved(&self) -> Self {
        match self.kind {
            NameKind::Number(process) if !self.path.exists() => Self {
                name: self.name.clone(),
                path: format!("/proc/{}/ns/net", process.number).into(),
                kind: NameKind::Process(process),
            },
            _ => self.clone().without_process(),
        }
    }

    /// The name as the user gave it.
    #[must_use]
    pub fn as_given(&self) -> &OsStr {
        &self.name
    }

    /// The form for a configuration file that is read later: a process becomes its /proc path,
    /// because a bare number is not a PID there.
    #[must_use]
    pub fn for_config_file(&self) -> OsString {
        let resolved = self.resolved();
        match resolved.kind {
            NameKind::Process(_) => resolved.path.into_os_string(),
            _ => resolved.name,
        }
    }

    /// True if the name has wildcards, and nothing is called exactly so.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        is_pattern(&self.name) && !self.path.exists()
    }

    /// The names that there are now like this one, if it has wildcards; else this one.
    #[must_use]
    pub fn expand(&self) -> Vec<Self> {
        let (Some(folder), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return vec![self.clone()];
        };
        if !self.is_pattern() {
            return vec![self.clone()];
        }
        let found = matching(folder, name).into_iter();
        let named = found.filter_map(|path| {
            let name = match self.name.as_bytes().contains(&b'/') {
                true => path.clone().into_os_string(),
                false => path.file_name()?.to_owned(),
            };
            Some(Self {
                name,
                path,
                kind: NameKind::File,
            })
        });
        named.collect()
    }

    /// The folder of a name with wildcards, if it is not readable.
    pub(crate) fn unreadable_folder(&self) -> Option<&Path> {
        let folder = self.path.parent()?;
        let error = fs::read_dir(folder).err()?;
        (error.kind() == io::ErrorKind::PermissionDenied).then_some(folder)
    }

    /// The name of a container's namespace; `None` if no process of it is visible.
    pub(crate) fn of_container(container: &Container) -> Option<Self> {
        let process = container.process?;
        Some(Self {
            name: format!("container {container}").into(),
            path: format!("/proc/{process}/ns/net").into(),
            kind: NameKind::Container,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the network namespace that the name refers to now.
    ///
    /// # Errors
    /// [`Error::UnknownNamespace`], [`Error::NotANamespace`], [`Error::EnterNotPermitted`];
    /// [`Error::System`].
    pub fn open(&self) -> Result<Namespace, Error> {
        let name = escaped(&self.name);
        let unknown = || Error::UnknownNamespace {
            name: name.clone(),
            known: known_names(),
        };
        if name.is_empty() {
            return Err(unknown());
        }
        let resolved = self.resolved();
        let file = resolved.file();
        // A later process with the same number started later. A file opened while the meant process
        // lived belongs to it.
        if resolved.is_process_gone() {
            return Err(unknown());
        }
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => unknown(),
            Some(libc::ELOOP) => Error::NotANamespace { name: name.clone() },
            Some(libc::EACCES) => Error::EnterNotPermitted { name: name.clone() },
            _ => Error::system(format!("open the {self}"), error),
        })?;
        let file = file.ok_or_else(|| Error::NotANamespace { name: name.clone() })?;
        Namespace::from_file(&name, file)
    }

    /// Opens the namespace's file; `None` if the path is not a namespace. It is checked before it
    /// is opened: a FIFO would block, a device may have side effects, and a file that `ip netns`
    /// has just created may not be readable.
    fn file(&self) -> io::Result<Option<File>> {
        let mut options = File::options();
        let descriptor = options.read(true).custom_flags(libc::O_PATH);
        let descriptor = descriptor.open(&self.path)?;
        if fstatfs(&descriptor)?.filesystem_type() != NSFS_MAGIC {
            return Ok(None);
        }
        // By its name it may be another one by now.
        File::open(format!("/proc/self/fd/{}", descriptor.as_raw_fd())).map(Some)
    }

    /// False if the network namespace, opened by this name, has lost the name.
    pub(crate) fn is_current(&self, namespace: &Namespace) -> bool {
        let is_here = |file| atomic_file::is_at(file, &self.path).unwrap_or(false);
        namespace.file().is_some_and(is_here)
    }

    /// True if a later object with this name is still what the user meant; a later process with the
    /// PID is not.
    pub(crate) fn may_reappear(&self) -> bool {
        !matches!(self.kind, NameKind::Process(_))
    }

    /// True if it names a process that has ended, even if another process has its number now.
    #[must_use]
    pub fn is_process_gone(&self) -> bool {
        matches!(self.resolved().kind, NameKind::Process(process) if process.has_ended())
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = escaped(&self.name);
        match self.kind {
            NameKind::File | NameKind::Number(_) | NameKind::Process(_) => {
                write!(f, "network namespace {name}")
            }
            NameKind::Container => f.write_str(&name),
        }
    }
}

/// Names and containers by which the user requests network namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Names; if empty, the calling thread's namespace.
    pub named: Vec<NamespaceName>,
    /// Containers whose namespaces are requested additionally.
    pub container_selectors: Vec<ContainerSelector>,
}

impl Namespaces {
    /// True if only the calling thread's namespace is requested.
    #[must_use]
    pub fn is_own_only(&self) -> bool {
        self.named.is_empty() && self.container_selectors.is_empty()
    }

    /// Copies the names so that a number is a name, and never the id of a process.
    #[must_use]
    pub fn without_processes(&self) -> Self {
        let named = self.named.iter().cloned();
        Self {
            named: named.map(NamespaceName::without_process).collect(),
            container_selectors: self.container_selectors.clone(),
        }
    }

    /// True if names or containers may match later.
    pub(crate) fn may_grow(&self) -> bool {
        self.patterns().next().is_some() || !self.container_selectors.is_empty()
    }

    /// Names without wildcards, which must exist.
    pub(crate) fn exact(&self) -> impl Iterator<Item = &NamespaceName> {
        self.named.iter().filter(|name| !name.is_pattern())
    }

    /// Names with wildcards.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &NamespaceName> {
        self.named.iter().filter(|name| name.is_pattern())
    }

    /// The running containers, if any are requested.
    #[must_use]
    pub fn containers(&self) -> Containers {
        let mut containers = Containers::default();
        self.find_containers(&mut containers);
        containers
    }

    /// Finds the running containers, if any are requested.
    pub(crate) fn find_containers(&self, containers: &mut Containers) {
        if !self.container_selectors.is_empty()
            && let Ok(mount) = cgroup2_mount()
        {
            containers.refresh(&mount, cgroup1_mount().as_deref());
        }
    }

    /// The requested ones of the running containers.
    pub(crate) fn chosen<'a>(
        &'a self,
        running: &'a [Container],
    ) -> impl Iterator<Item = &'a Container> {
        let is_chosen = |it: &&Container| {
            let mut selectors = self.container_selectors.iter();
            selectors.any(|selector| selector.matches(it))
        };
        running.iter().filter(is_chosen)
    }

    /// The current names that match patterns, and the names of containers.
    pub(crate) fn matched(&self, running: &[Container]) -> Vec<NamespaceName> {
        let matched = self.patterns().flat_map(NamespaceName::expand);
        let container_names = self.chosen(running).filter_map(NamespaceName::of_container);
        let own = self.named.is_empty().then(|| identity(OWN_NETNS)).flatten();
        // A container may use the host's network namespace.
        let is_other = |it: &NamespaceName| own.is_none() || identity(it.path()) != own;
        matched.chain(container_names.filter(is_other)).collect()
    }

    /// All current names.
    pub(crate) fn expand(&self) -> Vec<NamespaceName> {
        let matched = self.matched(self.containers().running());
        self.exact().cloned().chain(matched).collect()
    }
}

/// The calling process's network namespace.
const OWN_NETNS: &str = "/proc/self/ns/net";

fn identity(file: impl AsRef<Path>) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|file| (file.dev(), file.ino()))
}

fn known_names() -> String {
    let entries = fs::read_dir(NETNS_DIR).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| escaped(&entry.file_name())).collect();
    names.sort();
    if names.is_empty() {
        return "none".to_owned();
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn number_is_netns_name_first_then_pid() {
        let own = std::process::id().to_string();
        let number = NamespaceName::from(OsStr::new(&own));
        assert_eq!(
            number.resolved().path().to_str(),
            Some(&*format!("/proc/{own}/ns/net"))
        );
        assert!(number.open().is_ok() && !number.resolved().may_reappear());
        let in_a_file = NamespaceName::from(&*number.for_config_file()).without_process();
        assert!(in_a_file.open().is_ok());
        let opened = number.clone().without_process().open();
        assert!(matches!(opened, Err(Error::UnknownNamespace { .. })));
        let folder = tempfile::tempdir().unwrap();
        let name = NamespaceName {
            path: folder.path().join("10"),
            ..number
        };
        fs::write(name.path(), "").unwrap();
        assert_eq!(name.resolved().path(), name.path());
        assert!(name.resolved().may_reappear());
    }

    #[test]
    fn pid_never_refers_to_later_process() {
        let own = std::process::id().to_string();
        let own = NamespaceName::from(OsStr::new(&own));
        assert!(!own.is_process_gone());
        let NameKind::Number(process) = own.kind else {
            panic!("{own:?}");
        };
        for started in [None, process.started.map(|it| it - 1)] {
            let kind = NameKind::Number(Process { started, ..process });
            let earlier = NamespaceName {
                kind,
                ..own.clone()
            };
            assert!(earlier.is_process_gone());
            let opened = earlier.open();
            assert!(matches!(opened, Err(Error::UnknownNamespace { .. })));
        }
    }

    #[test]
    fn other_file_types_are_rejected_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("/dev/tty", at("terminal")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        fs::write(at("plain"), "").unwrap();
        for name in ["fifo", "loop", "terminal", "socket", "folder", "plain"] {
            let name = NamespaceName::from(at(name).as_os_str());
            let (sender, result) = mpsc::channel();
            let opened = name.clone();
            thread::spawn(move || sender.send(opened.open().map(|_| ())));
            let result = result.recv_timeout(Duration::from_secs(5));
            let is_rejected = matches!(result, Ok(Err(Error::NotANamespace { .. })));
            assert!(is_rejected, "{name}: {result:?}");
        }
    }
}
