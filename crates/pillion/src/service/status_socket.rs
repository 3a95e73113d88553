//! How `pillion status` finds those at work: by abstract sockets, which end with their process.

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
use crate::process::only_read;

/// Their names begin with it; the process's id follows, and what nobody can have taken before.
const NAME: &str = "pillion-status/";

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where root and this process's own user ask how this pillion is.
pub struct Listener(UnixListener);

impl Listener {
    /// Can be found from now on.
    pub fn begin() -> io::Result<Self> {
        listen().map(Self)
    }

    /// Waits for somebody who asks, and answers.
    pub fn answer(&self, shared: &Shared) {
        match self.0.accept() {
            // Whoever has gone meanwhile wants no answer.
            Ok((stream, _)) => drop(tell(stream, shared)),
            // As a rule a want of descriptors or memory, which others cause and end.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }

    /// Answers all who ask, in a thread of its own.
    pub fn serve(self, shared: Arc<Shared>) {
        thread::spawn(move || {
            only_read();
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

/// Anybody may have such names: those that can be foreseen may all be taken.
fn listen() -> io::Result<UnixListener> {
    let name = format!(
        "{NAME}{}/{:016x}",
        std::process::id(),
        rand::random::<u64>()
    );
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

fn tell(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    if !is_akin(&stream) {
        return Ok(());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    let (health, _) = shared.read().map_err(io::Error::other)?;
    stream.write_all(&serde_json::to_vec(&health)?)
}

/// Is the other side root, or the same user?
fn is_akin(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials).is_ok_and(|peer| {
        let uid = Uid::from_raw(peer.uid());
        uid.is_root() || uid == Uid::effective()
    })
}

/// Anybody may have such a socket, but nobody else may have the capability; in a user namespace of
/// their own they may.
fn may_bundle(stream: &UnixStream) -> bool {
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

/// Those at work in a network namespace, as far as this user may know.
#[derive(Default)]
pub struct AtWork {
    /// How those are that answered.
    pub healths: Vec<Health>,
    /// The processes of those that did not, in time and in words.
    pub silent: Vec<i32>,
}

/// Asks those that are at work in this network namespace.
pub fn ask() -> io::Result<AtWork> {
    // Names are anybody's bytes, pillion's own are text.
    let table = fs::read("/proc/net/unix")?;
    let table = String::from_utf8_lossy(&table);
    let names = table.lines().filter_map(|line| {
        let name = line.rsplit(' ').next()?.strip_prefix('@')?;
        // Connections that were made to it are listed as well, under the same name.
        let is_listening = line.split(' ').nth(3) == Some("00010000");
        (name.starts_with(NAME) && is_listening).then_some(name)
    });
    let streams = connect(names.collect());
    let mut all = AtWork::default();
    let deadline = Instant::now() + PATIENCE;
    for stream in streams {
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else {
            continue;
        };
        match heard(stream, deadline) {
            Ok(health) => all.healths.push(health),
            Err(error) if says_nothing(&error) => all.silent.push(peer.pid()),
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    all.healths.sort_by_key(|health| (health.since, health.pid));
    Ok(all)
}

/// Whether nothing was said in time, or nothing that this version understands.
fn says_nothing(error: &io::Error) -> bool {
    use ErrorKind::{InvalidData, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | InvalidData)
}

/// What one says until then. All say it at the same time, so that what the last one has said by then
/// is there to be read.
fn heard(mut stream: UnixStream, deadline: Instant) -> io::Result<Health> {
    const AT_LEAST: Duration = Duration::from_millis(10);
    let left = deadline.saturating_duration_since(Instant::now());
    stream.set_read_timeout(Some(left.max(AT_LEAST)))?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Connects to those of these names that may be pillions', and waits no longer than [`PATIENCE`] for all
/// together: whoever has such a socket may take no more connections, and may have many.
fn connect(mut names: Vec<&str>) -> Vec<UnixStream> {
    let deadline = Instant::now() + PATIENCE;
    let mut streams = Vec::new();
    loop {
        names.retain(|name| match connect_to(name) {
            Err(Errno::EAGAIN) => true,
            Err(_) => false,
            Ok(stream) => {
                streams.extend(Some(stream).filter(|it| is_akin(it) || may_bundle(it)));
                false
            }
        });
        if names.is_empty() || Instant::now() > deadline {
            return streams;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Connects if that can be done at once.
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
    fn no_name_can_be_taken_beforehand() {
        let taken: Vec<_> = (0..100)
            .map(|number| {
                let name = format!("{NAME}{}/{number}", std::process::id());
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap()
            })
            .collect();
        let [one, two] = [(); 2].map(|()| listen().unwrap().local_addr().unwrap());
        let name = one.as_abstract_name().unwrap();
        assert!(name.starts_with(NAME.as_bytes()));
        assert_ne!(one.as_abstract_name(), two.as_abstract_name());
        drop(taken);
    }
}
