use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use pillion_stats::names::escaped;

use crate::host::pattern::{is_pattern, matching};
use crate::host::{Container, atomic_file, process_began};
use crate::{Error, Namespace};

/// The folder where `ip netns` keeps the names that it gives.
const NAMES: &str = "/run/netns";

/// What a user calls a network namespace: a name under `/run/netns`, the PID of a process
/// that is in it, or a file that refers to it. Which one that is may change. A name or a file's name
/// may have the wildcards of shells, and stands for many then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceName {
    name: OsString,
    path: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    /// A name if there is such a one when it is looked for, else a PID.
    Number(Process),
    Process(Process),
    Container,
}

/// The process that had a number when it was named; another may have it later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    number: u32,
    /// `None` if there was none.
    began: Option<u64>,
}

impl Process {
    fn named(number: u32) -> Self {
        let began = process_began(Path::new(&format!("/proc/{number}")));
        Self { number, began }
    }

    fn has_ended(self) -> bool {
        self.began.is_none() || self != Self::named(self.number)
    }
}

impl From<&OsStr> for NamespaceName {
    /// A number is a PID unless there is such a name when it is looked for.
    fn from(name: &OsStr) -> Self {
        let number = name.to_str().and_then(|name| name.parse().ok());
        let number = number.map(Process::named);
        Self {
            name: name.to_owned(),
            path: match name.as_bytes().contains(&b'/') {
                true => PathBuf::from(name),
                false => Path::new(NAMES).join(name),
            },
            kind: number.map_or(Kind::File, Kind::Number),
        }
    }
}

/// Nothing stands where a network namespace was to be named.
#[derive(Debug, thiserror::Error)]
#[error("``; expected a network namespace: a name under {NAMES}, or a file as /proc/PID/ns/net")]
pub struct NoNamespaceName;

impl FromStr for NamespaceName {
    type Err = NoNamespaceName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "" => Err(NoNamespaceName),
            _ => Ok(OsStr::new(name).into()),
        }
    }
}

impl NamespaceName {
    /// The same, and never a PID. Whoever may look before the name is there, as at boot, would meet
    /// the process that happens to have the number, which is in the host's namespace as a rule.
    #[must_use]
    pub fn without_process(self) -> Self {
        let kind = match self.kind {
            Kind::Number(_) => Kind::File,
            kind => kind,
        };
        Self { kind, ..self }
    }

    /// The same, and a number for good what it is now.
    pub(crate) fn settled(&self) -> Self {
        match self.kind {
            Kind::Number(process) if !self.path.exists() => Self {
                name: self.name.clone(),
                path: format!("/proc/{}/ns/net", process.number).into(),
                kind: Kind::Process(process),
            },
            _ => self.clone().without_process(),
        }
    }

    /// The name as the user said it.
    #[must_use]
    pub fn as_said(&self) -> &OsStr {
        &self.name
    }

    /// As a file names it that is read later: a process by what /proc has of it, which ends with the
    /// process, for a number alone is no PID there.
    #[must_use]
    pub fn for_a_file(&self) -> OsString {
        let settled = self.settled();
        match settled.kind {
            Kind::Process(_) => settled.path.into_os_string(),
            _ => settled.name,
        }
    }

