//! Metrics over HTTP.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{ReuseAddr, ReusePort};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, UnixAddr, connect,
    setsockopt, socket,
};
use pillion_bpf::host::atomic_file;
use pillion_cli::settings::Endpoint;

use super::health::Shared;
use super::http::{self, Listen, Request, Response};
use super::open_metrics::{self, CONTENT_TYPE};
use crate::handover::old_process;
use crate::process::keep_read_capability;

/// The metrics server; dropping it removes its socket from the file system. The new process of a
/// hand-over publishes its server when it is ready. Until then it does not listen on its port, and its
/// socket has a temporary name.
pub struct Metrics {
    socket: Option<Socket>,
    unpublished: Option<Unpublished>,
}

/// A server that clients cannot reach yet.
enum Unpublished {
    Port(OwnedFd, Arc<Shared>),
    Socket,
}

/// A socket in the file system. Its inode identifies it, because another pillion may replace it.
struct Socket {
    path: PathBuf,
    /// Path until it is published.
    temporary: PathBuf,
    inode: u64,
}

impl Socket {
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|it| it.ino() == self.inode)
    }

    /// Renames the socket to its path. If two processes start at the same time, one may move the socket
    /// of the other.
    fn publish(&self) -> io::Result<()> {
        let moved = fs::rename(&self.temporary, &self.path);
        match self.is_at(&self.path) {
            true => Ok(()),
            false => moved.and(Err(in_use())),
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        let Some(socket) = &self.socket else {
            return;
        };
        for path in [&socket.path, &socket.temporary] {
            if socket.is_at(path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Metrics {
    /// Starts the server; during a hand-over, it is unpublished.
    pub fn serve(endpoint: &Endpoint, shared: Arc<Shared>) -> Result<Self> {
        let failed = || format!("serve --metrics {endpoint}");
        let (socket, unpublished) = match endpoint {
            Endpoint::Loopback(address) => {
                let port = bind(address).with_context(failed)?;
                (None, Unpublished::Port(port, shared))
            }
            Endpoint::Unix(path) => {
                refuse_if_in_use(path).with_context(failed)?;
                let (listener, socket) = listen(path).with_context(failed)?;
                listener.set_nonblocking(true).with_context(failed)?;
                start_thread(listener, shared).with_context(failed)?;
                (Some(socket), Unpublished::Socket)
            }
        };
        let mut metrics = Self {
            socket,
            unpublished: Some(unpublished),
        };
        if old_process().is_none() {
            metrics.publish()?;
        }
        Ok(metrics)
    }

    fn unpublished(socket: Socket) -> Self {
        Self {
            socket: Some(socket),
            unpublished: Some(Unpublished::Socket),
        }
    }

    /// Returns why clients cannot connect, if so.
    pub fn failure(&self) -> Option<String> {
        let socket = self.socket.as_ref().filter(|_| self.unpublished.is_none());
        let found = fs::symlink_metadata(&socket?.path);
        let is_removed = matches!(found, Err(error) if error.kind() == ErrorKind::NotFound);
        is_removed.then(|| "the socket of --metrics was removed: restart pillion".to_owned())
    }

    /// Starts to listen, unless the server already listens. Its socket replaces that of a killed
    /// pillion, or of the old process of a hand-over.
    pub fn publish(&mut self) -> Result<()> {
        match (self.unpublished.take(), &self.socket) {
            (Some(Unpublished::Port(port, shared)), _) => {
                listen_to(port, shared).context("listen on the port of --metrics")
            }
            (Some(Unpublished::Socket), Some(socket)) => {
                let failed = || format!("serve metrics at {}", socket.path.display());
                socket.publish().with_context(failed)
            }
            _ => Ok(()),
        }
    }
}

fn listen_to(port: OwnedFd, shared: Arc<Shared>) -> io::Result<()> {
    nix::sys::socket::listen(&port, Backlog::new(128)?)?;
    let listener = TcpListener::from(port);
    listener.set_nonblocking(true)?;
    start_thread(listener, shared)
}

fn start_thread<L: Listen + Send + 'static>(listener: L, shared: Arc<Shared>) -> io::Result<()> {
    let serve = move || -> () {
        keep_read_capability();
        http::serve(&listener, |request| respond(request, &shared))
    };
    thread::Builder::new().spawn(serve).map(drop)
}

/// Tests whether metrics can be served there, without leaving a socket; returns true if the address is
/// in use.
pub fn is_in_use(endpoint: &Endpoint) -> Result<bool> {
    let tried = match endpoint {
        Endpoint::Loopback(address) => TcpListener::bind(address).map(drop),
        Endpoint::Unix(path) => refuse_if_in_use(path)
            .and_then(|()| listen(path))
            .map(|(_, socket)| drop(Metrics::unpublished(socket))),
    };
    match tried {
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(true),
        tried => tried
            .map(|()| false)
            .with_context(|| format!("serve --metrics {endpoint}")),
    }
}

/// Binds the port so that a second process of the same user, the new one of a hand-over, can bind it as
/// well. Outside a hand-over, fails if the port is in use.
fn bind(address: &SocketAddr) -> io::Result<OwnedFd> {
    if old_process().is_none() {
        drop(TcpListener::bind(address)?);
    }
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::Inet,
        SocketAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    setsockopt(&socket, ReuseAddr, &true)?;
    setsockopt(&socket, ReusePort, &true)?;
    nix::sys::socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(*address))?;
    Ok(socket)
}

/// Fails if another process serves there, except the old process of a hand-over.
fn refuse_if_in_use(path: &Path) -> io::Result<()> {
    if old_process().is_some() {
        return Ok(());
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path)?;
    // A full backlog means that it is in use as well.
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EAGAIN) => Err(in_use()),
        _ => Ok(()),
    }
}

