//! The writes of an application, as the trace of its connection shows them.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use pillion_analysis::Traces;
use pillion_report::number;
use pillion_settings::BadInput;
use pillion_trace::{Connection, Direction, Endpoint, Observer, Sent};
use pillion_traffic::Write;
use pillion_traffic::wire::MAX_SIZE;

use crate::analyse::observe;

/// A connection and what its main sender wrote.
pub struct Written {
    connection: Seen,
    pub writes: Vec<Write>,
}

/// Reads the writes of one connection; which may be left open where only one has data.
///
/// # Errors
/// [`BadInput`] that names the connections there are, if none of them is meant.
pub fn written(traces: Traces, file: &str, wanted: Option<u64>) -> Result<Written> {
    let watch = observe(traces, Watch::new(wanted)).observer;
    let mistake = watch.mistake(file);
    match watch.chosen() {
        Some(written) => Ok(written),
        None => Err(BadInput(mistake).into()),
    }
}

/// A connection with data, at its end.
#[derive(Debug, Clone, Copy)]
struct Seen {
    number: u64,
    sender: Endpoint,
    receiver: Endpoint,
    direction: Direction,
    /// New payload that the main sender sent.
    bytes: u64,
    /// Payload of the main sender that was acknowledged, and that the trace does not show as sent.
    missing_bytes: u64,
    /// Of the largest segment that its receiver takes.
    mss: Option<u16>,
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

/// Keeps what one connection sent.
struct Watch {
    wanted: Option<u64>,
    /// Whose segments are kept: the one wanted, else the first that has any.
    kept: Option<u64>,
    segments: Vec<(Direction, Segment)>,
    seen: Vec<Seen>,
}

impl Observer for Watch {
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
        self.seen.push(Seen {
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

impl Watch {
    fn new(wanted: Option<u64>) -> Self {
        Self {
            wanted,
            kept: wanted,
            segments: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// The one connection that is meant.
    fn chosen(self) -> Option<Written> {
        let connection = match (self.wanted, &self.seen[..]) {
            (Some(number), seen) => *seen.iter().find(|seen| seen.number == number)?,
            (None, &[only]) => only,
            (None, _) => return None,
        };
        let segments = self.segments.into_iter();
        let segments = segments.filter(|(direction, _)| *direction == connection.direction);
        Some(Written {
            writes: join(
                segments.map(|(_, segment)| segment).collect(),
                connection.mss,
            ),
            connection,
        })
    }

    /// Why none is, and which there are.
    fn mistake(&self, file: &str) -> String {
        const MOST: usize = 20;
        let mut seen = self.seen.clone();
        seen.sort_by_key(|seen| seen.number);
        let mut text = match (self.wanted, seen.len()) {
            (_, 0) => return format!("{file}: no TCP connection with data; nothing to replay"),
            (Some(wanted), _) => format!("{file}: no connection {wanted} with data"),
            (None, count) => format!(
                "{file}: {} with data",
                number::counted(count as u64, "connection")
            ),
        };
        text += "; choose one with --connection N, of";
        for seen in seen.iter().take(MOST) {
            text += &format!("\n{seen}");
        }
        if seen.len() > MOST {
            text += &format!(
                "\nand {} more, see `pillion analyse --list`",
                seen.len() - MOST
            );
        }
        text
    }
}

/// The largest payload of one packet on any link in use.
const LARGEST_SEGMENT: u32 = 9216;

/// Puts together what was cut. A segment as large as the connection's are that lacks the PSH flag
/// was cut from a write that goes on (RFC 9293, section 3.9.1.2: PSH marks the end of one). A bundle
/// and a retransmission bring no more than their new bytes. Writes that TCP joined, as Nagle's
/// algorithm does, stay one.
fn join(mut segments: Vec<Segment>, mss: Option<u16>) -> Vec<Write> {
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
            Some((_, whole)) if goes_on_at == Some(segment.begin) && size <= MAX_SIZE - *whole => {
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

impl fmt::Display for Seen {
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

#[cfg(test)]
mod tests;
