//! What the analysis tells of two traces, kept.

use std::collections::BTreeMap;

use pillion_trace::{Acked, Connection, Counts, Direction, Fate, Observer, Range, Sent};

/// All of it, by the number of the connection.
#[derive(Debug, Default)]
pub struct Told {
    pub connections: BTreeMap<u64, Both>,
}

/// One connection.
#[derive(Debug, Default)]
pub struct Both {
    /// From the client, from the server; the client's port is the higher one.
    pub ways: [One; 2],
}

/// One direction.
#[derive(Debug, Default)]
pub struct One {
    /// The sequence number of its first byte.
    pub first: Option<u32>,
    pub sent: Vec<Sent>,
    pub acked: Vec<Acked>,
    pub ranges: Vec<Range>,
    pub fates: Vec<Fate>,
    pub counts: Counts,
    pub duplicated: u64,
    pub unseen_bytes: u64,
    pub delivered_bytes: u64,
}

impl Told {
    fn one(&mut self, connection: &Connection, direction: Direction) -> &mut One {
        let sender = match direction {
            Direction::Forward => connection.originator,
            Direction::Backward => connection.responder,
        };
        let way = usize::from(sender.port < 1024);
        let both = self.connections.entry(connection.number).or_default();
        let one = &mut both.ways[way];
        one.first = connection.half_connection(direction).sequence_number(1);
        one
    }
}

impl Observer for Told {
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        self.one(connection, sent.direction).sent.push(*sent);
    }

    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        self.one(connection, acked.direction).acked.push(*acked);
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        self.one(connection, direction).ranges.push(range.clone());
    }

    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        self.one(connection, fate.direction).fates.push(*fate);
    }

    fn finished(&mut self, connection: &Connection) {
        for direction in Direction::BOTH {
            let half = connection.half_connection(direction);
            let one = self.one(connection, direction);
            one.counts = half.counts;
            if let Some(passage) = half.passage() {
                one.duplicated = passage.duplicated_packets;
                one.unseen_bytes = passage.unseen_bytes;
                one.delivered_bytes = passage.delivered_bytes;
            }
        }
    }
}
