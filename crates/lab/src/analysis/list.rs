use std::net::SocketAddr;

use pillion_trace::{Connection, Direction, Observer, Outcome};
use serde::Serialize;

/// A connection, in short.
#[derive(Debug, Clone, Serialize)]
pub struct Listed {
    /// The connection's number, 1 for the first in the trace.
    pub connection: u64,
    /// Who opened it.
    pub opened_by: SocketAddr,
    /// The end that it was opened to.
    pub to: SocketAddr,
    /// The connection's first packet, in seconds since the trace's first.
    pub begin_s: f64,
    /// From the connection's first packet to its last, in seconds.
    pub duration_s: f64,
    /// What became of the attempt to connect.
    pub handshake: Outcome,
    /// What was sent by who opened it.
    pub there: ListedDirection,
    /// What the other end sent.
    pub back: ListedDirection,
}

/// One direction of a connection, in short.
#[derive(Debug, Clone, Serialize)]
pub struct ListedDirection {
    /// All packets that were sent.
    pub packets: u64,
    /// Bytes of payload, sent for the first time.
    pub new_bytes: u64,
    /// Packets with new and old bytes.
    pub bundled_packets: u64,
    /// Packets with old bytes alone.
    pub retransmitted_packets: u64,
    /// Packets that were lost on the way; only with a trace at the receiver that shows it.
    pub lost_packets: Option<u64>,
}

/// Lists all connections. Each comes with its beginning, in nanoseconds since 1970.
#[derive(Debug, Default)]
pub struct List(Vec<(i64, Listed)>);

impl List {
    /// All connections by number, of a trace that begins then, in nanoseconds since 1970.
    #[must_use]
    pub fn finish(self, begin_ns: i64) -> Vec<Listed> {
        let since = |at_ns: i64| at_ns.saturating_sub(begin_ns) as f64 / 1e9;
        let connections = self.0.into_iter().map(|(first_ns, listed)| Listed {
            begin_s: since(first_ns),
            ..listed
        });
        let mut connections: Vec<Listed> = connections.collect();
        connections.sort_by_key(|listed| listed.connection);
        connections
    }
}

impl Observer for List {
    fn finished(&mut self, connection: &Connection) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let listed = Listed {
            connection: connection.number,
            opened_by: connection.originator.into(),
            to: connection.responder.into(),
            begin_s: 0.0,
            duration_s: seconds(connection.duration_ns()),
            handshake: connection.outcome(),
            there: ListedDirection::of(connection, Direction::Forward),
            back: ListedDirection::of(connection, Direction::Backward),
        };
        self.0.push((connection.first_ns, listed));
    }
}

impl ListedDirection {
    fn of(connection: &Connection, direction: Direction) -> Self {
        let half = connection.half_connection(direction);
        let passage = connection.passage(direction);
        Self {
            packets: half.counts.packets,
            new_bytes: half.counts.new_bytes,
            bundled_packets: half.counts.bundled_packets,
            retransmitted_packets: half.counts.retransmitted_packets,
            lost_packets: passage.map(|passage| passage.lost_packets),
        }
    }
}
