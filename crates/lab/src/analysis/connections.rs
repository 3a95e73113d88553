//! Filters the connections of a trace, and lists them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use pillion_trace::{
    ArrivedPacket, ClockOffset, Connection, ConnectionOutcome, Direction, Disposition, Endpoint,
    Observer, Range, ReceivedAck, SentPacket,
};
use serde::Serialize;

/// A filter of connections. A connection has to match each kind of condition that is given; an
/// empty filter matches all.
#[derive(Debug, Clone, Default)]
pub struct ConnectionFilter {
    /// Networks that may contain either address.
    pub addresses: Vec<IpNet>,
    /// Ranges that may contain either port.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Connection numbers, counted from 1.
    pub connections: Vec<u64>,
}

impl ConnectionFilter {
    #[inline]
    fn matches(&self, connection: &Connection) -> bool {
        self.addresses.is_empty() && self.ports.is_empty() && self.connections.is_empty()
            || self.contains(connection)
    }

    fn contains(&self, connection: &Connection) -> bool {
        let matches_end = |end: Endpoint| {
            let network = |network: &IpNet| end.is_in(network);
            let port = |ports: &RangeInclusive<u16>| ports.contains(&end.port);
            (
                self.addresses.is_empty() || self.addresses.iter().any(network),
                self.ports.is_empty() || self.ports.iter().any(port),
            )
        };
        let (one, other) = (
            matches_end(connection.originator),
            matches_end(connection.responder),
        );
        (one.0 || other.0)
            && (one.1 || other.1)
            && (self.connections.is_empty() || self.connections.contains(&connection.number))
    }
}

/// An observer that passes on only the events of connections that match a filter. Connection
/// numbers do not change.
#[derive(Debug)]
pub struct FilteredObserver<O> {
    filter: ConnectionFilter,
    /// Numbers of the filter that no connection has had so far.
    unmatched_numbers: BTreeSet<u64>,
    /// The observer that receives the events.
    pub observer: O,
}

impl<O> FilteredObserver<O> {
    /// Passes the events of matching connections to `observer`.
    pub fn new(filter: ConnectionFilter, observer: O) -> Self {
        Self {
            unmatched_numbers: filter.connections.iter().copied().collect(),
            filter,
            observer,
        }
    }

    /// Returns the lowest number in the filter that no connection of the traces has. Call it after
    /// all connections have finished. A connection that fails another condition of the filter is
    /// not missing.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        self.unmatched_numbers.first().copied()
    }
}

impl<O: Observer> Observer for FilteredObserver<O> {
    fn clocks(&mut self, ahead: ClockOffset) {
        self.observer.clocks(ahead);
    }

    fn arrived(&mut self, connection: &Connection, arrived: &ArrivedPacket) {
        if self.filter.matches(connection) {
            self.observer.arrived(connection, arrived);
        }
    }

    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        if self.filter.matches(connection) {
            self.observer.sent(connection, sent);
        }
    }

    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        if self.filter.matches(connection) {
            self.observer.acked(connection, acked);
        }
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        if self.filter.matches(connection) {
            self.observer.range(connection, direction, range);
        }
    }

    fn disposition(&mut self, connection: &Connection, disposition: &Disposition) {
        if self.filter.matches(connection) {
            self.observer.disposition(connection, disposition);
        }
    }

    fn finished(&mut self, connection: &Connection) {
        self.unmatched_numbers.remove(&connection.number);
        if self.filter.matches(connection) {
            self.observer.finished(connection);
        }
    }
}

/// A summary of one connection.
#[derive(Debug, Clone, Serialize)]
pub struct ListedConnection {
    /// The connection's number, counted from 1.
    pub connection: u64,
    /// The end that opened the connection.
    pub opened_by: SocketAddr,
    /// The end that accepted the connection.
    pub to: SocketAddr,
    /// The time of the connection's first packet, in seconds since the trace's first.
    pub start_s: f64,
    /// The time from the connection's first packet to its last, in seconds.
    pub duration_s: f64,
    /// The result of the handshake.
    pub handshake: ConnectionOutcome,
    /// Packets from the end that opened the connection.
    pub there: ListedDirection,
    /// Packets from the other end.
    pub back: ListedDirection,
}

/// A summary of one direction of a connection.
#[derive(Debug, Clone, Serialize)]
pub struct ListedDirection {
    /// All packets that were sent.
    pub packets: u64,
    /// Payload bytes, without those sent again.
    pub new_bytes: u64,
    /// Packets with both new and old bytes.
    pub bundled_packets: u64,
    /// Packets with only old bytes.
    pub retransmitted_packets: u64,
    /// Packets lost in transit; known only with a receiver's trace that shows the connection.
    pub lost_packets: Option<u64>,
}

/// An observer that lists all connections, each with its start time in nanoseconds since 1970.
#[derive(Debug, Default)]
pub struct ConnectionList(Vec<(i64, ListedConnection)>);

impl ConnectionList {
    /// Returns all connections by number. `start_ns` is the start of the trace, in nanoseconds
    /// since 1970.
    #[must_use]
    pub fn finish(self, start_ns: i64) -> Vec<ListedConnection> {
        let seconds_since_start = |at_ns: i64| at_ns.saturating_sub(start_ns) as f64 / 1e9;
        let connections = self
            .0
            .into_iter()
            .map(|(first_ns, listed)| ListedConnection {
                start_s: seconds_since_start(first_ns),
                ..listed
            });
        let mut connections: Vec<ListedConnection> = connections.collect();
        connections.sort_by_key(|listed| listed.connection);
        connections
    }
}

impl Observer for ConnectionList {
    fn finished(&mut self, connection: &Connection) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let listed = ListedConnection {
            connection: connection.number,
            opened_by: connection.originator.into(),
            to: connection.responder.into(),
            start_s: 0.0,
            duration_s: seconds(connection.duration_ns()),
            handshake: connection.outcome(),
            there: ListedDirection::new(connection, Direction::Forward),
            back: ListedDirection::new(connection, Direction::Backward),
        };
        self.0.push((connection.first_ns, listed));
    }
}

impl ListedDirection {
    fn new(connection: &Connection, direction: Direction) -> Self {
        let half = connection.half_connection(direction);
        let delivery_stats = connection.delivery_stats(direction);
        Self {
            packets: half.counts.packets,
            new_bytes: half.counts.new_bytes,
            bundled_packets: half.counts.bundled_packets,
            retransmitted_packets: half.counts.retransmitted_packets,
            lost_packets: delivery_stats.map(|delivery_stats| delivery_stats.lost_packets),
        }
    }
}
