//! Streams of datagrams: each datagram leaves when it is due, without feedback about its arrival.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::epoll::EpollFlags;

use super::report::{Measurements, StreamSendReport};
use super::source::{Next, Source};
use super::{SendError, Sender};
use crate::traffic::latency::{now_ns, ns};
use crate::traffic::poller::{Poller, STOP_CHECK_NS, SystemError};
use crate::traffic::wire::{Datagram, DatagramKind};

/// Interval between two repetitions of a stream's end.
const END_INTERVAL_NS: u64 = 200_000_000;

/// Opens a socket for a stream with this source port, 0 for any.
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

/// A stream's socket, its number, its group's number, and its source.
pub(super) type ThreadStreams<'a> = Vec<(UdpSocket, u32, (usize, Source<'a>))>;

struct Stream<'a> {
    socket: UdpSocket,
    source: Source<'a>,
    sequence: u32,
    /// When to repeat the stream's end; `None` while datagrams remain to be sent.
    next_end_ns: Option<u64>,
    open: bool,
    report: StreamSendReport,
}

/// The streams of one thread.
struct Datagrams<'a> {
    sender: &'a Sender,
    streams: Vec<Stream<'a>>,
    start_ns: u64,
    /// Buffer for a datagram.
    bytes: Vec<u8>,
    measured: Measurements,
}

/// Sends on the calling thread, until all streams have ended or `stop` is set.
pub(super) fn run<'a>(
    sender: &'a Sender,
    part: ThreadStreams<'a>,
    start_ns: u64,
    stop: &AtomicBool,
) -> Result<(Vec<StreamSendReport>, Measurements), SystemError> {
    let mut poller = Poller::new()?;
    let streams = part.into_iter().enumerate();
    let streams = streams.map(|(index, (socket, number, (group, source)))| {
        poller.add(&socket, index, EpollFlags::EPOLLIN)?;
        Ok(Stream {
            socket,
            source,
            sequence: 0,
            next_end_ns: None,
            open: true,
            report: StreamSendReport::new(number, group),
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
            // Also checks the flag if the stream is behind schedule and never waits.
            let mut now = now_ns();
            while now < due_ns || now >= check_ns {
                if now >= check_ns {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    check_ns = now + STOP_CHECK_NS;
                }
                for (ready, _) in poller.wait_until(due_ns.min(check_ns))? {
                    self.streams[ready].receive();
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

    /// Sends each stream's end until the receiver acknowledges it.
    fn end(&mut self, poller: &mut Poller, stop: &AtomicBool) -> Result<(), SystemError> {
        let deadline = now_ns().saturating_add(ns(self.sender.traffic.drain_timeout));
        while !stop.load(Ordering::Relaxed) {
            let now = now_ns();
            let mut next = deadline.min(now + STOP_CHECK_NS);
            let mut is_waiting = false;
            for stream in self.streams.iter_mut().filter(|stream| stream.open) {
                if stream
                    .next_end_ns
                    .is_none_or(|next_end_ns| next_end_ns <= now)
                {
                    stream.next_end_ns = Some(now + END_INTERVAL_NS);
                    stream.send_datagram(
                        DatagramKind::End,
                        0,
                        self.sender.traffic.seed,
                        0,
                        &mut self.bytes,
                    );
                }
                next = next.min(stream.next_end_ns.unwrap_or(next));
                is_waiting |= stream.open;
            }
            if !is_waiting || now >= deadline {
                break;
            }
            for (ready, _) in poller.wait_until(next)? {
                self.streams[ready].receive();
            }
        }
        Ok(())
    }
}

impl Stream<'_> {
    /// Returns the due time of the next datagram, since the barrier's opening; `None` after the
    /// last.
    fn due(&self) -> Option<u64> {
        match self.source.next(0, true) {
            Next::At(at) if self.open => Some(at),
            _ => None,
        }
    }

    fn send(&mut self, now_ns: u64, seed: u64, bytes: &mut Vec<u8>) {
        let size = self.source.take();
        if self.send_datagram(DatagramKind::Message, now_ns, seed, size, bytes) {
            self.report.messages += 1;
            self.report.bytes += u64::from(size);
        } else {
            self.report.blocked_writes += 1;
        }
        self.sequence += 1;
    }

    /// Sends a datagram; returns whether the kernel accepted it.
    fn send_datagram(
        &mut self,
        what: DatagramKind,
        sent_ns: u64,
        seed: u64,
        size: u32,
        bytes: &mut Vec<u8>,
    ) -> bool {
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

    /// Handles data or an error of the socket.
    fn receive(&mut self) {
        let mut bytes = [0; Datagram::LEN];
        loop {
            match self.socket.recv(&mut bytes) {
                Ok(len) => {
                    let datagram = Datagram::read(&bytes[..len]);
                    if datagram.is_some_and(|it| it.what == DatagramKind::EndAck) {
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
            // A full queue, as on a full link; the datagram is dropped.
            ErrorKind::WouldBlock => return,
            _ if error.raw_os_error() == Some(libc::ENOBUFS) => return,
            ErrorKind::ConnectionRefused => {
                let text = "no receiver of datagrams at this address; is `pillion-lab traffic receive \
                            --datagrams` running?";
                self.report.error = Some(text.to_owned());
            }
            _ => self.report.error = Some(format!("sending a datagram: {error}")),
        }
        self.open = false;
    }

    fn into_report(mut self) -> StreamSendReport {
        if self.open {
            self.report.error = Some("the receiver did not acknowledge the end".to_owned());
        }
        self.report
    }
}
