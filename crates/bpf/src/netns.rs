//! Network namespaces, the scope, and the programs' table of it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::Error;
use crate::host::network_namespace;

/// A network namespace of this host: the calling thread's, or another one, which this value keeps
/// alive.
#[derive(Debug, Clone, Default)]
pub struct Namespace(Option<Arc<OpenedNamespace>>);

#[derive(Debug)]
struct OpenedNamespace {
    name: String,
    file: File,
    cookie: u64,
}

impl Namespace {
    /// Enters the network namespace that `file` refers to, and reads its cookie. `name` is for
    /// messages.
    pub(crate) fn from_file(name: &str, file: File) -> Result<Self, Error> {
        let cookie = enter_namespace(name, &file, cookie)??;
        let name = name.to_owned();
        Ok(Self(Some(Arc::new(OpenedNamespace { name, file, cookie }))))
    }

    /// The user's name for the namespace; `None` for the calling thread's.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_deref().map(|other| other.name.as_str())
    }

    /// The file that keeps the namespace alive; `None` for the calling thread's.
    pub(crate) fn file(&self) -> Option<&File> {
        self.0.as_deref().map(|other| &other.file)
    }

    /// A unique number of the namespace; `None` for the calling thread's.
    pub(crate) fn id(&self) -> Option<u64> {
        self.0.as_deref().map(|other| other.cookie)
    }

    /// The kernel's cookie of the namespace, which is never reused.
    pub(crate) fn cookie(&self) -> Result<u64, Error> {
        self.0.as_deref().map_or_else(cookie, |it| Ok(it.cookie))
    }

    /// Runs `work` in a thread inside the network namespace, and returns its result.
    ///
    /// # Errors
    /// [`Error::NotANamespace`], [`Error::EnterNotPermitted`]; [`Error::System`].
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        match self.0.as_deref() {
            None => Ok(work()),
            Some(other) => enter_namespace(&other.name, &other.file, work),
        }
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Namespace {}

fn enter_namespace<T: Send>(
    name: &str,
    file: &File,
    work: impl FnOnce() -> T + Send,
) -> Result<T, Error> {
    let name = name.to_owned();
    network_namespace::enter(file, work).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => Error::NotANamespace { name },
        Some(libc::EPERM) => Error::EnterNotPermitted { name },
        _ => Error::system(format!("enter the network namespace {name}"), error),
    })
}

fn cookie() -> Result<u64, Error> {
    let failed = |error| Error::system("find this network namespace's cookie", error);
    network_namespace::cookie().map_err(failed)
}

/// The network namespaces in which the programs cover connections.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Connections of the cgroup's sockets in any network namespace.
    #[default]
    Anywhere,
    /// Connections of only the calling thread's network namespace.
    ThisNamespace,
    /// Connections of only these network namespaces.
    Namespaces(Vec<Namespace>),
}

/// The network namespaces in scope, and the programs' table of them.
#[derive(Debug)]
pub(crate) struct ScopedNamespaces {
    table: MapHandle,
    namespaces: Vec<Namespace>,
}

impl ScopedNamespaces {
    /// Adds as many namespaces of the scope as the table has room for. The others are retried like new
    /// ones.
    pub(crate) fn new(table: MapHandle, scope: &Scope) -> Result<Self, Error> {
        let mut scoped = Self {
            table,
            namespaces: Vec::new(),
        };
        scoped.reset(scope)?;
        Ok(scoped)
    }

    /// Resets it to the state after [`ScopedNamespaces::new`]; the table must already be empty.
    pub(crate) fn reset(&mut self, scope: &Scope) -> Result<(), Error> {
        self.namespaces.clear();
        match scope {
            Scope::Anywhere | Scope::ThisNamespace => self.add(&Namespace::default())?,
            Scope::Namespaces(namespaces) => {
                for namespace in namespaces {
                    match self.add(namespace) {
                        Err(Error::TooManyNamespaces { .. }) => break,
                        added => added?,
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Adds a network namespace.
    pub(crate) fn add(&mut self, namespace: &Namespace) -> Result<(), Error> {
        let key = namespace.cookie()?.to_ne_bytes();
        self.table
            .update(&key, &[1], MapFlags::ANY)
            .map_err(|error| self.failed(namespace, &error))?;
        self.namespaces.push(namespace.clone());
        Ok(())
    }

    /// Removes all network namespaces except these; returns the removed ones.
    pub(crate) fn retain(&mut self, namespaces: &[Namespace]) -> Vec<Namespace> {
        let scoped = std::mem::take(&mut self.namespaces).into_iter();
        let (retained, left): (Vec<_>, Vec<_>) = scoped.partition(|it| namespaces.contains(it));
        self.namespaces = retained;
        for cookie in left.iter().filter_map(|it| it.cookie().ok()) {
            // A missing entry is already removed.
            let _ = self.table.delete(&cookie.to_ne_bytes());
        }
        left
    }

    fn failed(&self, namespace: &Namespace, error: &libbpf_rs::Error) -> Error {
        match error.kind() {
            ErrorKind::TooBig => Error::TooManyNamespaces {
                name: namespace.name().unwrap_or("its own").to_owned(),
                max: self.table.max_entries(),
            },
            _ => Error::system(
                "store the network namespaces",
                io::Error::other(error.to_string()),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::thread;

    use libbpf_rs::MapType;
    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::Uid;

    use super::*;

    fn namespace(name: &str) -> Namespace {
        let made = || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            File::open("/proc/thread-self/ns/net").unwrap()
        };
        let file = thread::scope(|scope| scope.spawn(made).join().unwrap());
        Namespace::from_file(name, file).unwrap()
    }

    #[test]
    fn full_namespace_table_rejects_until_entry_is_freed() {
        if !Uid::effective().is_root() {
            println!("left out without root");
            return;
        }
        let mut options = libbpf_sys::bpf_map_create_opts::default();
        options.sz = size_of_val(&options) as libbpf_sys::size_t;
        let table = MapHandle::create(MapType::Hash, Some("namespaces"), 8, 1, 2, &options);
        let all = ["one", "two", "three"].map(namespace);
        let scope = Scope::Namespaces(all.to_vec());
        let mut scoped = ScopedNamespaces::new(table.unwrap(), &scope).unwrap();
        assert_eq!(scoped.namespaces(), &all[..2]);
        let refused = scoped.add(&all[2]).unwrap_err().to_string();
        assert!(refused.starts_with("three: the limit of 2 "), "{refused}");
        assert_eq!(scoped.retain(&all[1..]), &all[..1]);
        scoped.add(&all[2]).unwrap();
    }
}
