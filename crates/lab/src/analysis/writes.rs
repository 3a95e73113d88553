//! The writes of an application, as the trace of its connection shows them.

use std::fmt;
use std::time::Duration;

use pillion_stats::report::number;
use pillion_stats::report::number::counted;
use pillion_trace::{Connection, Direction, Endpoint, Observer, Sent};
use thiserror::Error;

/// A connection and what its main sender wrote.
#[derive(Debug, Clone)]
pub struct Written {
    /// The connection.
    pub connection: Sender,
    /// The writes, in the order of the stream.
    pub writes: Vec<Write>,
}

/// A connection with data, at its end.
#[derive(Debug, Clone, Copy)]
pub struct Sender {
    /// The connection's number.
    pub number: u64,
    /// Who sent most.
    pub sender: Endpoint,
    /// To whom.
    pub receiver: Endpoint,
    direction: Direction,
    /// New payload that the main sender sent.
    pub bytes: u64,
    /// Payload of the main sender that was acknowledged, and that the trace does not show as sent.
    pub missing_bytes: u64,
    /// Of the largest segment that its receiver takes.
    mss: Option<u16>,
}

/// Keeps what one connection sent.
#[derive(Debug)]
pub struct Writes {
    wanted: Option<u64>,
    /// Whose segments are kept: the one wanted, else the first that has any.
    kept: Option<u64>,
    segments: Vec<(Direction, Segment)>,
    senders: Vec<Sender>,
}

