use std::collections::HashMap;
use std::net::SocketAddr;

use pillion_trace::{Connection, CopyKind, Direction, Observer, Range};

/// Of each sender of a stream, the segments that were lost and that a bundle brought after all:
/// what pillion is to find as hidden losses. Two traces show it.
#[derive(Debug, Default)]
pub struct Repairs(HashMap<SocketAddr, u64>);

impl Repairs {
    /// The number of such segments of the stream that comes from here.
    #[must_use]
    pub fn of(&self, sender: SocketAddr) -> u64 {
        self.0.get(&sender).copied().unwrap_or_default()
    }
}

impl Observer for Repairs {
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let first = range.delivery.and_then(|delivery| delivery.copy());
        let first = first.and_then(|copy| range.copies.get(copy));
        if first.is_some_and(|copy| copy.kind == CopyKind::Bundled) {
            let sender = match direction {
                Direction::Forward => connection.originator,
                Direction::Backward => connection.responder,
            };
            *self.0.entry(sender.into()).or_default() += 1;
        }
    }
}
