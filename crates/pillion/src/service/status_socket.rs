//! Discovery of running pillions by `pillion status`: abstract sockets, which end with their process.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use caps::{CapSet, Capability};
use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket};
use nix::unistd::Uid;

use super::health::{Health, Shared};
use crate::process::keep_read_capability;

/// Prefix of the sockets' names. The process id and a random number follow, so that other users cannot
/// occupy the names.
const NAME_PREFIX: &str = "pillion-status/";

/// Time-out of each side.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Socket that answers status requests of root and of pillion's own user.
pub struct Listener(UnixListener);

impl Listener {
    /// Opens the socket.
    pub fn start() -> io::Result<Self> {
        listen().map(Self)
    }

    /// Waits for a request and answers it.
    pub fn answer(&self, shared: &Shared) {
        match self.0.accept() {
            // An error means that the client is gone.
            Ok((stream, _)) => drop(send_health(stream, shared)),
            // Usually a temporary lack of descriptors or memory.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }

    /// Starts a thread that answers all requests.
    pub fn serve(self, shared: Arc<Shared>) {
        thread::spawn(move || {
            keep_read_capability();
            loop {
                self.answer(&shared);
            }
        });
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Binds a socket whose name other users cannot predict and occupy.
fn listen() -> io::Result<UnixListener> {
    let name = format!(
        "{NAME_PREFIX}{}/{:016x}",
        std::process::id(),
        rand::random::<u64>()
    );
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn send_health(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    if !is_root_or_own_user(&stream) {
        return Ok(());
    }
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (health, _) = shared.read().map_err(io::Error::other)?;
    stream.write_all(&serde_json::to_vec(&health)?)
}

/// Returns true if the peer is root or the same user.
fn is_root_or_own_user(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| {
        let uid = Uid::from_raw(peer.uid());
        uid.is_root() || uid == Uid::effective()
    })
}

/// Returns true if the peer has CAP_BPF in this user namespace, so that it can be a pillion. Any user
/// can open such a socket, or has the capability in a user namespace of its own.
fn has_bpf_capability(stream: &UnixStream) -> bool {
    let Ok(peer) = getsockopt(stream, PeerCredentials) else {
        return false;
    };
    let user_namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/user")).map(|it| it.ino());
    match (
        user_namespace("self"),
        user_namespace(&peer.pid().to_string()),
    ) {
        (Ok(own), Ok(of_peer)) if own == of_peer => {}
        _ => return false,
    }
    caps::has_cap(Some(peer.pid()), CapSet::Permitted, Capability::CAP_BPF).unwrap_or(false)
}

/// Running pillions of a network namespace that this user may see.
#[derive(Default)]
pub struct RunningProcesses {
    /// Answers.
    pub healths: Vec<Health>,
    /// Process ids that did not answer in time, or not in this version's format.
    pub silent: Vec<i32>,
}

/// Requests the health of all running pillions in this network namespace.
pub fn query() -> io::Result<RunningProcesses> {
    // Names of other sockets may not be UTF-8.
    let table = fs::read("/proc/net/unix")?;
    let table = String::from_utf8_lossy(&table);
    let names = table.lines().filter_map(|line| {
        let name = line.rsplit(' ').next()?.strip_prefix('@')?;
        // Accepted connections have the same name.
        let is_listening = line.split(' ').nth(3) == Some("00010000");
        (name.starts_with(NAME_PREFIX) && is_listening).then_some(name)
    });
    let streams = connect(names.collect());
    let mut all = RunningProcesses::default();
    let deadline = Instant::now() + TIMEOUT;
    for stream in streams {
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else {
            continue;
        };
        match receive_health(stream, deadline) {
            Ok(health) => all.healths.push(health),
            Err(error) if is_silence(&error) => all.silent.push(peer.pid()),
            // It exited meanwhile.
            Err(_) => {}
        }
    }
    all.healths
        .sort_by_key(|health| (health.started_at_s, health.pid));
    Ok(all)
}

/// Returns true if no answer arrived in time, or one in another format.
fn is_silence(error: &io::Error) -> bool {
    use ErrorKind::{InvalidData, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | InvalidData)
}

/// Reads an answer until the deadline. All pillions answer at the same time, so after the deadline the
/// rest still gets a short time.
fn receive_health(mut stream: UnixStream, deadline: Instant) -> io::Result<Health> {
    const MIN_TIMEOUT: Duration = Duration::from_millis(10);
    let left = deadline.saturating_duration_since(Instant::now());
    stream.set_read_timeout(Some(left.max(MIN_TIMEOUT)))?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Connects to the names that may be pillions', within [`TIMEOUT`] for all together. Another user can
/// have many such sockets, and accept no connection.
fn connect(mut names: Vec<&str>) -> Vec<UnixStream> {
    let deadline = Instant::now() + TIMEOUT;
    let mut streams = Vec::new();
    loop {
        names.retain(|name| match connect_to(name) {
            Err(Errno::EAGAIN) => true,
            Err(_) => false,
            Ok(stream) => {
                streams.extend(
                    Some(stream).filter(|it| is_root_or_own_user(it) || has_bpf_capability(it)),
                );
                false
            }
        });
        if names.is_empty() || Instant::now() > deadline {
            return streams;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Connects without blocking.
fn connect_to(name: &str) -> nix::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new_abstract(name.as_bytes())?;
    nix::sys::socket::connect(socket.as_raw_fd(), &address)?;
    let stream = UnixStream::from(socket);
    let blocking = stream.set_nonblocking(false);
    blocking.map_err(|error| Errno::try_from(error).unwrap_or(Errno::EIO))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_name_cannot_be_occupied_in_advance() {
        let occupied: Vec<_> = (0..100)
            .map(|number| {
                let name = format!("{NAME_PREFIX}{}/{number}", std::process::id());
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
            })
            .collect();
        let [one, two] = [(); 2].map(|()| listen().unwrap().local_addr().unwrap());
        let name = one.as_abstract_name().unwrap();
        assert!(name.starts_with(NAME_PREFIX.as_bytes()));
        assert_ne!(one.as_abstract_name(), two.as_abstract_name());
        drop(occupied);
    }
}
