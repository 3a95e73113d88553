//! Connections of a trace: which are chosen, and a list of them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use pillion_trace::{
    Acked, Ahead, Arrived, Connection, Direction, Endpoint, Fate, Observer, Outcome, Range, Sent,
};
use serde::Serialize;

/// The connections that are looked at: those that fit each kind of condition given. Without any, all.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Those with an end at one of these addresses.
    pub addresses: Vec<IpNet>,
    /// Those with an end at one of these ports.
    pub ports: Vec<RangeInclusive<u16>>,
    /// Those with one of these numbers.
    pub connections: Vec<u64>,
}

impl Choice {
    fn takes(&self, connection: &Connection) -> bool {
        if self.addresses.is_empty() && self.ports.is_empty() && self.connections.is_empty() {
            return true;
        }
        let fits = |end: Endpoint| {
            let end = SocketAddr::from(end);
            let network = |network: &IpNet| network.contains(&end.ip());
            let port = |ports: &RangeInclusive<u16>| ports.contains(&end.port());
            (
                self.addresses.is_empty() || self.addresses.iter().any(network),
                self.ports.is_empty() || self.ports.iter().any(port),
            )
        };
        let (one, other) = (fits(connection.originator), fits(connection.responder));
        (one.0 || other.0)
            && (one.1 || other.1)
            && (self.connections.is_empty() || self.connections.contains(&connection.number))
    }
}

/// Tells an observer of chosen connections alone. They keep their numbers.
#[derive(Debug)]
pub struct Chosen<O> {
    choice: Choice,
    /// Numbers that were chosen, and that no connection has had so far.
    unseen: BTreeSet<u64>,
    /// Who is told.
    pub observer: O,
}

impl<O> Chosen<O> {
    /// Tells `observer` of the connections that fit this choice.
    pub fn new(choice: Choice, observer: O) -> Self {
        Self {
            unseen: choice.connections.iter().copied().collect(),
            choice,
            observer,
        }
    }

    /// The lowest number that was chosen and that no connection of the traces has, once all have
    /// finished. One whose connection does not fit the choice otherwise is not missing.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        self.unseen.first().copied()
    }
}

impl<O: Observer> Observer for Chosen<O> {
    fn clocks(&mut self, ahead: Ahead) {
        self.observer.clocks(ahead);
    }

    fn arrived(&mut self, connection: &Connection, arrived: &Arrived) {
        if self.choice.takes(connection) {
            self.observer.arrived(connection, arrived);
        }
    }

    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        if self.choice.takes(connection) {
            self.observer.sent(connection, sent);
        }
    }

    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        if self.choice.takes(connection) {
            self.observer.acked(connection, acked);
        }
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        if self.choice.takes(connection) {
            self.observer.range(connection, direction, range);
        }
    }

    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        if self.choice.takes(connection) {
            self.observer.fate(connection, fate);
        }
    }

    fn finished(&mut self, connection: &Connection) {
        self.unseen.remove(&connection.number);
        if self.choice.takes(connection) {
            self.observer.finished(connection);
        }
    }
}

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
