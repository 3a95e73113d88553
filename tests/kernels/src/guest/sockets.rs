//! Streams of the guest's own sockets, for options and paths that `pillion-lab traffic` lacks.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::libc;
use nix::sys::socket::sockopt::{TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg, setsockopt,
};
use pillion_lab::Namespace;
use pillion_tests::set_option;

use super::link::Link;
use crate::catalogue::Sockets;

/// Message size in bytes.
const MESSAGE: usize = 120;

/// Time between two messages.
const ITT: Duration = Duration::from_millis(40);

/// Plaintext of a TLS record in bytes: its ciphertext takes several messages.
const RECORD: usize = 300;

/// Rate in bytes per second for each stream: twice the rate of its messages with bundles and
/// headers.
const PACING_RATE: u32 = 20_000;

/// Time without progress after which a connection has failed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Sends `messages` messages on each of `streams` connections to `address`, and compares every byte that the
/// receiver reads. Returns the number of bytes read.
pub fn send(
    link: &Link,
    sockets: Sockets,
    address: SocketAddr,
    streams: usize,
    messages: usize,
) -> Result<u64, String> {
    let failed = |error: std::io::Error| error.to_string();
    let listener = link.receiver.enter(|| TcpListener::bind(address));
    let listener = listener.and_then(|it| it).map_err(failed)?;
    let mut pairs = Vec::new();
    for number in 0..streams {
        let stream = link.sender.enter(|| TcpStream::connect(address));
        let stream = stream.and_then(|it| it).map_err(failed)?;
        let (accepted, _) = listener.accept().map_err(failed)?;
        let content = content(number, messages * MESSAGE);
        let data = match sockets {
            Sockets::Tls => encrypted(&link.sender, &content)?,
            _ => content.clone(),
        };
        let receiver = thread::spawn(move || read(accepted, sockets));
        let sender = write(stream, sockets, data)?;
        pairs.push((sender, receiver, content));
    }
    let mut bytes = 0;
    for (number, (sender, receiver, content)) in pairs.into_iter().enumerate() {
        let failed = |reason: String| format!("connection {number}: {reason}");
        joined(sender).map_err(|reason| failed(format!("sender: {reason}")))?;
        let received = joined(receiver).map_err(|reason| failed(format!("receiver: {reason}")))?;
        if received != content {
            let same = received.iter().zip(&content).take_while(|(a, b)| a == b);
            let reason = format!(
                "{} of {} bytes received, the first {} are right",
                received.len(),
                content.len(),
                same.count()
            );
            return Err(failed(reason));
        }
        bytes += received.len() as u64;
    }
    Ok(bytes)
}

fn joined<T>(thread: JoinHandle<Result<T, String>>) -> Result<T, String> {
    thread
        .join()
        .unwrap_or_else(|_| Err("panicked (the console has the message)".to_owned()))
}

/// Returns bytes that differ between streams and positions (xorshift).
fn content(stream: usize, length: usize) -> Vec<u8> {
    let mut state = stream as u64 + 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Writes `data` in messages from a separate thread, and closes the connection.
fn write(
    stream: TcpStream,
    sockets: Sockets,
    data: Vec<u8>,
) -> Result<JoinHandle<Result<(), String>>, String> {
    let failed = |error: std::io::Error| error.to_string();
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_write_timeout(Some(TIMEOUT)).map_err(failed)?;
    if sockets == Sockets::Paced {
        let rate = PACING_RATE.to_ne_bytes();
        set_option(&stream, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate);
    }
    let work = move |mut stream: TcpStream| {
        for message in data.chunks(MESSAGE) {
            stream.write_all(message).map_err(failed)?;
            thread::sleep(ITT);
        }
        Ok(())
    };
    if sockets != Sockets::Passed {
        return Ok(thread::spawn(move || work(stream)));
    }
    let other = Namespace::create().map_err(failed)?;
    let (near, far) = UnixStream::pair().map_err(failed)?;
    let sender = other.spawn(move || work(accept_socket(&far)?));
    pass_socket(&near, &stream)?;
    Ok(thread::spawn(move || joined_in_namespace(sender)))
}

fn joined_in_namespace(
    thread: JoinHandle<std::io::Result<Result<(), String>>>,
) -> Result<(), String> {
    let result = thread.join().map_err(|_| "panicked".to_owned())?;
    result.map_err(|error| error.to_string())?
}

/// Sends a socket to the thread at the other end (SCM_RIGHTS).
fn pass_socket(near: &UnixStream, socket: &TcpStream) -> Result<(), String> {
    let sockets = [socket.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&sockets)];
    let byte = [IoSlice::new(b"x")];
    let sent = sendmsg::<()>(near.as_raw_fd(), &byte, &rights, MsgFlags::empty(), None);
    sent.map(drop)
        .map_err(|errno| format!("pass a socket: {errno}"))
}

fn accept_socket(far: &UnixStream) -> Result<TcpStream, String> {
    let failed = |errno: nix::Error| format!("accept a socket: {errno}");
    let mut byte = [0];
    let mut buffers = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(i32);
    let flags = MsgFlags::empty();
    let message = recvmsg::<()>(far.as_raw_fd(), &mut buffers, Some(&mut space), flags);
    let message = message.map_err(failed)?;
    for control in message.cmsgs().map_err(failed)? {
        if let ControlMessageOwned::ScmRights(sockets) = control
            && let Some(socket) = sockets.first()
        {
            // SAFETY: the kernel just made the descriptor for this process, and nothing else owns it.
            return Ok(unsafe { TcpStream::from_raw_fd(*socket) });
        }
    }
    Err("no socket was passed".to_owned())
}

/// Reads until the end of the connection.
fn read(mut stream: TcpStream, sockets: Sockets) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| error.to_string();
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    if sockets == Sockets::Tls {
        let option = |errno: nix::Error| format!("kTLS: {errno}");
        setsockopt(&stream, TcpUlp::default(), b"tls").map_err(option)?;
        setsockopt(&stream, TcpTlsRx, &keys()).map_err(option)?;
    }
    let mut received = Vec::new();
    stream.read_to_end(&mut received).map_err(failed)?;
    Ok(received)
}

/// Encrypts a text into TLS records with the kernel's TLS on a loopback connection.
fn encrypted(namespace: &Namespace, text: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let pair = namespace.enter(|| {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        Ok((stream, listener.accept()?.0))
    });
    let (mut sender, mut receiver) = pair.and_then(|it| it).map_err(failed)?;
    let option = |errno: nix::Error| format!("kTLS: {errno}");
    setsockopt(&sender, TcpUlp::default(), b"tls").map_err(option)?;
    setsockopt(&sender, TcpTlsTx, &keys()).map_err(option)?;
    let text = text.to_vec();
    let sender = thread::spawn(move || {
        let mut records = text.chunks(RECORD);
        records.try_for_each(|record| sender.write_all(record).map_err(failed))
    });
    let mut records = Vec::new();
    receiver.read_to_end(&mut records).map_err(failed)?;
    joined(sender)?;
    Ok(records)
}

fn keys() -> TlsCryptoInfo {
    TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
        info: libc::tls_crypto_info {
            version: libc::TLS_1_2_VERSION,
            cipher_type: libc::TLS_CIPHER_AES_GCM_128,
        },
        iv: [1; 8],
        key: [2; 16],
        salt: [3; 4],
        rec_seq: [0; 8],
    })
}