    /// True if the name has wildcards, and nothing is called exactly so.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        is_pattern(&self.name) && !self.path.exists()
    }

    /// The names that there are now like this one, if it has wildcards; else this one.
    #[must_use]
    pub fn now(&self) -> Vec<Self> {
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
                kind: Kind::File,
            })
        });
        named.collect()
    }

    /// What a container's is called; `None` if no process of it can be seen.
    pub(crate) fn of_container(container: &Container) -> Option<Self> {
        let process = container.process?;
        Some(Self {
            name: format!("container {container}").into(),
            path: format!("/proc/{process}/ns/net").into(),
            kind: Kind::Container,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the network namespace that the name stands for now.
    ///
    /// # Errors
    /// [`Error::UnknownNamespace`], [`Error::NotANamespace`], [`Error::MayNotEnter`];
    /// [`Error::System`].
    pub fn open(&self) -> Result<Namespace, Error> {
        let name = escaped(&self.name);
        let unknown = || Error::UnknownNamespace {
            name: name.clone(),
            known: known(),
        };
        if name.is_empty() {
            return Err(unknown());
        }
        let settled = self.settled();
        let file = settled.file();
        // Whoever has the number after the process that was meant began later; what was opened while
        // that process lived is its own.
        if settled.is_of_the_past() {
            return Err(unknown());
        }
        let file = file.map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => unknown(),
            Some(libc::ELOOP) => Error::NotANamespace { name: name.clone() },
            Some(libc::EACCES) => Error::MayNotEnter { name: name.clone() },
            _ => Error::system(format!("open the {self}"), error),
        })?;
        let file = file.ok_or_else(|| Error::NotANamespace { name: name.clone() })?;
        Namespace::of(&name, file)
    }

    /// The namespace's file; `None` if it is another one. What else may have such a name is looked at
    /// without being opened: a FIFO would keep one waiting, a device may do something, and one that
    /// `ip netns` has just made, to put a namespace there, may not be read.
    fn file(&self) -> io::Result<Option<File>> {
        let mut options = File::options();
        let looked_at = options.read(true).custom_flags(libc::O_PATH);
        let looked_at = looked_at.open(&self.path)?;
        if fstatfs(&looked_at)?.filesystem_type() != NSFS_MAGIC {
            return Ok(None);
        }
        // By its name it may be another one by now.
        File::open(format!("/proc/self/fd/{}", looked_at.as_raw_fd())).map(Some)
    }

    /// False if the network namespace, opened under this name, is no longer called so.
    pub(crate) fn stands_for(&self, namespace: &Namespace) -> bool {
        let is_here = |file| atomic_file::is_at(file, &self.path).unwrap_or(false);
        namespace.file().is_some_and(is_here)
    }

    /// True if what has this name later is what the user meant; another process with the PID is
    /// not.
    pub(crate) fn may_return(&self) -> bool {
        !matches!(self.kind, Kind::Process(_))
    }

    /// True if it is that of a process which has ended, whatever has its number now.
    #[must_use]
    pub fn is_of_the_past(&self) -> bool {
        matches!(self.settled().kind, Kind::Process(process) if process.has_ended())
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = escaped(&self.name);
        match self.kind {
            Kind::File | Kind::Number(_) | Kind::Process(_) => {
                write!(f, "network namespace {name}")
            }
            Kind::Container => f.write_str(&name),
        }
    }
}

fn known() -> String {
    let entries = fs::read_dir(NAMES).into_iter().flatten().flatten();
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
    fn a_number_is_a_name_where_there_is_one_and_else_a_process_if_it_may_be() {
        let own = std::process::id().to_string();
        let number = NamespaceName::from(OsStr::new(&own));
        assert_eq!(
            number.settled().path().to_str(),
            Some(&*format!("/proc/{own}/ns/net"))
        );
        assert!(number.open().is_ok() && !number.settled().may_return());
        let in_a_file = NamespaceName::from(&*number.for_a_file()).without_process();
        assert!(in_a_file.open().is_ok());
        let opened = number.clone().without_process().open();
        assert!(matches!(opened, Err(Error::UnknownNamespace { .. })));
        let folder = tempfile::tempdir().unwrap();
        let name = NamespaceName {
            path: folder.path().join("10"),
            ..number
        };
        fs::write(name.path(), "").unwrap();
        assert_eq!(name.settled().path(), name.path());
        assert!(name.settled().may_return());
    }

    #[test]
    fn a_number_stands_for_the_process_that_had_it_and_for_no_later_one() {
        let own = std::process::id().to_string();
        let own = NamespaceName::from(OsStr::new(&own));
        assert!(!own.is_of_the_past());
        let Kind::Number(process) = own.kind else {
            panic!("{own:?}");
        };
        for began in [None, process.began.map(|it| it - 1)] {
            let kind = Kind::Number(Process { began, ..process });
            let earlier = NamespaceName {
                kind,
                ..own.clone()
            };
            assert!(earlier.is_of_the_past());
            let opened = earlier.open();
            assert!(matches!(opened, Err(Error::UnknownNamespace { .. })));
        }
    }

    #[test]
    fn what_is_no_network_namespace_is_told_so_and_never_waited_for() {
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
            let (tell, told) = mpsc::channel();
            let opened = name.clone();
            thread::spawn(move || tell.send(opened.open().map(|_| ())));
            let told = told.recv_timeout(Duration::from_secs(5));
            let is_told = matches!(told, Ok(Err(Error::NotANamespace { .. })));
            assert!(is_told, "{name}: {told:?}");
        }
    }
}
