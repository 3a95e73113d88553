use std::net::SocketAddr;

use ipnet::IpNet;
use pillion_trace::pair::Fate;
use pillion_trace::{Acked, Arrived, Connection, Direction, Endpoint, Observer, Range, Sent};

use crate::attach::parse_peer;

/// Which connections are looked at: those that fit each kind of condition given.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which connections")]
pub struct Choice {
    /// Those with an end at this address or in this network; may be repeated
    #[arg(long, value_name = "ADDRESS[/PREFIX]", value_parser = parse_peer)]
    address: Vec<IpNet>,

    /// Those with an end at this port; may be repeated
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,

    /// Those with this number in --list; may be repeated
    #[arg(long, value_name = "N")]
    connection: Vec<u64>,
}

impl Choice {
    fn takes(&self, connection: &Connection) -> bool {
        if self.address.is_empty() && self.port.is_empty() && self.connection.is_empty() {
            return true;
        }
        let fits = |end: Endpoint| {
            let end = SocketAddr::from(end);
            let network = |network: &IpNet| network.contains(&end.ip());
            (
                self.address.is_empty() || self.address.iter().any(network),
                self.port.is_empty() || self.port.contains(&end.port()),
            )
        };
        let (one, other) = (fits(connection.originator), fits(connection.responder));
        (one.0 || other.0)
            && (one.1 || other.1)
            && (self.connection.is_empty() || self.connection.contains(&connection.number))
    }
}

/// Tells an observer of chosen connections alone. They keep their numbers.
#[derive(Debug)]
pub struct Chosen<O> {
    pub choice: Choice,
    pub observer: O,
}

impl<O: Observer> Observer for Chosen<O> {
    fn clocks(&mut self, ahead_ns: i64) {
        self.observer.clocks(ahead_ns);
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
        if self.choice.takes(connection) {
            self.observer.finished(connection);
        }
    }
}
