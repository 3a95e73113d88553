//! How long what was written waits in its sender before TCP sends it (LCN 2015, section IV.A, which
//! could not measure it).

use std::collections::HashMap;
use std::net::SocketAddr;

use pillion_trace::{Connection, Direction, Observer, Sent};

/// When each byte of each stream was first sent, as the trace at the senders shows it.
#[derive(Debug, Default)]
pub struct FirstSendings(HashMap<SocketAddr, Vec<FirstSending>>);

/// A packet with bytes that were never sent before.
#[derive(Debug, Clone, Copy)]
struct FirstSending {
    /// Bytes of the stream up to its last one.
    end: u64,
    at_ns: i64,
}

impl FirstSendings {
    /// When the last of a stream's first bytes, so many, was first sent, in nanoseconds since 1970;
    /// `None` if the trace does not show it.
    #[must_use]
    pub fn of(&self, sender: SocketAddr, bytes: u64) -> Option<i64> {
        let sendings = self.0.get(&sender)?;
        let place = sendings.partition_point(|it| it.end < bytes);
        sendings.get(place).map(|it| it.at_ns)
    }
}

#[cfg(test)]
impl FirstSendings {
    /// Of packets of one stream: where each ends, in bytes of the stream, and when it was sent.
    pub(super) fn of_packets(sender: SocketAddr, packets: &[(u64, i64)]) -> Self {
        let packets = packets.iter();
        let sendings = packets.map(|&(end, at_ns)| FirstSending { end, at_ns });
        Self(HashMap::from([(sender, sendings.collect())]))
    }
}

impl Observer for FirstSendings {
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        if sent.new_bytes == 0 {
            return;
        }
        let sender = match sent.direction {
            Direction::Forward => connection.originator,
            Direction::Backward => connection.responder,
        };
        // The SYN stands at position 0.
        let end = u64::try_from(sent.end - 1).unwrap_or_default();
        let at_ns = sent.at_ns;
        let sendings = self.0.entry(sender.into()).or_default();
        sendings.push(FirstSending { end, at_ns });
    }
}
