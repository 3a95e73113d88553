use std::io;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::{Error, Namespace};

/// Which network namespaces' connections are taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Those of the cgroup's sockets, wherever they live.
    #[default]
    Anywhere,
    /// Those of the calling thread's network namespace alone.
    ThisNamespace,
    /// Those of these alone.
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
            Scope::Anywhere | Scope::ThisNamespace => served.change(&[Namespace::default()])?,
            Scope::Namespaces(namespaces) => served.change(namespaces)?,
        };
        Ok(served)
    }

    pub(crate) fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Serves these from now on, and no others; returns those that were not served before.
    pub(crate) fn change(&mut self, namespaces: &[Namespace]) -> Result<Vec<Namespace>, Error> {
        let missing_in = |list: &[Namespace], other: &[Namespace]| -> Vec<Namespace> {
            let missing = other.iter().filter(|namespace| !list.contains(namespace));
            missing.cloned().collect()
        };
        let gone = missing_in(namespaces, &self.namespaces);
        let come = missing_in(&self.namespaces, namespaces);
        self.namespaces = namespaces.to_vec();
        for namespace in gone {
            let key = namespace.cookie()?.to_ne_bytes();
            self.table
                .delete(&key)
                .map_err(|error| self.failed(&error))?;
        }
        for namespace in &come {
            let key = namespace.cookie()?.to_ne_bytes();
            self.table
                .update(&key, &[1], MapFlags::ANY)
                .map_err(|error| self.failed(&error))?;
        }
        Ok(come)
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
