use std::io;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::{Error, Namespace};

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
