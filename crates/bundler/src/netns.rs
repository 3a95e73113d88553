use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

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
    /// The one that `file` refers to, to be called `name`.
    pub(crate) fn of(name: &str, file: File) -> Result<Self, Error> {
        let cookie = inside(name, &file, cookie)??;
        let name = name.to_owned();
        Ok(Self(Some(Arc::new(Other { name, file, cookie }))))
    }

    /// What the user calls it, unless it is the calling thread's.
    pub(crate) fn name(&self) -> Option<&str> {
        self.0.as_deref().map(|other| other.name.as_str())
    }

    /// The file that keeps it, unless it is the calling thread's.
    pub(crate) fn file(&self) -> Option<&File> {
        self.0.as_deref().map(|other| &other.file)
    }

    /// Tells it from others; none for the calling thread's.
    pub(crate) fn id(&self) -> Option<u64> {
        self.0.as_deref().map(|other| other.cookie)
    }

    /// The kernel's name for it, of which no second one will ever have the same.
    pub(crate) fn cookie(&self) -> Result<u64, Error> {
        self.0.as_deref().map_or_else(cookie, |it| Ok(it.cookie))
    }

    /// Does something inside.
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

/// In a thread of its own, so that this one stays where it is.
fn inside<T: Send>(name: &str, file: &File, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let work = || setns(file.as_fd(), CloneFlags::CLONE_NEWNET).map(|()| work());
    let outcome = thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, work)?;
        let failed = |_| io::Error::other("the thread failed");
        thread.join().map_err(failed)
    });
    let name = name.to_owned();
    let action = format!("enter the network namespace {name}");
    match outcome {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(Errno::EINVAL)) => Err(Error::NotANamespace { name }),
        Ok(Err(Errno::EPERM)) => Err(Error::MayNotEnter { name }),
        Ok(Err(errno)) => Err(Error::system(action, errno.into())),
        Err(error) => Err(Error::system(action, error)),
    }
}

/// That of the calling thread's network namespace.
fn cookie() -> Result<u64, Error> {
    let action = "find this network namespace's cookie";
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Unix,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .map_err(|errno| Error::system(action, errno.into()))?;
    let mut cookie = 0u64;
    let mut length = size_of_val(&cookie) as libc::socklen_t;
    // SAFETY: the value and its length live on this stack and have the sizes stated.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(cookie),
        _ => Err(Error::system(action, io::Error::last_os_error())),
    }
}