fn in_use() -> io::Error {
    let why = "in use by another process; choose another path";
    io::Error::new(ErrorKind::AddrInUse, why)
}

/// Listens at the temporary name of a path, and replaces a socket there. It belonged to a
/// killed process, or to a process that starts at the same time and fails in [`Socket::publish`].
fn listen(path: &Path) -> io::Result<(UnixListener, Socket)> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let why = "not a socket; choose another path";
        return Err(io::Error::new(ErrorKind::AlreadyExists, why));
    }
    let temporary = atomic_file::temporary_path(path)?;
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary)?;
    // Connecting needs write permission, which a service's umask denies its group.
    fs::set_permissions(&temporary, Permissions::from_mode(0o660))?;
    let inode = fs::symlink_metadata(&temporary)?.ino();
    let path = path.to_owned();
    let socket = Socket {
        path,
        temporary,
        inode,
    };
    Ok((listener, socket))
}

fn respond(request: &Request, shared: &Shared) -> Response {
    if request.path != "/metrics" {
        return Response::line("404 Not Found", "see /metrics");
    }
    if !["GET", "HEAD"].contains(&request.method) {
        return Response::line("405 Method Not Allowed", "use GET or HEAD");
    }
    let text = shared
        .read()
        .and_then(|(health, readings)| Ok(open_metrics::text(health, readings)?));
    match text {
        Ok(body) => Response {
            status: "200 OK",
            content_type: CONTENT_TYPE,
            body,
        },
        Err(error) => Response::line("500 Internal Server Error", &format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::health::Role;
    use super::*;

    #[test]
    fn socket_with_full_backlog_counts_as_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        refuse_if_in_use(&path).unwrap();
        let busy = UnixListener::bind(&path).unwrap();
        nix::sys::socket::listen(&busy, Backlog::new(1).unwrap()).unwrap();
        for _ in 0..9 {
            let refused = refuse_if_in_use(&path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        }
        drop(busy);
        refuse_if_in_use(&path).unwrap();
    }

    #[test]
    fn port_answers_once_published() {
        let port = bind(&SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address: SockaddrStorage = nix::sys::socket::getsockname(port.as_raw_fd()).unwrap();
        let number = address.as_sockaddr_in().unwrap().port();
        let shared = Arc::new(Shared::new(Role::Attach, String::new(), Vec::new()));
        let mut metrics = Metrics {
            socket: None,
            unpublished: Some(Unpublished::Port(port, shared)),
        };
        let connect = || std::net::TcpStream::connect(("127.0.0.1", number));
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        metrics.publish().unwrap();
        connect().unwrap();
        metrics.publish().unwrap();
    }

    fn sockets(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn longest_valid_path_can_be_served() {
        let folder = tempfile::tempdir().unwrap();
        let longest = (1..200).rev().map(|it| folder.path().join("m".repeat(it)));
        let is_valid = |path: &PathBuf| {
            format!("unix:{}", path.display())
                .parse::<Endpoint>()
                .is_ok()
        };
        let path = longest.into_iter().find(is_valid).unwrap();
        listen(&path).unwrap();
    }

    #[test]
    fn test_of_endpoint_leaves_no_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let endpoint = |path: &Path| format!("unix:{}", path.display()).parse().unwrap();
        assert!(!is_in_use(&endpoint(&path)).unwrap());
        assert_eq!(sockets(folder.path()), 0);
        let served = UnixListener::bind(&path).unwrap();
        assert!(is_in_use(&endpoint(&path)).unwrap());
        drop(served);
        assert!(!is_in_use(&endpoint(&path)).unwrap());
        assert_eq!(sockets(folder.path()), 1);
        is_in_use(&endpoint(&folder.path().join("none/metrics"))).unwrap_err();
        let served = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = served.local_addr().unwrap();
        assert!(is_in_use(&Endpoint::Loopback(address)).unwrap());
    }

    #[test]
    fn socket_of_killed_process_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        drop(UnixListener::bind(folder.path().join(".metrics.new")).unwrap());
        let (listener, socket) = listen(&path).unwrap();
        let mut metrics = Metrics::unpublished(socket);
        assert_eq!(sockets(folder.path()), 1);
        metrics.publish().unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(listener.accept().is_ok());
        assert_eq!(sockets(folder.path()), 1);
    }

    #[test]
    fn of_two_simultaneous_starts_one_serves_and_one_fails() {
        for first in [0, 1] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics");
            let mut both = [(); 2].map(|()| {
                let (listener, socket) = listen(&path).unwrap();
                listener.set_nonblocking(true).unwrap();
                let metrics = Metrics::unpublished(socket);
                (listener, metrics)
            });
            let published = [first, 1 - first].map(|it| (it, both[it].1.publish().is_ok()));
            let (serves, _) = published.into_iter().find(|(_, ok)| *ok).unwrap();
            assert!(published.contains(&(1 - serves, false)), "{published:?}");
            UnixStream::connect(&path).unwrap();
            assert!(both[serves].0.accept().is_ok());
            let [one, other] = both;
            drop(if serves == 0 { other } else { one });
            assert_eq!(sockets(folder.path()), 1);
        }
    }

    #[test]
    fn old_socket_stays_until_the_new_one_is_published() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let first = UnixListener::bind(&path).unwrap();
        first.set_nonblocking(true).unwrap();
        let (_listener, socket) = listen(&path).unwrap();
        let metrics = Metrics::unpublished(socket);
        UnixStream::connect(&path).unwrap();
        assert!(first.accept().is_ok());
        drop(metrics);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let (listener, socket) = listen(&path).unwrap();
        let mut metrics = Metrics::unpublished(socket);
        metrics.publish().unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(listener.accept().is_ok());
        drop(metrics);
        assert!(!path.exists());
    }
}
