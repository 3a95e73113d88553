//! Datagrams: whatever comes to one socket, by sender and stream.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use super::connection::Shared;
use super::report::{Fault, FaultKind, StreamReceived};
use crate::traffic::latency::{Measured, Record, now_ns, us};
use crate::traffic::wire::{Datagram, What};

/// The socket, and what has come to it.
pub(super) struct Datagrams {
    pub(super) socket: UdpSocket,
    streams: BTreeMap<(u32, SocketAddr), Heard>,
}

/// What has come of a stream.
#[derive(Default)]
struct Heard {
    /// The numbers of the messages that came: a path may double them.
    seen: HashSet<u32>,
    bytes: u64,
    records: Vec<Record>,
    fault: Option<Fault>,
    ended: bool,
}

/// What reading has found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Read {
    /// New messages, verified.
    pub(super) messages: u64,
    /// Streams that have ended.
    pub(super) ended: usize,
}

impl Datagrams {
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            streams: BTreeMap::new(),
        })
    }

    /// Reads all that there is.
    pub(super) fn read(&mut self, shared: &mut Shared) -> Read {
        let mut read = Read::default();
        loop {
            match self.socket.recv_from(&mut shared.buffer) {
                Ok((len, peer)) => self.take(len, peer, shared, &mut read),
                // Of an answer that nobody waited for any more.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return read,
            }
        }
    }

    fn take(&mut self, len: usize, peer: SocketAddr, shared: &mut Shared, read: &mut Read) {
        let now_ns = now_ns();
        let bytes = &shared.buffer[..len];
        let Some(datagram) = Datagram::read(bytes) else {
            return;
        };
        let heard = self.streams.entry((datagram.stream, peer)).or_default();
        match datagram.what {
            What::EndHeard => {}
            What::End => {
                read.ended += usize::from(!heard.ended);
                heard.ended = true;
                let answer = Datagram {
                    what: What::EndHeard,
                    size: 0,
                    ..datagram
                };
                let mut bytes = Vec::new();
                answer.write(&mut bytes);
                // If it is lost, the end is told once more.
                let _ = self.socket.send_to(&bytes, peer);
            }
            What::Message => {
                if let Some(fault) = fault(&datagram, bytes) {
                    heard.fault.get_or_insert(fault);
                } else if heard.seen.insert(datagram.sequence) {
                    read.messages += 1;
                    heard.bytes += len as u64;
                    heard.record(&datagram, len as u32, now_ns, shared);
                }
            }
        }
    }

    /// What came of each stream, in their order.
    pub(super) fn into_parts(self) -> impl Iterator<Item = (StreamReceived, Vec<Record>)> {
        self.streams.into_iter().map(|((stream, peer), mut heard)| {
            heard.records.sort_by_key(|record| record.sequence);
            let received = StreamReceived {
                stream: Some(stream),
                peer,
                messages: heard.seen.len() as u64,
                bytes: heard.bytes,
                fault: heard.fault,
            };
            (received, heard.records)
        })
    }
}

/// What is wrong with a message, if anything is.
fn fault(datagram: &Datagram, bytes: &[u8]) -> Option<Fault> {
    let Datagram { sequence, size, .. } = *datagram;
    let (offset, what) = if bytes.len() == size as usize {
        (
            datagram.first_wrong(bytes)?,
            "a byte of content is wrong".to_owned(),
        )
    } else {
        let came = bytes.len();
        (
            came.min(size as usize),
            format!("{came} B came of {size} B"),
        )
    };
    Some(Fault {
        kind: FaultKind::Corrupt,
        offset: offset as u64,
        what: format!("message {sequence}: {what}"),
    })
}

impl Heard {
    fn record(&mut self, datagram: &Datagram, size: u32, now_ns: u64, shared: &mut Shared) {
        let latency_ns = now_ns.saturating_sub(datagram.sent_ns);
        shared.latency_ns.saturating_record(latency_ns);
        if shared.keep_records {
            self.records.push(Record {
                measured: Measured::Delivery,
                stream: datagram.stream,
                sequence: datagram.sequence,
                size,
                sent_ns: datagram.sent_ns,
                latency_us: us(latency_ns),
            });
        }
    }
}
