//! Network namespaces: one, those whose connections are taken in, and the kernel's table of these.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::host::{Container, ContainerChoice, Containers, network_namespace};
use crate::{Error, NamespaceName, cgroup1_mount, cgroup2_mount};

/// A network namespace of this host: the calling thread's, or one that is kept from ending
/// as long as this value lives.
#[derive(Debug, Clone, Default)]
pub struct Namespace(Option<Arc<Other>>);

#[derive(Debug)]
struct Other {
    name: String,
    file: File,
    cookie: u64,
}

impl Namespace {
    /// The network namespace that `file` refers to, to be called `name`.
    pub(crate) fn of(name: &str, file: File) -> Result<Self, Error> {
        let cookie = inside(name, &file, cookie)??;
        let name = name.to_owned();
        Ok(Self(Some(Arc::new(Other { name, file, cookie }))))
    }

    /// What the user calls the namespace; `None` for the calling thread's.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_deref().map(|other| other.name.as_str())
    }

    /// The file that keeps the namespace from ending; `None` for the calling thread's.
    pub(crate) fn file(&self) -> Option<&File> {
        self.0.as_deref().map(|other| &other.file)
    }

    /// A number that tells the namespace from others; `None` for the calling thread's.
    pub(crate) fn id(&self) -> Option<u64> {
        self.0.as_deref().map(|other| other.cookie)
    }

    /// The kernel's cookie of the namespace, which no second one will ever have.
    pub(crate) fn cookie(&self) -> Result<u64, Error> {
        self.0.as_deref().map_or_else(cookie, |it| Ok(it.cookie))
    }

    /// Runs `work` in a thread inside the network namespace, and returns its result.
    ///
    /// # Errors
    /// [`Error::NotANamespace`], [`Error::MayNotEnter`]; [`Error::System`].
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        match self.0.as_deref() {
            None => Ok(work()),
            Some(other) => inside(&other.name, &other.file, work),
        }
    }
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Namespace {}

fn inside<T: Send>(name: &str, file: &File, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let name = name.to_owned();
    network_namespace::enter(file, work).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => Error::NotANamespace { name },
        Some(libc::EPERM) => Error::MayNotEnter { name },
        _ => Error::system(format!("enter the network namespace {name}"), error),
    })
}

fn cookie() -> Result<u64, Error> {
    let failed = |error| Error::system("find this network namespace's cookie", error);
    network_namespace::cookie().map_err(failed)
}

/// Which network namespaces' connections are taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Those with these names; if there are none, the calling thread's.
    pub named: Vec<NamespaceName>,
    /// Those of these containers, beside.
    pub of_containers: Vec<ContainerChoice>,
}

impl Namespaces {
    /// True if only the calling thread's are asked for.
    #[must_use]
    pub fn is_own_alone(&self) -> bool {
        self.named.is_empty() && self.of_containers.is_empty()
    }

    /// The same, with no number that stands for a process.
    #[must_use]
    pub fn without_processes(&self) -> Self {
        let named = self.named.iter().cloned();
        Self {
            named: named.map(NamespaceName::without_process).collect(),
            of_containers: self.of_containers.clone(),
        }
    }

    /// True if some may come that are not there yet.
    pub(crate) fn may_come(&self) -> bool {
        self.patterns().next().is_some() || !self.of_containers.is_empty()
    }

    /// Names that have to be there.
    pub(crate) fn plain(&self) -> impl Iterator<Item = &NamespaceName> {
        self.named.iter().filter(|name| !name.is_pattern())
    }

    /// Names with wildcards.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &NamespaceName> {
        self.named.iter().filter(|name| name.is_pattern())
    }

    /// The containers that run now, if any are asked for.
    #[must_use]
    pub fn containers(&self) -> Containers {
        let mut containers = Containers::default();
        self.look_for_containers(&mut containers);
        containers
    }

    /// Looks for the containers that run, if any are asked for.
    pub(crate) fn look_for_containers(&self, containers: &mut Containers) {
        if !self.of_containers.is_empty()
            && let Ok(mount) = cgroup2_mount()
        {
            containers.look(&mount, cgroup1_mount().as_deref());
        }
    }

    /// Those of the containers that are asked for.
    pub(crate) fn chosen<'a>(
        &'a self,
        running: &'a [Container],
    ) -> impl Iterator<Item = &'a Container> {
        let is_chosen = |it: &&Container| {
            let mut choices = self.of_containers.iter();
            choices.any(|choice| choice.has(it))
        };
        running.iter().filter(is_chosen)
    }

    /// The names that there are now like those with wildcards, and those of the containers.
    pub(crate) fn matched(&self, running: &[Container]) -> Vec<NamespaceName> {
        let matched = self.patterns().flat_map(NamespaceName::now);
        let of_containers = self.chosen(running).filter_map(NamespaceName::of_container);
        let own = self.named.is_empty().then(|| identity(OWN)).flatten();
        // The host's is a container's that was given it.
        let is_other = |it: &NamespaceName| own.is_none() || identity(it.path()) != own;
        matched.chain(of_containers.filter(is_other)).collect()
    }

    /// All names that there are now.
    pub(crate) fn now(&self) -> Vec<NamespaceName> {
        let matched = self.matched(self.containers().running());
        self.plain().cloned().chain(matched).collect()
    }
}

