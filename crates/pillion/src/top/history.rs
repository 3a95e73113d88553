//! What a connection did in the last rounds.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use pillion_bpf::{Flow, Outcome};

use crate::flows::Connection;

/// How many rounds are remembered of a connection.
const ROUNDS: usize = 240;

/// A connection among all that are there.
pub type Id = (Option<u32>, SocketAddr, SocketAddr);

pub fn id(flow: &Flow) -> Id {
    (flow.netns, flow.local, flow.peer)
}

/// What was seen of a connection in a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// Smoothed RTT, microseconds.
    pub rtt_us: u64,
    /// New segments since the round before.
    pub segments: u64,
    /// Of these, those with a bundle.
    pub bundled: u64,
    /// Packets retransmitted, and losses hidden, since then.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub struct History {
    of: HashMap<Id, (Totals, VecDeque<Round>)>,
}

/// Segments, those bundled, and what was lost, since the connection began.
#[derive(Debug, Clone, Copy)]
struct Totals([u64; 3]);

impl From<&Flow> for Totals {
    fn from(flow: &Flow) -> Self {
        let lost = u64::from(flow.retransmitted) + flow.counters.hidden_losses;
        let counters = &flow.counters;
        Self([counters.segments(), counters.of(Outcome::Bundled), lost])
    }
}

impl History {
    /// Takes note of a round; what has ended is forgotten.
    pub fn take(&mut self, connections: &[Connection]) {
        let mut before = std::mem::take(&mut self.of);
        for flow in connections.iter().map(|it| &it.flow) {
            let now = Totals::from(flow);
            let known = before.remove(&id(flow));
            let (last, mut rounds) = known.unwrap_or((now, VecDeque::new()));
            // Another connection of the same endpoints begins anew.
            let since = |place: usize| now.0[place].saturating_sub(last.0[place]);
            if rounds.len() == ROUNDS {
                rounds.pop_front();
            }
            rounds.push_back(Round {
                rtt_us: flow.srtt_us.unwrap_or(0).into(),
                segments: since(0),
                bundled: since(1),
                lost: since(2),
            });
            self.of.insert(id(flow), (now, rounds));
        }
    }

    /// The rounds of a connection, the oldest first.
    pub fn of(&self, id: &Id) -> impl Iterator<Item = &Round> {
        self.of.get(id).into_iter().flat_map(|(_, rounds)| rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::example;

    #[test]
    fn rounds_have_what_came_since_the_one_before() {
        let mut history = History::default();
        let mut connection = example(5001);
        history.take(&[connection.clone()]);
        connection
            .flow
            .counters
            .outcomes
            .insert(Outcome::Bundled, 7);
        connection.flow.retransmitted += 2;
        history.take(&[connection.clone()]);
        let rounds: Vec<_> = history.of(&id(&connection.flow)).copied().collect();
        assert_eq!(rounds.len(), 2);
        assert_eq!((rounds[1].bundled, rounds[1].lost), (7, 2));
        assert_eq!(rounds[0].segments, 0);
        history.take(&[]);
        assert_eq!(history.of(&id(&connection.flow)).count(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut history = History::default();
        let connection = [example(5001)];
        for _ in 0..ROUNDS + 10 {
            history.take(&connection);
        }
        assert_eq!(history.of(&id(&connection[0].flow)).count(), ROUNDS);
    }
}
