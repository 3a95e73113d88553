//! Restores the writes of an application from a trace of its connection.

use std::fmt;
use std::time::Duration;

use pillion_stats::report::number;
use pillion_stats::report::number::counted;
use pillion_trace::{Connection, Direction, Endpoint, Observer, SentPacket};
use thiserror::Error;

/// A connection, and the writes of its main sender.
#[derive(Debug, Clone)]
pub struct ConnectionWrites {
    /// The connection.
    pub connection: SendingConnection,
    /// The writes, in stream order.
    pub writes: Vec<Write>,
}

/// A finished connection with data.
#[derive(Debug, Clone, Copy)]
pub struct SendingConnection {
    /// The connection's number, counted from 1.
    pub number: u64,
    /// The main sender: the end that sent more new bytes.
    pub sender: Endpoint,
    /// The other end.
    pub receiver: Endpoint,
    direction: Direction,
    /// New payload bytes from the main sender.
    pub bytes: u64,
    /// Payload bytes of the main sender that were acknowledged, but that the trace does not show.
    pub missing_bytes: u64,
    /// The maximum segment size that the receiver announced.
    mss: Option<u16>,
}

/// An observer that stores the segments of one connection.
#[derive(Debug)]
pub struct WriteObserver {
    requested: Option<u64>,
    /// The connection whose segments are stored: the requested one, otherwise the first with data.
    stored_connection: Option<u64>,
    segments: Vec<(Direction, Segment)>,
    senders: Vec<SendingConnection>,
}

impl Observer for WriteObserver {
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        if !sent.class.carries_data() || sent.new_bytes == 0 {
            return;
        }
        if *self.stored_connection.get_or_insert(connection.number) != connection.number {
            return;
        }
        let segment = Segment {
            at_ns: sent.at_ns,
            start: sent.end.saturating_sub_unsigned(sent.new_bytes),
            end: sent.end,
            payload: u32::try_from(sent.end - sent.start).unwrap_or(u32::MAX),
            push: sent.push,
        };
        self.segments.push((sent.direction, segment));
    }

    fn finished(&mut self, connection: &Connection) {
        if !connection.has_data() {
            return;
        }
        let direction = connection.main_direction();
        let (sender, receiver) = match direction {
            Direction::Forward => (connection.originator, connection.responder),
            Direction::Backward => (connection.responder, connection.originator),
        };
        let counts = &connection.half_connection(direction).counts;
        self.senders.push(SendingConnection {
            number: connection.number,
            sender,
            receiver,
            direction,
            bytes: counts.new_bytes,
            missing_bytes: counts.missing_bytes,
            mss: connection.half_connection(direction.reverse()).mss,
        });
    }
}

impl WriteObserver {
    /// Creates an observer of the connection with this number. `None` selects the only connection
    /// with data.
    #[must_use]
    pub fn new(requested: Option<u64>) -> Self {
        Self {
            requested,
            stored_connection: requested,
            segments: Vec::new(),
            senders: Vec::new(),
        }
    }

    /// Returns the writes of the selected connection. Segments are joined to writes of at most
    /// `max_size` bytes.
    ///
    /// # Errors
    ///
    /// [`WritesError`], with a list of connections, if the selection does not match exactly one.
    pub fn finish(self, max_size: u32) -> Result<ConnectionWrites, WritesError> {
        let connection = match (self.requested, &self.senders[..]) {
            (_, []) => return Err(WritesError::NoData),
            (Some(requested), senders) => {
                let matching = senders.iter().find(|it| it.number == requested);
                *matching.ok_or_else(|| WritesError::no_connection(requested, senders))?
            }
            (None, &[single]) => single,
            (None, senders) => return Err(WritesError::ambiguous(senders)),
        };
        let segments = self.segments.into_iter();
        let segments = segments.filter(|(direction, _)| *direction == connection.direction);
        let segments = segments.map(|(_, segment)| segment).collect();
        Ok(ConnectionWrites {
            writes: reassemble(segments, connection.mss, max_size),
            connection,
        })
    }
}

impl fmt::Display for SendingConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = number::bytes(self.bytes as f64);
        let (sender, receiver) = (self.sender, self.receiver);
        write!(f, "{}: {sender} -> {receiver}, {bytes}", self.number)
    }
}

impl fmt::Display for ConnectionWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = number::count(self.writes.len() as u64);
        write!(f, "{count} writes of connection {}", self.connection)?;
        match self.connection.missing_bytes {
            0 => Ok(()),
            missing => {
                let missing = number::bytes(missing as f64);
                write!(f, "; the trace lacks {missing}, which are omitted")
            }
        }
    }
}