impl Observer for Writes {
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        if !sent.class.carries_data() || sent.new_bytes == 0 {
            return;
        }
        if *self.kept.get_or_insert(connection.number) != connection.number {
            return;
        }
        let segment = Segment {
            at_ns: sent.at_ns,
            begin: sent.end.saturating_sub_unsigned(sent.new_bytes),
            end: sent.end,
            payload: u32::try_from(sent.end - sent.begin).unwrap_or(u32::MAX),
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
        self.senders.push(Sender {
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

impl Writes {
    /// Those of the connection with this number, which may be left open where only one has data.
    #[must_use]
    pub fn of(wanted: Option<u64>) -> Self {
        Self {
            wanted,
            kept: wanted,
            segments: Vec::new(),
            senders: Vec::new(),
        }
    }

    /// What the one connection that is meant wrote; segments are put together to writes of at most
    /// `max_size` bytes.
    ///
    /// # Errors
    /// [`WritesError`], with the connections there are, if none of them is meant.
    pub fn written(self, max_size: u32) -> Result<Written, WritesError> {
        let connection = match (self.wanted, &self.senders[..]) {
            (_, []) => return Err(WritesError::NoData),
            (Some(wanted), senders) => {
                let found = senders.iter().find(|it| it.number == wanted);
                *found.ok_or_else(|| WritesError::no_connection(wanted, senders))?
            }
            (None, &[only]) => only,
            (None, senders) => return Err(WritesError::several(senders)),
        };
        let segments = self.segments.into_iter();
        let segments = segments.filter(|(direction, _)| *direction == connection.direction);
        let segments = segments.map(|(_, segment)| segment).collect();
        Ok(Written {
            writes: join(segments, connection.mss, max_size),
            connection,
        })
    }
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = number::bytes(self.bytes as f64);
        let (sender, receiver) = (self.sender, self.receiver);
        write!(f, "{}: {sender} -> {receiver}, {bytes}", self.number)
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = number::count(self.writes.len() as u64);
        write!(f, "{count} writes of connection {}", self.connection)?;
        match self.connection.missing_bytes {
            0 => Ok(()),
            missing => {
                let missing = number::bytes(missing as f64);
                write!(f, "; the trace misses {missing}, which are left out")
            }
        }
    }
}

/// One write of an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The time since the write before began to be sent; none of the first.
    pub gap: Duration,
    /// Its bytes.
    pub size: u32,
}

/// A segment with new bytes.
#[derive(Debug, Clone, Copy)]
struct Segment {
    at_ns: i64,
    /// Positions of the new bytes.
    begin: i64,
    end: i64,
    payload: u32,
    push: bool,
}

/// The largest payload of one packet on any link in use.
const LARGEST_SEGMENT: u32 = 9216;

/// Puts together what was cut, to at most `max_size` bytes. A segment as large as the connection's are
/// that lacks the PSH flag was cut from a write that goes on (RFC 9293, section 3.9.1.2: PSH marks the
/// end of one). A bundle and a retransmission bring no more than their new bytes. Writes that TCP
/// joined, as Nagle's algorithm does, stay one.
fn join(mut segments: Vec<Segment>, mss: Option<u16>, max_size: u32) -> Vec<Write> {
    segments.sort_by_key(|segment| segment.begin);
    // What is larger was not cut yet where the trace was taken.
    let most = mss.map_or(LARGEST_SEGMENT, u32::from);
    let sizes = segments.iter().map(|segment| segment.payload);
    let full = sizes.filter(|size| *size <= most).max().unwrap_or(most);
    let mut writes: Vec<(i64, u32)> = Vec::new();
    let mut goes_on_at = None;
    for segment in segments {
        let size = u32::try_from(segment.end - segment.begin).unwrap_or(u32::MAX);
        match writes.last_mut() {
            Some((_, whole))
                if goes_on_at == Some(segment.begin) && whole.saturating_add(size) <= max_size =>
            {
                *whole += size;
            }
            _ => writes.push((segment.at_ns, size)),
        }
        let is_cut = !segment.push && segment.payload >= full;
        goes_on_at = is_cut.then_some(segment.end);
    }
    let mut last = writes.first().map_or(0, |(at_ns, _)| *at_ns);
    let gaps = writes.into_iter().map(|(at_ns, size)| {
        // A part that the trace shows late is no step back.
        let gap = u64::try_from(at_ns.saturating_sub(last)).unwrap_or(0);
        last = last.max(at_ns);
        Write {
            gap: Duration::from_nanos(gap),
            size,
        }
    });
    gaps.collect()
}

/// How many connections are named at most.
const MOST: usize = 20;

/// Why a trace does not tell what was written.
#[derive(Debug, Clone, Error)]
pub enum WritesError {
    /// No connection has any data.
    #[error("no TCP connection with data; nothing to replay")]
    NoData,
    /// The connection that is wanted has none, or is not there.
    #[error("no connection {wanted} with data; {}", choose(senders))]
    NoConnection {
        /// The number of the connection that is wanted.
        wanted: u64,
        /// The connections with data, by their numbers.
        senders: Vec<Sender>,
    },
    /// None is wanted of several.
    #[error("{} with data; {}", counted(senders.len() as u64, "connection"), choose(senders))]
    Several {
        /// The connections with data, by their numbers.
        senders: Vec<Sender>,
    },
}

impl WritesError {
    fn no_connection(wanted: u64, senders: &[Sender]) -> Self {
        let senders = by_number(senders);
        Self::NoConnection { wanted, senders }
    }

    fn several(senders: &[Sender]) -> Self {
        let senders = by_number(senders);
        Self::Several { senders }
    }
}

fn by_number(senders: &[Sender]) -> Vec<Sender> {
    let mut senders = senders.to_vec();
    senders.sort_by_key(|sender| sender.number);
    senders
}

fn choose(senders: &[Sender]) -> String {
    let mut text = "choose one with --connection N, of".to_owned();
    for sender in senders.iter().take(MOST) {
        text += &format!("\n{sender}");
    }
    if let Some(more @ 1..) = senders.len().checked_sub(MOST) {
        text += &format!("\nand {more} more, see `pillion-lab analyse --list`");
    }
    text
}

#[cfg(test)]
mod tests {
    use pillion_trace::{Analysis, Flags, Packet, SackBlocks};

    use super::*;

    const MSS: u16 = 1000;
    const MAX_SIZE: u32 = 1 << 20;

    /// What a client sends to a server, on connections told apart by the client's port.
    #[derive(Default)]
    struct Script(Vec<Packet>);

    impl Script {
        fn packet(&mut self, port: u16, ms: i64, begin: u32, len: u32) -> &mut Packet {
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
                seq: begin,
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
            let answer = self.packet(port, 0, 0, 0);
            std::mem::swap(&mut answer.from, &mut answer.to);
            (answer.flags.syn, answer.mss) = (true, Some(MSS));
            self.packet(port, 0, 1, 0);
            self
        }

        /// From one position to another; `push` marks the end of a write.
        fn data(&mut self, ms: i64, begin: u32, end: u32, push: bool) -> &mut Self {
            self.packet(40_000, ms, begin, end - begin).flags.psh = push;
            self
        }

        fn watch(&self, wanted: Option<u64>) -> Result<Written, WritesError> {
            let mut analysis = Analysis::new(Writes::of(wanted));
            for packet in &self.0 {
                analysis.packet(packet);
            }
            analysis.finish().written(MAX_SIZE)
        }

        /// Milliseconds since the write before, and bytes.
        fn writes(&self) -> Vec<(u128, u32)> {
            let written = self.watch(None).unwrap();
            let writes = written.writes.iter();
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
    fn writes_are_what_they_were_before_tcp_cut_bundled_and_repeated_them() {
        let mut script = opened();
        script.data(10, 1, 101, true);
        // Bundled with the one before, then sent again.
        script.data(40, 1, 301, true).data(90, 101, 301, true);
        // One write of 2500 B.
        script
            .data(120, 301, 1301, false)
            .data(120, 1301, 2301, false);
        script.data(130, 2301, 2801, true);
        // A full one by itself, and the next.
        script
            .data(170, 2801, 3801, true)
            .data(190, 3801, 3802, true);
        assert_eq!(
            script.writes(),
            [(0, 100), (30, 200), (80, 2500), (50, 1000), (20, 1)]
        );
    }

    #[test]
    fn what_was_not_cut_yet_is_one_write_and_a_small_segment_never_goes_on() {
        let mut script = opened();
        script.data(10, 1, 4001, true).data(20, 4001, 5001, true);
        script
            .data(30, 5001, 5051, false)
            .data(40, 5051, 5101, true);
        assert_eq!(script.writes(), [(0, 4000), (10, 1000), (10, 50), (10, 50)]);
    }

    #[test]
    fn a_hole_in_the_trace_does_not_join_what_is_around_it() {
        let mut script = opened();
        script.data(10, 1, 1001, false).data(20, 2001, 3001, false);
        script.data(30, 3001, 3101, true);
        assert_eq!(script.writes(), [(0, 1000), (10, 1100)]);
    }

    #[test]
    fn one_of_several_connections_must_be_chosen_and_each_is_named() {
        let mut script = opened();
        script.open(40_001).open(40_002).data(10, 1, 101, true);
        script.packet(40_002, 20, 1, 7);
        let several = script.watch(None).unwrap_err();
        let expected = "2 connections with data; choose one with --connection N, of\n\
                        1: 192.0.2.1:40000 -> 198.51.100.1:80, 100\u{a0}B\n\
                        3: 192.0.2.1:40002 -> 198.51.100.1:80, 7\u{a0}B";
        assert_eq!(several.to_string(), expected);
        let third = script.watch(Some(3)).unwrap();
        assert_eq!(third.writes.len(), 1);
        assert_eq!(third.writes[0].size, 7);
        let empty = script.watch(Some(2)).unwrap_err().to_string();
        assert!(empty.starts_with("no connection 2 with data; choose "));
        let none = Script::default().watch(None).unwrap_err();
        assert_eq!(
            none.to_string(),
            "no TCP connection with data; nothing to replay"
        );
    }
}
