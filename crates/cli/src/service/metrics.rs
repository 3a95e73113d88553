//! Metrics over HTTP.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use nix::sys::socket::sockopt::{ReuseAddr, ReusePort};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, setsockopt, socket,
};
use pillion_settings::Endpoint;
use tiny_http::{Header, Listener, Method, Request, Response, Server};

use super::health::Shared;
use super::open_metrics::{self, CONTENT_TYPE};
use crate::print::say;
use crate::privilege::only_read;
use crate::succession::predecessor;

/// The server; dropping it takes its socket out of the file system.
pub struct Metrics {
    socket: Option<Socket>,
}

/// A socket in the file system, known by its inode: another pillion may have put its own there.
struct Socket {
    path: PathBuf,
    inode: u64,
}

impl Drop for Metrics {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket
            && fs::symlink_metadata(&socket.path).is_ok_and(|it| it.ino() == socket.inode)
        {
            let _ = fs::remove_file(&socket.path);
        }
    }
}

impl Metrics {
    /// Serves from now on.
    pub fn serve(endpoint: &Endpoint, shared: Arc<Shared>) -> Result<Self> {
        let failed = || format!("serve --metrics {endpoint}");
        let (listener, socket) = match endpoint {
            Endpoint::Loopback(address) => {
                (Listener::from(bind(address).with_context(failed)?), None)
            }
            Endpoint::Unix(path) => {
                let (listener, socket) = listen(path).with_context(failed)?;
                (Listener::from(listener), Some(socket))
            }
        };
        // Its own threads have what this thread has now.
        thread::spawn(move || {
            only_read();
            let Ok(server) = Server::from_listener(listener, None) else {
                say("pillion: no thread for --metrics; raise the limit on threads");
                return;
            };
            for request in server.incoming_requests() {
                // Whoever has gone meanwhile wants no answer.
                let _ = answer(request, &shared);
            }
        });
        Ok(Self { socket })
    }
}

/// The port can be had by two processes of one user, so that a successor has it at once; no other
/// second one is to have it.
fn bind(address: &SocketAddr) -> io::Result<TcpListener> {
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
    nix::sys::socket::listen(&socket, Backlog::new(128)?)?;
    Ok(TcpListener::from(socket))
}

/// Listens at a path, in the place of a socket that is there: a killed pillion's, or that of one
/// whose work this one takes over.
fn listen(path: &Path) -> io::Result<(UnixListener, Socket)> {
    if fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let why = "something else than a socket is there; choose another path";
        return Err(io::Error::new(ErrorKind::AlreadyExists, why));
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let listener = UnixListener::bind(&beside)?;
    let inode = fs::symlink_metadata(&beside)?.ino();
    fs::rename(&beside, path)?;
    let path = path.to_owned();
    Ok((listener, Socket { path, inode }))
}

fn answer(request: Request, shared: &Shared) -> io::Result<()> {
    if request.url() != "/metrics" {
        return request.respond(Response::from_string("see /metrics\n").with_status_code(404));
    }
    if !matches!(request.method(), Method::Get | Method::Head) {
        return request.respond(Response::empty(405));
    }
    let text = shared
        .read()
        .and_then(|(health, totals)| Ok(open_metrics::text(health, totals)?));
    match text {
        Ok(text) => {
            let kind = Header::from_bytes("Content-Type", CONTENT_TYPE);
            let response = Response::from_string(text);
            request.respond(match kind {
                Ok(kind) => response.with_header(kind),
                Err(()) => response,
            })
        }
        Err(error) => {
            let why = format!("{error:#}\n");
            request.respond(Response::from_string(why).with_status_code(500))
        }
    }
}
