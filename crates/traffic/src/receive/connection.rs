use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};

use hdrhistogram::Histogram;

use super::Record;
use super::report::{Fault, StreamReceived};
use super::verifier::Verifier;
use crate::clock::{now_ns, us};
use crate::wire::Mismatch;

/// Records to make room for when a preface announces that many messages; more grow as they come,
/// so that a preface cannot ask for all memory.
const RECORDS_AHEAD: u32 = 1 << 20;

/// What all connections share.
pub(super) struct Shared {
    pub(super) buffer: Vec<u8>,
    pub(super) latency_ns: Histogram<u64>,
    pub(super) keep_records: bool,
}

/// One accepted connection, which stays in the list after its end.
pub(super) struct Connection {
    /// `None` when closed.
    socket: Option<TcpStream>,
    peer: SocketAddr,
    verifier: Verifier,
    records: Vec<Record>,
    bytes: u64,
    fault: Option<Fault>,
}

impl Connection {
    pub(super) fn new(socket: TcpStream, peer: SocketAddr) -> Self {
        Self {
            socket: Some(socket),
            peer,
            verifier: Verifier::default(),
            records: Vec::new(),
            bytes: 0,
            fault: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Reads once; closes at the end of the stream or at the first fault.
    pub(super) fn read(&mut self, shared: &mut Shared) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        let result = socket.read(&mut shared.buffer);
        let now_ns = now_ns();
        let fault = match result {
            Ok(0) => self.verifier.missing("closed"),
            Ok(len) => {
                self.bytes += len as u64;
                match self.verify(len, now_ns, shared) {
                    Ok(()) => return,
                    Err(fault) => Some(fault),
                }
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => return,
                _ => self.verifier.missing(&error.to_string()),
            },
        };
        self.fault = fault;
        self.socket = None;
    }

    fn verify(&mut self, len: usize, now_ns: u64, shared: &mut Shared) -> Result<(), Fault> {
        let Shared {
            buffer,
            latency_ns,
            keep_records,
        } = shared;
        let records = &mut self.records;
        self.verifier.take(&buffer[..len], |preface, message| {
            let latency = now_ns.checked_sub(message.sent_ns).ok_or(Mismatch {
                what: "send time, which must not be after the receipt (is it the same host?)",
                offset: 8,
                found: message.sent_ns,
                expected: now_ns,
            })?;
            latency_ns.saturating_record(latency);
            if *keep_records {
                if records.is_empty() {
                    records.reserve_exact(preface.messages.min(RECORDS_AHEAD) as usize);
                }
                records.push(Record {
                    stream: preface.stream,
                    sequence: message.sequence,
                    sent_ns: message.sent_ns,
                    latency_us: us(latency),
                });
            }
            Ok(())
        })
    }

    pub(super) fn messages(&self) -> u32 {
        self.verifier.messages()
    }

    /// The end, of a connection still open by the receiver's stop.
    pub(super) fn into_parts(self) -> (StreamReceived, Vec<Record>) {
        let fault = match self.socket {
            Some(_) => self.verifier.missing("receiver stopped"),
            None => self.fault,
        };
        let preface = self.verifier.preface();
        let received = StreamReceived {
            stream: preface.map(|preface| preface.stream),
            peer: self.peer,
            messages: self.verifier.messages(),
            expected: preface.map(|preface| preface.messages),
            bytes: self.bytes,
            fault,
        };
        (received, self.records)
    }
}
