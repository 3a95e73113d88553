use std::collections::HashSet;

use crate::connection::Connection;
use crate::packet::Endpoint;

/// Which hosts are at which trace, by their addresses at the sender's, as the connections tell that
/// both traces show.
#[derive(Debug, Default)]
pub(crate) struct Places {
    near: HashSet<[u8; 16]>,
    far: HashSet<[u8; 16]>,
}

impl Places {
    /// Says that packets from one end to another show first at the sender's trace.
    pub(crate) fn add(&mut self, from: Endpoint, to: Endpoint) {
        self.near.insert(from.address);
        self.far.insert(to.address);
    }

    /// 1 at the sender's trace, -1 at the receiver's, 0 if that is not known.
    fn nearness(&self, end: Endpoint) -> i8 {
        let (near, far) = (&self.near, &self.far);
        i8::from(near.contains(&end.address)) - i8::from(far.contains(&end.address))
    }

    /// Whether the originator is the end that is at the receiver's trace, or closer to it than the
    /// other.
    pub(crate) fn is_reversed(&self, connection: &Connection) -> bool {
        self.nearness(connection.originator) < self.nearness(connection.responder)
    }

    /// Whether its ends are hosts at either trace.
    pub(crate) fn are_ends_of(&self, connection: &Connection) -> bool {
        let ends = [connection.originator, connection.responder].map(|end| self.nearness(end));
        ends.contains(&1) && ends.contains(&-1)
    }
}
