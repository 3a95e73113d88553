use std::fs::File;
use std::sync::Arc;

use crate::host::network_namespace;

use crate::Error;

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
