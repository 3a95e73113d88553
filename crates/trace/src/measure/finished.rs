use std::ops::Range;

use super::ledger::seconds;
use super::measures::Measures;
use super::meter::Options;
use super::results::Single;
use crate::pair::{Hull, Passage, PathDirection};
use crate::{Connection, Counts, Direction, Endpoint, Outcome, Side};

/// A connection at its end.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) known: Known,
    pub(super) totals: [Total; 2],
}

/// What is left to know of it, besides measures.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) number: u64,
    ends: [Endpoint; 2],
    main: Direction,
    pub(super) ways: [PathDirection; 2],
    pub(super) lowest: [Hull; 2],
    pub(super) groups: Vec<usize>,
    first_ns: i64,
    last_ns: i64,
    outcome: Outcome,
    syns: u32,
    handshake_ns: Option<i64>,
    only_at: Option<Side>,
}

/// What a connection counted itself, of one direction.
#[derive(Debug)]
pub(super) struct Total {
    pub(super) counts: Counts,
    pub(super) duplicate_acks_received: u64,
    /// None where there is no other trace, or where it does not show the connection.
    pub(super) passage: Option<Passage>,
    /// When its sender began to open the connection, since the first packet; none of the other
    /// direction.
    pub(super) opened_since_ns: Option<i64>,
    /// Whether anything was sent, and all of it acknowledged.
    pub(super) all_acked: bool,
}

impl Finished {
    /// `groups`: those that it belongs to, by their places among the options; `opened_since_ns`:
    /// when the first SYN was sent, since the first packet.
    pub(super) fn of(
        connection: &Connection,
        groups: Vec<usize>,
        opened_since_ns: Option<i64>,
    ) -> Self {
        let handshake = connection.handshake;
        let completed_ns = handshake.first_syn_ns.zip(handshake.completed_ns);
        let known = Known {
            number: connection.number,
            ends: [connection.originator, connection.responder],
            main: connection.main_direction(),
            ways: Direction::BOTH.map(|direction| connection.path_direction(direction)),
            lowest: Direction::BOTH.map(|direction| connection.half_connection(direction).lowest()),
            groups,
            first_ns: connection.first_ns,
            last_ns: connection.last_ns,
            outcome: connection.outcome(),
            syns: handshake.syns,
            handshake_ns: completed_ns.map(|(first, completed)| completed.saturating_sub(first)),
            only_at: connection.only_at(),
        };
        let totals = Direction::BOTH.map(|direction| {
            let half = connection.half_connection(direction);
            let peer = connection.half_connection(direction.reverse());
            Total {
                counts: half.counts,
                duplicate_acks_received: peer.counts.duplicate_acks,
                passage: connection.passage(direction).copied(),
                opened_since_ns: opened_since_ns.filter(|_| direction == Direction::Forward),
                all_acked: half.is_all_acked(),
            }
        });
        Self { known, totals }
    }
}

impl Known {
    /// What is told of it. `trace_ns`: from the first packet of what is measured to the last.
    pub(super) fn single(
        &self,
        measures: [Measures; 2],
        options: &Options,
        trace_ns: &Range<i64>,
    ) -> Single {
        let [forward, backward] = measures;
        let [originator, responder] = self.ends;
        let opened_by_sender = self.main == Direction::Forward;
        let (main, back, sender, receiver) = if opened_by_sender {
            (forward, backward, originator, responder)
        } else {
            (backward, forward, responder, originator)
        };
        let groups = self.groups.iter().map(|&group| &options.groups[group].name);
        let groups: Vec<String> = groups.cloned().collect();
        let by_group = |name: &String| {
            let optima = &mut options.optimum_of_group.iter();
            optima.find(|(group, _)| group == name).map(|found| found.1)
        };
        let begin_ns = trace_ns.start;
        let trace_s = seconds(trace_ns.end.saturating_sub(begin_ns));
        // One that was open before the part that is measured counts from that on.
        let first_ns = self.first_ns.max(begin_ns);
        let carried_bits = main.carried_wire_bytes as f64 * 8.0;
        Single {
            number: self.number,
            sender,
            receiver,
            opened_by_sender,
            begin_s: seconds(first_ns.saturating_sub(begin_ns)),
            duration_s: seconds(self.last_ns.saturating_sub(first_ns)),
            outcome: self.outcome,
            only_at: self.only_at,
            syns: self.syns,
            handshake_ms: self.handshake_ns.map(|ns| ns as f64 / 1e6),
            throughput_bit_per_s: if trace_s > 0.0 {
                carried_bits / trace_s
            } else {
                0.0
            },
            optimum_bit_per_s: groups
                .iter()
                .find_map(by_group)
                .or(options.optimum_bit_per_s),
            groups,
            main,
            back,
            dropped: self.was_dropped(options.test_ns.as_ref().unwrap_or(trace_ns)),
        }
    }

    /// Whether it was there for less than half of a test (thesis, table 4.1).
    fn was_dropped(&self, test_ns: &Range<i64>) -> bool {
        let until_ns = self.last_ns.min(test_ns.end);
        let lasted_ns = until_ns.saturating_sub(self.first_ns.max(test_ns.start));
        let whole_ns = test_ns.end.saturating_sub(test_ns.start);
        lasted_ns.saturating_mul(2) < whole_ns
    }
}