/// One write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Time since the start of the previous write; 0 for the first.
    pub gap: Duration,
    /// Size in bytes.
    pub size: u32,
}

/// A segment with new bytes.
#[derive(Debug, Clone, Copy)]
struct Segment {
    at_ns: i64,
    /// Positions of the new bytes; `end` is exclusive.
    start: i64,
    end: i64,
    payload: u32,
    push: bool,
}

/// The largest payload of a packet on common links, in bytes.
const MAX_SEGMENT: u32 = 9216;

/// Joins the segments of each write, to at most `max_size` bytes. A segment of the connection's
/// full size without PSH continues in the next one (RFC 9293, section 3.9.1.2: PSH marks the end of
/// a write). Bundles and retransmissions contribute only their new bytes. Writes that TCP joined,
/// as with Nagle's algorithm, remain one.
fn reassemble(mut segments: Vec<Segment>, mss: Option<u16>, max_size: u32) -> Vec<Write> {
    segments.sort_by_key(|segment| segment.start);
    // Larger packets were captured before segmentation.
    let max_payload = mss.map_or(MAX_SEGMENT, u32::from);
    let sizes = segments.iter().map(|segment| segment.payload);
    let full_size = sizes
        .filter(|size| *size <= max_payload)
        .max()
        .unwrap_or(max_payload);
    let mut writes: Vec<(i64, u32)> = Vec::new();
    let mut continues_at = None;
    for segment in segments {
        let size = u32::try_from(segment.end - segment.start).unwrap_or(u32::MAX);
        match writes.last_mut() {
            Some((_, size_so_far))
                if continues_at == Some(segment.start)
                    && size_so_far.saturating_add(size) <= max_size =>
            {
                *size_so_far += size;
            }
            _ => writes.push((segment.at_ns, size)),
        }
        let continues = !segment.push && segment.payload >= full_size;
        continues_at = continues.then_some(segment.end);
    }
    let mut last = writes.first().map_or(0, |(at_ns, _)| *at_ns);
    let gaps = writes.into_iter().map(|(at_ns, size)| {
        // A late segment does not make the gap negative.
        let gap = u64::try_from(at_ns.saturating_sub(last)).unwrap_or(0);
        last = last.max(at_ns);
        Write {
            gap: Duration::from_nanos(gap),
            size,
        }
    });
    gaps.collect()
}

/// Maximum number of connections in an error message.
const MAX_LISTED: usize = 20;

/// The reason why a trace has no writes to return.
#[derive(Debug, Clone, Error)]
pub enum WritesError {
    /// No connection has data.
    #[error("no TCP connection with data: nothing to replay")]
    NoData,
    /// The requested connection has no data, or does not exist.
    #[error("no connection {requested} with data: {}", choose_hint(senders))]
    NoConnection {
        /// The requested connection's number.
        requested: u64,
        /// The connections with data, by number.
        senders: Vec<SendingConnection>,
    },
    /// Several connections have data, and none was requested.
    #[error("{} with data: {}", counted(senders.len() as u64, "connection"), choose_hint(senders))]
    Ambiguous {
        /// The connections with data, by number.
        senders: Vec<SendingConnection>,
    },
}

impl WritesError {
    fn no_connection(requested: u64, senders: &[SendingConnection]) -> Self {
        let senders = by_number(senders);
        Self::NoConnection { requested, senders }
    }

    fn ambiguous(senders: &[SendingConnection]) -> Self {
        let senders = by_number(senders);
        Self::Ambiguous { senders }
    }
}

fn by_number(senders: &[SendingConnection]) -> Vec<SendingConnection> {
    let mut senders = senders.to_vec();
    senders.sort_by_key(|sender| sender.number);
    senders
}

fn choose_hint(senders: &[SendingConnection]) -> String {
    let mut text = "select one with --connection N, of".to_owned();
    for sender in senders.iter().take(MAX_LISTED) {
        text += &format!("\n{sender}");
    }
    if let Some(more @ 1..) = senders.len().checked_sub(MAX_LISTED) {
        text += &format!("\nand {more} more; list them with `pillion-lab analyse --list`");
    }
    text
}

#[cfg(test)]
mod tests {
    use pillion_trace::{Analysis, Flags, Packet, SackBlocks};

    use super::*;

    const MSS: u16 = 1000;
    const MAX_SIZE: u32 = 1 << 20;

    /// Packets from a client to a server, on connections that differ in the client's port.
    #[derive(Default)]
    struct Script(Vec<Packet>);