/// The calling process's network namespace.
const OWN: &str = "/proc/self/ns/net";

fn identity(file: impl AsRef<Path>) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|file| (file.dev(), file.ino()))
}

/// Which network namespaces' connections are taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Connections of the cgroup's sockets, in whichever network namespace.
    #[default]
    Anywhere,
    /// Connections of the calling thread's network namespace alone.
    ThisNamespace,
    /// Connections of these network namespaces alone.
    Namespaces(Vec<Namespace>),
}

/// The network namespaces that are served, and the kernel's table of them.
#[derive(Debug)]
pub(crate) struct Served {
    table: MapHandle,
    namespaces: Vec<Namespace>,
}

impl Served {
    /// Serves as many of the scope's as there is room for: others are tried again like any that come.
    pub(crate) fn new(table: MapHandle, scope: &Scope) -> Result<Self, Error> {
        let mut served = Self {
            table,
            namespaces: Vec::new(),
        };
        served.begin_anew(scope)?;
        Ok(served)
    }

    /// As [`Served::new`], with a table that is empty again.
    pub(crate) fn begin_anew(&mut self, scope: &Scope) -> Result<(), Error> {
        self.namespaces.clear();
        match scope {
            Scope::Anywhere | Scope::ThisNamespace => self.begin(&Namespace::default())?,
            Scope::Namespaces(namespaces) => {
                for namespace in namespaces {
                    match self.begin(namespace) {
                        Err(Error::TooManyNamespaces { .. }) => break,
                        begun => begun?,
                    }
                }
            }
        }
        Ok(())
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Serves this network namespace, too.
    pub(crate) fn begin(&mut self, namespace: &Namespace) -> Result<(), Error> {
        let key = namespace.cookie()?.to_ne_bytes();
        self.table
            .update(&key, &[1], MapFlags::ANY)
            .map_err(|error| self.failed(namespace, &error))?;
        self.namespaces.push(namespace.clone());
        Ok(())
    }

    /// Serves no network namespaces but these any more; gives the others.
    pub(crate) fn keep(&mut self, namespaces: &[Namespace]) -> Vec<Namespace> {
        let served = std::mem::take(&mut self.namespaces).into_iter();
        let (stay, left): (Vec<_>, Vec<_>) = served.partition(|it| namespaces.contains(it));
        self.namespaces = stay;
        for cookie in left.iter().filter_map(|it| it.cookie().ok()) {
            // What is not in the table any more need not be taken out.
            let _ = self.table.delete(&cookie.to_ne_bytes());
        }
        left
    }

    fn failed(&self, namespace: &Namespace, error: &libbpf_rs::Error) -> Error {
        match error.kind() {
            ErrorKind::TooBig => Error::TooManyNamespaces {
                name: namespace.name().unwrap_or("its own").to_owned(),
                most: self.table.max_entries(),
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
        Namespace::of(name, file).unwrap()
    }

    #[test]
    fn as_many_are_served_as_there_is_room_for_and_others_once_there_is() {
        if !Uid::effective().is_root() {
            println!("left out without root");
            return;
        }
        let mut options = libbpf_sys::bpf_map_create_opts::default();
        options.sz = size_of_val(&options) as libbpf_sys::size_t;
        let table = MapHandle::create(MapType::Hash, Some("namespaces"), 8, 1, 2, &options);
        let all = ["one", "two", "three"].map(namespace);
        let scope = Scope::Namespaces(all.to_vec());
        let mut served = Served::new(table.unwrap(), &scope).unwrap();
        assert_eq!(served.namespaces(), &all[..2]);
        let refused = served.begin(&all[2]).unwrap_err().to_string();
        assert!(refused.starts_with("three "), "{refused}");
        assert_eq!(served.keep(&all[1..]), &all[..1]);
        served.begin(&all[2]).unwrap();
    }
}
