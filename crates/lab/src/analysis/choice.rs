use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use pillion_trace::{
    Acked, Ahead, Arrived, Connection, Direction, Endpoint, Fate, Observer, Range, Sent,
};

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
