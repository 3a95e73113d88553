//! The writes of an application, as the trace of its connection shows them.

mod error;
mod join;

use std::fmt;

use pillion_stats::report::number;
use pillion_trace::{Connection, Direction, Endpoint, Observer, Sent};

pub use error::WritesError;
pub use join::Write;
use join::{Segment, join};

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

#[cfg(test)]
mod tests;
