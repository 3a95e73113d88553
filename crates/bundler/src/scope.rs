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
    pub(crate) fn new(table: MapHandle, scope: &Scope) -> Result<Self, Error> {
        let mut served = Self {
            table,
            namespaces: Vec::new(),
        };
        match scope {
            Scope::Anywhere | Scope::ThisNamespace => served.begin(&Namespace::default())?,
            Scope::Namespaces(namespaces) => {
                namespaces.iter().try_for_each(|it| served.begin(it))?;
            }
        }
        Ok(served)
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Serves this network namespace, too.
    pub(crate) fn begin(&mut self, namespace: &Namespace) -> Result<(), Error> {
        let key = namespace.cookie()?.to_ne_bytes();
        self.table
            .update(&key, &[1], MapFlags::ANY)
            .map_err(|error| self.failed(&error))?;
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

    fn failed(&self, error: &libbpf_rs::Error) -> Error {
        match error.kind() {
            ErrorKind::TooBig => Error::TooManyNamespaces {
                most: self.table.max_entries(),
            },
            _ => Error::system(
                "store the network namespaces",
                io::Error::other(error.to_string()),
            ),
        }
    }
}
