//! Datagrams received by one socket, by sender and stream.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};

use super::connection::Shared;
use super::report::{Fault, FaultKind, StreamReceiveReport};
use crate::traffic::latency::{LatencyKind, Record, now_ns, us};
use crate::traffic::wire::{Datagram, DatagramKind};

/// The socket, and the streams received by it.
pub(super) struct Datagrams {
    pub(super) socket: UdpSocket,
    streams: BTreeMap<(u32, SocketAddr), ReceivedStream>,
}

/// The datagrams received of a stream.
#[derive(Default)]
struct ReceivedStream {
    /// Numbers of the received messages, because a path may duplicate them.
    seen: HashSet<u32>,
    bytes: u64,
    records: Vec<Record>,
    fault: Option<Fault>,
    ended: bool,
}

/// Results of a read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Read {
    /// New, verified messages.
    pub(super) messages: u64,
    /// Ended streams.
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

    /// Reads all waiting datagrams.
    pub(super) fn read(&mut self, shared: &mut Shared) -> Read {
        let mut read = Read::default();
        loop {
            match self.socket.recv_from(&mut shared.buffer) {
                Ok((len, peer)) => self.take(len, peer, shared, &mut read),
                // From a response to a sender that has exited.
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
        let stream_state = self.streams.entry((datagram.stream, peer)).or_default();
        match datagram.what {
            DatagramKind::EndAck => {}
            DatagramKind::End => {
                read.ended += usize::from(!stream_state.ended);
                stream_state.ended = true;
                let answer = Datagram {
                    what: DatagramKind::EndAck,
                    size: 0,
                    ..datagram
                };
                let mut bytes = Vec::new();
                answer.write(&mut bytes);
                // If it is lost, the sender repeats the end.
                let _ = self.socket.send_to(&bytes, peer);
            }
            DatagramKind::Message => {
                if let Some(fault) = fault(&datagram, bytes) {
                    stream_state.fault.get_or_insert(fault);
                } else if stream_state.seen.insert(datagram.sequence) {
                    read.messages += 1;
                    stream_state.bytes += len as u64;
                    stream_state.record(&datagram, len as u32, now_ns, shared);
                }
            }
        }
    }

    /// Returns the results of each stream, ordered by stream.
    pub(super) fn into_parts(self) -> impl Iterator<Item = (StreamReceiveReport, Vec<Record>)> {
        self.streams
            .into_iter()
            .map(|((stream, peer), mut stream_state)| {
                stream_state.records.sort_by_key(|record| record.sequence);
                let received = StreamReceiveReport {
                    stream: Some(stream),
                    peer,
                    messages: stream_state.seen.len() as u64,
                    bytes: stream_state.bytes,
                    fault: stream_state.fault,
                };
                (received, stream_state.records)
            })
    }
}

/// Returns the fault of a message, if any.
fn fault(datagram: &Datagram, bytes: &[u8]) -> Option<Fault> {
    let Datagram { sequence, size, .. } = *datagram;
    let (offset, what) = if bytes.len() == size as usize {
        (
            datagram.first_wrong(bytes)?,
            "wrong byte of content".to_owned(),
        )
    } else {
        let received_len = bytes.len();
        (
            received_len.min(size as usize),
            format!("received {received_len} B of {size} B"),
        )
    };
    Some(Fault {
        kind: FaultKind::Corrupt,
        offset: offset as u64,
        what: format!("message {sequence}: {what}"),
    })
}

impl ReceivedStream {
    fn record(&mut self, datagram: &Datagram, size: u32, now_ns: u64, shared: &mut Shared) {
        let latency_ns = now_ns.saturating_sub(datagram.sent_ns);
        shared.latency_ns.saturating_record(latency_ns);
        if shared.keep_records {
            self.records.push(Record {
                measured: LatencyKind::Delivery,
                stream: datagram.stream,
                sequence: datagram.sequence,
                size,
                sent_ns: datagram.sent_ns,
                latency_us: us(latency_ns),
            });
        }
    }
}
