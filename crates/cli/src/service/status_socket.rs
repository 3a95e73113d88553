//! How `pillion status` finds those at work: by abstract sockets, which end with their process.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, getsockopt, socket};
use nix::unistd::Uid;

use super::health::{Health, Shared};
use crate::privilege::only_read;

/// Their names begin with it; the process's id and a number follow.
const NAME: &str = "pillion-status/";

/// How long either side waits for the other.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tells root and this process's own user how this pillion is, from now on.
pub fn serve(shared: Arc<Shared>) -> io::Result<()> {
    let listener = (0..100)
        .map(|number| {
            let name = format!("{NAME}{}/{number}", std::process::id());
            UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
        })
        // In another PID namespace there may be a process with the same id.
        .find(|bound| !matches!(bound, Err(error) if error.kind() == ErrorKind::AddrInUse))
        .unwrap_or_else(|| Err(ErrorKind::AddrInUse.into()))?;
    thread::spawn(move || {
        only_read();
        for stream in listener.incoming().flatten() {
            // Whoever has gone meanwhile wants no answer.
            let _ = tell(stream, &shared);
        }
    });
    Ok(())
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
    const CAP_BPF: u64 = 1 << 39;
    let Ok(peer) = getsockopt(stream, PeerCredentials) else {
        return false;
    };
    let user_namespace = |of: &str| fs::metadata(format!("/proc/{of}/ns/user")).map(|it| it.ino());
    let peer = peer.pid().to_string();
    match (user_namespace("self"), user_namespace(&peer)) {
        (Ok(own), Ok(of_peer)) if own == of_peer => {}
        _ => return false,
    }
    let status = fs::read_to_string(format!("/proc/{peer}/status")).ok();
    let permitted = status.as_deref().and_then(|status| {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("CapPrm:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    permitted.is_some_and(|set| set & CAP_BPF != 0)
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
    let table = fs::read_to_string("/proc/net/unix")?;
    let names = table.lines().filter_map(|line| {
        let name = line.rsplit(' ').next()?.strip_prefix('@')?;
        // Connections that were made to it are listed as well, under the same name.
        let is_listening = line.split(' ').nth(3) == Some("00010000");
        (name.starts_with(NAME) && is_listening).then_some(name)
    });
    let mut all = AtWork::default();
    for stream in names.filter_map(|name| connect(name).ok()) {
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else {
            continue;
        };
        if !is_akin(&stream) && !may_bundle(&stream) {
            continue;
        }
        match heard(stream) {
            Ok(health) => all.healths.push(health),
            Err(error) if is_late(&error) => all.silent.push(peer.pid()),
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    all.healths.sort_by_key(|health| (health.since, health.pid));
    Ok(all)
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn heard(mut stream: UnixStream) -> io::Result<Health> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Connects, but waits no longer than [`PATIENCE`]: whoever has such a socket may take no more
/// connections, and then connecting blocks for good.
fn connect(name: &str) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let address = UnixAddr::new_abstract(name.as_bytes())?;
    let begun = Instant::now();
    while let Err(error) = nix::sys::socket::connect(socket.as_raw_fd(), &address) {
        if error != Errno::EAGAIN || begun.elapsed() > PATIENCE {
            return Err(error.into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}
