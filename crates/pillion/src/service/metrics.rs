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
use super::http::{self, Answer, Asked, Listen};
use super::open_metrics::{self, CONTENT_TYPE};
use crate::handover::predecessor;
use crate::process::only_read;

/// The server; dropping it takes its socket out of the file system. One that is to succeed another
/// shows itself once it is at work: until then its port is not listened to, and its socket is where
/// nobody looks.
pub struct Metrics {
    socket: Option<Socket>,
    hidden: Option<Hidden>,
}

/// What is left to do for others to find the server.
enum Hidden {
    Port(OwnedFd, Arc<Shared>),
    Socket,
}

/// A socket in the file system, known by its inode: another pillion may have put its own there.
struct Socket {
    path: PathBuf,
    /// Where it is until it is shown.
    beside: PathBuf,
    inode: u64,
}

impl Socket {
    fn is_at(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|it| it.ino() == self.inode)
    }

    /// Of two that begin at the same moment, the one may move the other's.
    fn show(&self) -> io::Result<()> {
        let moved = fs::rename(&self.beside, &self.path);
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
        for path in [&socket.path, &socket.beside] {
            if socket.is_at(path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Metrics {
    /// Serves from now on, or once it is shown if it is to succeed another one.
    pub fn serve(endpoint: &Endpoint, shared: Arc<Shared>) -> Result<Self> {
        let failed = || format!("serve --metrics {endpoint}");
        let (socket, hidden) = match endpoint {
            Endpoint::Loopback(address) => {
                let port = bind(address).with_context(failed)?;
                (None, Hidden::Port(port, shared))
            }
            Endpoint::Unix(path) => {
                leave_to_others(path).with_context(failed)?;
                let (listener, socket) = listen(path).with_context(failed)?;
                listener.set_nonblocking(true).with_context(failed)?;
                begin(listener, shared).with_context(failed)?;
                (Some(socket), Hidden::Socket)
            }
        };
        let hidden = Some(hidden);
        let mut metrics = Self { socket, hidden };
        if predecessor().is_none() {
            metrics.show()?;
        }
        Ok(metrics)
    }

    fn hidden(socket: Socket) -> Self {
        Self {
            socket: Some(socket),
            hidden: Some(Hidden::Socket),
        }
    }

    /// Shows the server, if it is not yet; its socket in the place of one that is there: a killed
    /// pillion's, or that of the one whose work this one takes over.
    pub fn show(&mut self) -> Result<()> {
        match (self.hidden.take(), &self.socket) {
            (Some(Hidden::Port(port, shared)), _) => {
                listen_to(port, shared).context("listen to the port of --metrics")
            }
            (Some(Hidden::Socket), Some(socket)) => {
                let failed = || format!("serve metrics at {}", socket.path.display());
                socket.show().with_context(failed)
            }
            _ => Ok(()),
        }
    }
}

fn listen_to(port: OwnedFd, shared: Arc<Shared>) -> io::Result<()> {
    nix::sys::socket::listen(&port, Backlog::new(128)?)?;
    let listener = TcpListener::from(port);
    listener.set_nonblocking(true)?;
    begin(listener, shared)
}

fn begin<L: Listen + Send + 'static>(listener: L, shared: Arc<Shared>) -> io::Result<()> {
    let serve = move || -> () {
        only_read();
        http::serve(&listener, |asked| answer(asked, &shared))
    };
    thread::Builder::new().spawn(serve).map(drop)
}

/// Finds out whether metrics could be served there, and leaves nothing behind; true if somebody serves
/// there now.
pub fn is_taken(endpoint: &Endpoint) -> Result<bool> {
    let tried = match endpoint {
        Endpoint::Loopback(address) => TcpListener::bind(address).map(drop),
        Endpoint::Unix(path) => leave_to_others(path)
            .and_then(|()| listen(path))
            .map(|(_, socket)| drop(Metrics::hidden(socket))),
    };
    match tried {
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(true),
        tried => tried
            .map(|()| false)
            .with_context(|| format!("serve --metrics {endpoint}")),
    }
}

/// The port can be had by two processes of one user, so that a successor has it at once; no other
/// second one is to have it.
fn bind(address: &SocketAddr) -> io::Result<OwnedFd> {
    if predecessor().is_none() {
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

/// An error if somebody serves there, other than the one that is to be succeeded.
fn leave_to_others(path: &Path) -> io::Result<()> {
    if predecessor().is_some() {
        return Ok(());
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new(path)?;
    // Who has more waiting than can wait is there as well.
    match connect(socket.as_raw_fd(), &address) {
        Ok(()) | Err(Errno::EAGAIN) => Err(in_use()),
        _ => Ok(()),
    }
}

fn in_use() -> io::Error {
    let why = "another process serves there; choose another path";
    io::Error::new(ErrorKind::AddrInUse, why)
}

/// Listens beside a path where a socket may be put. What is there was left by one that was killed, or is
/// of one that begins at the same moment, which finds out as it shows itself.
fn listen(path: &Path) -> io::Result<(UnixListener, Socket)> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let why = "something else than a socket is there; choose another path";
        return Err(io::Error::new(ErrorKind::AlreadyExists, why));
    }
    let beside = atomic_file::beside(path)?;
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    // To connect takes the right to write, which a service's umask takes from its group.
    fs::set_permissions(&beside, Permissions::from_mode(0o660))?;
    let inode = fs::symlink_metadata(&beside)?.ino();
    let path = path.to_owned();
    let socket = Socket {
        path,
        beside,
        inode,
    };
    Ok((listener, socket))
}

fn answer(asked: &Asked, shared: &Shared) -> Answer {
    if asked.path != "/metrics" {
        return Answer::line("404 Not Found", "see /metrics");
    }
    if !["GET", "HEAD"].contains(&asked.method) {
        return Answer::line("405 Method Not Allowed", "GET or HEAD it");
    }
    let text = shared
        .read()
        .and_then(|(health, totals)| Ok(open_metrics::text(health, totals)?));
    match text {
        Ok(body) => Answer {
            status: "200 OK",
            kind: CONTENT_TYPE,
            body,
        },
        Err(error) => Answer::line("500 Internal Server Error", &format!("{error:#}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_is_too_busy_to_accept_serves_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        leave_to_others(&path).unwrap();
        let busy = UnixListener::bind(&path).unwrap();
        nix::sys::socket::listen(&busy, Backlog::new(1).unwrap()).unwrap();
        for _ in 0..9 {
            let refused = leave_to_others(&path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AddrInUse);
        }
        drop(busy);
        leave_to_others(&path).unwrap();
    }

    #[test]
    fn a_port_answers_once_it_is_shown() {
        let port = bind(&SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address: SockaddrStorage = nix::sys::socket::getsockname(port.as_raw_fd()).unwrap();
        let number = address.as_sockaddr_in().unwrap().port();
        let shared = Arc::new(Shared::new(String::new()));
        let mut metrics = Metrics {
            socket: None,
            hidden: Some(Hidden::Port(port, shared)),
        };
        let connect = || std::net::TcpStream::connect(("127.0.0.1", number));
        assert_eq!(connect().unwrap_err().kind(), ErrorKind::ConnectionRefused);
        metrics.show().unwrap();
        connect().unwrap();
        metrics.show().unwrap();
    }

    fn sockets(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn the_longest_path_that_is_taken_can_be_served() {
        let folder = tempfile::tempdir().unwrap();
        let longest = (1..200).rev().map(|it| folder.path().join("m".repeat(it)));
        let is_taken = |path: &PathBuf| {
            format!("unix:{}", path.display())
                .parse::<Endpoint>()
                .is_ok()
        };
        let path = longest.into_iter().find(is_taken).unwrap();
        listen(&path).unwrap();
    }

    #[test]
    fn to_find_out_whether_it_could_be_served_there_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let endpoint = |path: &Path| format!("unix:{}", path.display()).parse().unwrap();
        assert!(!is_taken(&endpoint(&path)).unwrap());
        assert_eq!(sockets(folder.path()), 0);
        let served = UnixListener::bind(&path).unwrap();
        assert!(is_taken(&endpoint(&path)).unwrap());
        drop(served);
        assert!(!is_taken(&endpoint(&path)).unwrap());
        assert_eq!(sockets(folder.path()), 1);
        is_taken(&endpoint(&folder.path().join("none/metrics"))).unwrap_err();
        let served = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = served.local_addr().unwrap();
        assert!(is_taken(&Endpoint::Loopback(address)).unwrap());
    }

    #[test]
    fn what_a_killed_successor_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        drop(UnixListener::bind(folder.path().join(".metrics.new")).unwrap());
        let (listener, socket) = listen(&path).unwrap();
        let mut metrics = Metrics::hidden(socket);
        assert_eq!(sockets(folder.path()), 1);
        metrics.show().unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(listener.accept().is_ok());
        assert_eq!(sockets(folder.path()), 1);
    }

    #[test]
    fn of_two_that_begin_at_once_one_serves_and_the_other_knows() {
        for first in [0, 1] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics");
            let mut both = [(); 2].map(|()| {
                let (listener, socket) = listen(&path).unwrap();
                listener.set_nonblocking(true).unwrap();
                let metrics = Metrics::hidden(socket);
                (listener, metrics)
            });
            let shown = [first, 1 - first].map(|it| (it, both[it].1.show().is_ok()));
            let (serves, _) = shown.into_iter().find(|(_, shown)| *shown).unwrap();
            assert!(shown.contains(&(1 - serves, false)), "{shown:?}");
            UnixStream::connect(&path).unwrap();
            assert!(both[serves].0.accept().is_ok());
            let [one, other] = both;
            drop(if serves == 0 { other } else { one });
            assert_eq!(sockets(folder.path()), 1);
        }
    }

    #[test]
    fn the_socket_of_who_is_to_be_succeeded_stays_until_that_is_certain() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let first = UnixListener::bind(&path).unwrap();
        first.set_nonblocking(true).unwrap();
        let (_listener, socket) = listen(&path).unwrap();
        let metrics = Metrics::hidden(socket);
        UnixStream::connect(&path).unwrap();
        assert!(first.accept().is_ok());
        drop(metrics);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let (listener, socket) = listen(&path).unwrap();
        let mut metrics = Metrics::hidden(socket);
        metrics.show().unwrap();
        UnixStream::connect(&path).unwrap();
        assert!(listener.accept().is_ok());
        drop(metrics);
        assert!(!path.exists());
    }
}
