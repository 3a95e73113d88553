//! Streams of datagrams: each leaves when it is due, and nobody hears whether it came.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::epoll::EpollFlags;

use super::report::{Measurements, StreamSent};
use super::source::{Next, Source};
use super::{SendError, Sender};
use crate::traffic::latency::{now_ns, ns};
use crate::traffic::poller::{Poller, STOP_CHECK_NS, SystemError};
use crate::traffic::wire::{Datagram, What};

/// Time between two tellings of a stream's end.
const TELL_AGAIN_NS: u64 = 200_000_000;

/// A socket of its own for a stream, whose port is this, 0 for any.
pub(super) fn open(to: SocketAddr, port: u16) -> Result<UdpSocket, SendError> {
    let any = match to.is_ipv4() {
        true => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        false => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let local = SocketAddr::from((any, port));
    let failed = |source| SendError::Bind { local, source };
    let socket = UdpSocket::bind(local).map_err(failed)?;
    socket.connect(to).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    Ok(socket)
}

/// A stream's socket, its number, its group's and what it sends.
pub(super) type Part<'a> = Vec<(UdpSocket, u32, (usize, Source<'a>))>;

struct Stream<'a> {
    socket: UdpSocket,
    source: Source<'a>,
    sequence: u32,
    /// When its end is to be told next; `None` while more is to be sent.
    tell_ns: Option<u64>,
    open: bool,
    report: StreamSent,
}

/// Streams of one thread at work.
struct Datagrams<'a> {
    sender: &'a Sender,
    streams: Vec<Stream<'a>>,
    start_ns: u64,
    /// Room for a datagram.
    bytes: Vec<u8>,
    measured: Measurements,
}

/// Sends on the calling thread, until all streams have ended or `stop` is set.
pub(super) fn run<'a>(
    sender: &'a Sender,
    part: Part<'a>,
    start_ns: u64,
    stop: &AtomicBool,
) -> Result<(Vec<StreamSent>, Measurements), SystemError> {
    let mut poller = Poller::new()?;
    let streams = part.into_iter().enumerate();
    let streams = streams.map(|(index, (socket, number, (group, source)))| {
        poller.add(&socket, index, EpollFlags::EPOLLIN)?;
        Ok(Stream {
            socket,
            source,
            sequence: 0,
            tell_ns: None,
            open: true,
            report: StreamSent::new(number, group),
        })
    });
    let mut all = Datagrams {
        sender,
        streams: streams.collect::<Result<_, SystemError>>()?,
        start_ns,
        bytes: Vec::new(),
        measured: Measurements::new(false),
    };
    all.send(&mut poller, stop)?;
    all.end(&mut poller, stop)?;
    let reports = all.streams.into_iter().map(Stream::into_report);
    Ok((reports.collect(), all.measured))
}

impl Datagrams<'_> {
    fn send(&mut self, poller: &mut Poller, stop: &AtomicBool) -> Result<(), SystemError> {
        let mut due = BinaryHeap::new();
        let all = self.streams.iter().enumerate();
        due.extend(all.filter_map(|(index, stream)| Some(Reverse((stream.due()?, index)))));
        let mut check_ns = 0;
        while let Some(Reverse((offset_ns, index))) = due.pop() {
            let due_ns = self.start_ns.saturating_add(offset_ns);
            // Also of one that is behind its times and never waits.
            let mut now = now_ns();
            while now < due_ns || now >= check_ns {
                if now >= check_ns {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    check_ns = now + STOP_CHECK_NS;
                }
                for (ready, _) in poller.wait_until(due_ns.min(check_ns))? {
                    self.streams[ready].hear();
                }
                now = now_ns();
            }
            self.measured.late_ns.saturating_record(now - due_ns);
            let seed = self.sender.traffic.seed;
            let stream = &mut self.streams[index];
            stream.send(now, seed, &mut self.bytes);
            self.sender.progress.fetch_add(1, Ordering::Relaxed);
            due.extend(stream.due().map(|due| Reverse((due, index))));
        }
        Ok(())
    }

    /// Tells the receiver of each stream's end, until it has heard.
    fn end(&mut self, poller: &mut Poller, stop: &AtomicBool) -> Result<(), SystemError> {
        let deadline = now_ns().saturating_add(ns(self.sender.traffic.drain_timeout));
        while !stop.load(Ordering::Relaxed) {
            let now = now_ns();
            let mut next = deadline.min(now + STOP_CHECK_NS);
            let mut waits = false;
            for stream in self.streams.iter_mut().filter(|stream| stream.open) {
                if stream.tell_ns.is_none_or(|tell_ns| tell_ns <= now) {
                    stream.tell_ns = Some(now + TELL_AGAIN_NS);
                    stream.put(What::End, 0, self.sender.traffic.seed, 0, &mut self.bytes);
                }
                next = next.min(stream.tell_ns.unwrap_or(next));
                waits |= stream.open;
            }
            if !waits || now >= deadline {
                break;
            }
            for (ready, _) in poller.wait_until(next)? {
                self.streams[ready].hear();
            }
        }
        Ok(())
    }
}

impl Stream<'_> {
    /// When its next datagram is due, since the barrier; `None` when there is none.
    fn due(&self) -> Option<u64> {
        match self.source.next(0, true) {
            Next::At(at) if self.open => Some(at),
            _ => None,
        }
    }

    fn send(&mut self, now_ns: u64, seed: u64, bytes: &mut Vec<u8>) {
        let size = self.source.take();
        if self.put(What::Message, now_ns, seed, size, bytes) {
            self.report.messages += 1;
            self.report.bytes += u64::from(size);
        } else {
            self.report.blocked_writes += 1;
        }
        self.sequence += 1;
    }

    /// Whether the kernel took it.
    fn put(&mut self, what: What, sent_ns: u64, seed: u64, size: u32, bytes: &mut Vec<u8>) -> bool {
        let datagram = Datagram {
            what,
            stream: self.report.stream,
            seed,
            sent_ns,
            sequence: self.sequence,
            size,
        };
        datagram.write(bytes);
        loop {
            match self.socket.send(bytes) {
                Ok(_) => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed(&error);
                    return false;
                }
            }
        }
    }

    /// The socket has something to read, or an error.
    fn hear(&mut self) {
        let mut bytes = [0; Datagram::LEN];
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(len) => {
                    let heard = Datagram::read(&bytes[..len]);
                    if heard.is_some_and(|it| it.what == What::EndHeard) {
                        self.report.connected = true;
                        self.open = false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn failed(&mut self, error: &io::Error) {
        match error.kind() {
            // There is no room for it now, as on a full link.
            ErrorKind::WouldBlock => return,
            _ if error.raw_os_error() == Some(libc::ENOBUFS) => return,
            ErrorKind::ConnectionRefused => {
                let text = "nothing receives datagrams there; is `pillion-lab traffic receive \
                            --datagrams` running?";
                self.report.error = Some(text.to_owned());
            }
            _ => self.report.error = Some(format!("sending a datagram: {error}")),
        }
        self.open = false;
    }

    fn into_report(mut self) -> StreamSent {
        if self.open {
            self.report.error = Some("the receiver did not answer to the end".to_owned());
        }
        self.report
    }
}
