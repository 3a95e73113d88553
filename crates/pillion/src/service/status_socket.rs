//! Discovery of running pillions by `pillion status`: abstract sockets, which end with their process.

use std::fs::{self, File};
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
use pillion_bpf::host::network_namespace;

use super::health::{Health, Role, Shared};
use crate::process::keep_read_capability;

/// Returns the prefix of the sockets' names. The process id and a random number follow, so that other
/// users cannot occupy the names.
const fn name_prefix(role: Role) -> &'static str {
    match role {
        Role::Attach => "pillion-status/",
        Role::Trial => "pillion-trial/",
    }
}

/// Time-out of each side.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Socket that answers status requests of root and of pillion's own user.
pub struct Listener(UnixListener);

impl Listener {
    /// Opens the socket.
    pub fn start(role: Role) -> io::Result<Self> {
        listen(role).map(Self)
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
pub(super) fn listen(role: Role) -> io::Result<UnixListener> {
    let name = format!(
        "{}{}/{:016x}",
        name_prefix(role),
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

/// Returns true if the process has CAP_BPF in this user namespace, so that it can be a pillion. Any user
/// can open such a socket, or has the capability in a user namespace of its own.
fn has_bpf_capability(process: i32) -> bool {
    let user_namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/user")).map(|it| it.ino());
    match (user_namespace("self"), user_namespace(&process.to_string())) {
        (Ok(own), Ok(of_process)) if own == of_process => {}
        _ => return false,
    }
    caps::has_cap(Some(process), CapSet::Permitted, Capability::CAP_BPF).unwrap_or(false)
}

/// Returns true if the peer can be a pillion of interest.
fn is_pillion(stream: &UnixStream) -> bool {
    let peer = getsockopt(stream, PeerCredentials);
    is_root_or_own_user(stream) || peer.is_ok_and(|it| has_bpf_capability(it.pid()))
}

/// Running pillions of a network namespace that this user may see.
#[derive(Default)]
pub struct RunningProcesses {
    /// Answers.
    pub healths: Vec<Health>,
    /// Process ids that did not answer in time, or not in this version's format.
    pub silent: Vec<i32>,
}

/// Lists the listening sockets of the calling thread's network namespace with one of these prefixes.
fn socket_names(prefixes: &[&str]) -> io::Result<Vec<String>> {
    // Names of other sockets may not be UTF-8.
    let table = fs::read("/proc/thread-self/net/unix")?;
    let table = String::from_utf8_lossy(&table);
    let names = table.lines().filter_map(|line| {
        let name = line.rsplit(' ').next()?.strip_prefix('@')?;
        // Accepted connections have the same name.
        let is_listening = line.split(' ').nth(3) == Some("00010000");
        let is_pillion = prefixes.iter().any(|prefix| name.starts_with(prefix));
        (is_pillion && is_listening).then(|| name.to_owned())
    });
    Ok(names.collect())
}

/// Returns true if a `pillion trial` is running in this network namespace.
pub fn is_trial_running() -> bool {
    let names = socket_names(&[name_prefix(Role::Trial)]).unwrap_or_default();
    // Without waiting, because any user can have sockets that accept no connection.
    let mut streams = names.iter().filter_map(|name| connect_to(name).ok());
    streams.any(|stream| is_pillion(&stream))
}

/// Requests the health of all running pillions of this network namespace, and of those in other
/// namespaces that serve it. Finding the latter requires CAP_SYS_ADMIN and CAP_SYS_PTRACE.
pub fn query_all() -> io::Result<RunningProcesses> {
    let mut all = query()?;
    let Ok(own) = network_namespace::cookie() else {
        return Ok(all);
    };
    for namespace in other_namespaces() {
        let Ok(Ok(mut others)) = network_namespace::enter(&namespace, query) else {
            continue;
        };
        others.healths.retain(|it| it.namespaces.contains(&own));
        all.healths.append(&mut others.healths);
    }
    Ok(all)
}

/// Opens the other network namespaces in which a process is called pillion.
fn other_namespaces() -> Vec<File> {
    let identity = |file: fs::Metadata| (file.dev(), file.ino());
    let mut known: Vec<_> = fs::metadata("/proc/self/ns/net")
        .map(identity)
        .into_iter()
        .collect();
    let mut others = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let path = process.path();
        let id = process.file_name().to_str().and_then(|it| it.parse().ok());
        if fs::read_to_string(path.join("comm")).is_ok_and(|name| name == "pillion\n")
            && id.is_some_and(has_bpf_capability)
            && let Ok(file) = File::open(path.join("ns/net"))
            && let Ok(found) = file.metadata().map(identity)
            && !known.contains(&found)
        {
            known.push(found);
            others.push(file);
        }
    }
    others
}

/// Requests the health of all running pillions in the calling thread's network namespace.
pub fn query() -> io::Result<RunningProcesses> {
    let names = socket_names(&[Role::Attach, Role::Trial].map(name_prefix))?;
    let streams = connect(names);
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
fn connect(mut names: Vec<String>) -> Vec<UnixStream> {
    let deadline = Instant::now() + TIMEOUT;
    let mut streams = Vec::new();
    loop {
        names.retain(|name| match connect_to(name) {
            Err(Errno::EAGAIN) => true,
            Err(_) => false,
            Ok(stream) => {
                streams.extend(Some(stream).filter(is_pillion));
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
        let prefix = name_prefix(Role::Attach);
        let occupied: Vec<_> = (0..100)
            .map(|number| {
                let name = format!("{prefix}{}/{number}", std::process::id());
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
            })
            .collect();
        let [one, two] = [(); 2].map(|()| listen(Role::Attach).unwrap().local_addr().unwrap());
        let name = one.as_abstract_name().unwrap();
        assert!(name.starts_with(prefix.as_bytes()));
        assert_ne!(one.as_abstract_name(), two.as_abstract_name());
        drop(occupied);
    }
}