    impl Script {
        fn packet(&mut self, port: u16, ms: i64, start: u32, len: u32) -> &mut Packet {
            let client: std::net::SocketAddr = ([192, 0, 2, 1], port).into();
            let server: std::net::SocketAddr = ([198, 51, 100, 1], 80).into();
            let number = self.0.len() as u64 + 1;
            self.0.push(Packet {
                interface: 0,
                number,
                at_ns: ms * 1_000_000,
                from: client.into(),
                to: server.into(),
                frame_len: 54 + len,
                header_len: 40,
                payload_len: len,
                seq: start,
                ack: Some(1),
                flags: Flags::default(),
                window: 500,
                ip_id: Some(number as u16),
                timestamps: None,
                sack: SackBlocks::default(),
                mss: None,
                window_scale: None,
            });
            self.0.last_mut().unwrap()
        }

        fn open(&mut self, port: u16) -> &mut Self {
            let syn = self.packet(port, 0, 0, 0);
            (syn.flags.syn, syn.ack) = (true, None);
            let syn_ack = self.packet(port, 0, 0, 0);
            std::mem::swap(&mut syn_ack.from, &mut syn_ack.to);
            (syn_ack.flags.syn, syn_ack.mss) = (true, Some(MSS));
            self.packet(port, 0, 1, 0);
            self
        }

        /// Sends from one position to another; `push` marks the end of a write.
        fn data(&mut self, ms: i64, start: u32, end: u32, push: bool) -> &mut Self {
            self.packet(40_000, ms, start, end - start).flags.psh = push;
            self
        }

        fn observe(&self, requested: Option<u64>) -> Result<ConnectionWrites, WritesError> {
            let mut analysis = Analysis::new(WriteObserver::new(requested));
            for packet in &self.0 {
                analysis.packet(packet);
            }
            analysis.finish().finish(MAX_SIZE)
        }

        /// Returns milliseconds since the previous write, and bytes.
        fn writes(&self) -> Vec<(u128, u32)> {
            let finish = self.observe(None).unwrap();
            let writes = finish.writes.iter();
            writes
                .map(|write| (write.gap.as_millis(), write.size))
                .collect()
        }
    }

    fn opened() -> Script {
        let mut script = Script::default();
        script.open(40_000);
        script
    }

    #[test]
    fn writes_are_restored_from_segments_and_bundles() {
        let mut script = opened();
        script.data(10, 1, 101, true);
        // Bundled with the previous write, then retransmitted.
        script.data(40, 1, 301, true).data(90, 101, 301, true);
        // One write of 2500 B.
        script
            .data(120, 301, 1301, false)
            .data(120, 1301, 2301, false);
        script.data(130, 2301, 2801, true);
        // A write of exactly one full segment, and the next write.
        script
            .data(170, 2801, 3801, true)
            .data(190, 3801, 3802, true);
        assert_eq!(
            script.writes(),
            [(0, 100), (30, 200), (80, 2500), (50, 1000), (20, 1)]
        );
    }

    #[test]
    fn unsegmented_packet_is_one_write_and_small_one_ends_it() {
        let mut script = opened();
        script.data(10, 1, 4001, true).data(20, 4001, 5001, true);
        script
            .data(30, 5001, 5051, false)
            .data(40, 5051, 5101, true);
        assert_eq!(script.writes(), [(0, 4000), (10, 1000), (10, 50), (10, 50)]);
    }

    #[test]
    fn gap_in_trace_separates_writes() {
        let mut script = opened();
        script.data(10, 1, 1001, false).data(20, 2001, 3001, false);
        script.data(30, 3001, 3101, true);
        assert_eq!(script.writes(), [(0, 1000), (10, 1100)]);
    }

    #[test]
    fn ambiguous_connection_error_lists_connections() {
        let mut script = opened();
        script.open(40_001).open(40_002).data(10, 1, 101, true);
        script.packet(40_002, 20, 1, 7);
        let ambiguous = script.observe(None).unwrap_err();
        let expected = "2 connections with data: select one with --connection N, of\n\
                        1: 192.0.2.1:40000 -> 198.51.100.1:80, 100\u{a0}B\n\
                        3: 192.0.2.1:40002 -> 198.51.100.1:80, 7\u{a0}B";
        assert_eq!(ambiguous.to_string(), expected);
        let third = script.observe(Some(3)).unwrap();
        assert_eq!(third.writes.len(), 1);
        assert_eq!(third.writes[0].size, 7);
        let empty = script.observe(Some(2)).unwrap_err().to_string();
        assert!(empty.starts_with("no connection 2 with data: select "));
        let no_data = Script::default().observe(None).unwrap_err();
        assert_eq!(
            no_data.to_string(),
            "no TCP connection with data: nothing to replay"
        );
    }
}
