use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use pillion_host::pattern::{is_pattern, matching};
use pillion_host::{Container, held_file};

use crate::escaped::escaped;
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
    Process,
    Container,
}

impl From<&OsStr> for NamespaceName {
    /// Takes a number for a PID unless it is a name as well.
    fn from(name: &OsStr) -> Self {
        let under_names = Path::new(NAMES).join(name);
        let number = name.to_str().and_then(|name| name.parse::<u32>().ok());
        let process = number.filter(|_| !under_names.exists());
        let path = if let Some(process) = process {
            PathBuf::from(format!("/proc/{process}/ns/net"))
        } else if name.as_bytes().contains(&b'/') {
            PathBuf::from(name)
        } else {
            under_names
        };
        Self {
            name: name.to_owned(),
            path,
            kind: match process {
                Some(_) => Kind::Process,
                None => Kind::File,
            },
        }
    }
}

impl FromStr for NamespaceName {
    type Err = std::convert::Infallible;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Ok(OsStr::new(name).into())
    }
}

impl NamespaceName {
    /// The name as the user said it.
    #[must_use]
    pub fn as_said(&self) -> &OsStr {
        &self.name
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
        if name.is_empty() {
            return Err(Error::UnknownNamespace {
                name,
                known: known(),
            });
        }
        let file = File::open(&self.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::UnknownNamespace {
                name,
                known: known(),
            },
            io::ErrorKind::PermissionDenied => Error::MayNotEnter { name },
            _ => Error::system(format!("open the {self}"), error),
        })?;
        Namespace::of(&escaped(&self.name), file)
    }

    /// False if the network namespace, opened under this name, is no longer called so.
    pub(crate) fn stands_for(&self, namespace: &Namespace) -> bool {
        let is_here = |file| held_file::is_at(file, &self.path).unwrap_or(false);
        namespace.file().is_some_and(is_here)
    }

    /// True if what has this name later is what the user meant; another process with the PID is
    /// not.
    pub(crate) fn may_return(&self) -> bool {
        self.kind != Kind::Process
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = escaped(&self.name);
        match self.kind {
            Kind::File | Kind::Process => write!(f, "network namespace {name}"),
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
