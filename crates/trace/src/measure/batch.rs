//! Events as the meter hands them to the ledger, many at a time.

use std::ops;

use super::ledger::seconds;
use super::measures::Measures;
use super::meter::Options;
use super::results::Single;
use crate::event::{Arrival, Fate, Passage, PathDirection};
use crate::link::hull::Hull;
use crate::{
    Acked, Arrived, Bringer, Class, Connection, CopyKind, Counts, Delivery, Direction, Endpoint,
    Outcome, Range, Sent, Side,
};

/// What a [`Meter`](super::Meter) was told, each kind apart: no measure depends on the order
/// between two kinds. Only what is measured is kept, for all of it goes from one core to another.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Both traces were taken by one clock.
    pub(super) one_clock: bool,
    pub(super) sent: Vec<Noted<Departure>>,
    pub(super) acked: Vec<Noted<Acknowledgement>>,
    pub(super) arrived: Vec<Noted<Arrived>>,
    pub(super) ranges: Vec<Noted<Extent>>,
    pub(super) fates: Vec<Noted<Transit>>,
    pub(super) finished: Vec<Finished>,
}

/// Something that happened to a connection.
#[derive(Debug)]
pub(super) struct Noted<T> {
    /// The connection's.
    pub(super) number: u64,
    /// When, since the first packet; of a range when its receiver could read it, if it could.
    pub(super) since_ns: i64,
    pub(super) what: T,
}

/// What is measured of a packet as it is sent.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) direction: Direction,
    pub(super) at_ns: i64,
    pub(super) class: Class,
    /// Position behind the payload.
    pub(super) end: i64,
    pub(super) payload_bytes: u32,
    pub(super) wire_bytes: u32,
    pub(super) in_flight: u32,
}

/// What is measured of an ACK.
#[derive(Debug)]
pub(super) struct Acknowledgement {
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    pub(super) rtt_ns: Option<i64>,
}

/// What is measured of a [`Range`].
#[derive(Debug)]
pub(super) struct Extent {
    pub(super) direction: Direction,
    /// Bytes.
    pub(super) len: u64,
    pub(super) first_sent_ns: Option<i64>,
    pub(super) ack_latency_ns: Option<i64>,
    /// How often it was sent with no new byte.
    pub(super) retransmissions: usize,
    pub(super) delivery: Option<Delivery>,
    /// The range arrived, and the receiver's trace does not show it.
    pub(super) arrived_unseen: bool,
    /// In what kind of packet the range arrived first.
    pub(super) brought_by: Option<CopyKind>,
    /// Whether its sender's trace shows it.
    pub(super) was_sent: bool,
    /// Whether there is a trace where it was to arrive that shows its connection.
    pub(super) has_receiver: bool,
}

/// What is measured of a [`Fate`].
#[derive(Debug)]
pub(super) struct Transit {
    pub(super) direction: Direction,
    pub(super) class: Class,
    pub(super) sent_ns: i64,
    /// Position behind the payload.
    pub(super) end: i64,
    pub(super) bytes: u64,
    pub(super) old_bytes: u64,
    pub(super) outcome: End,
}

/// How a packet's way ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Delivered {
        raw_delay_ns: i64,
    },
    /// The packet arrived; when is not known.
    Unseen,
    Lost,
    Unknown,
}

impl Departure {
    #[inline]
    pub(super) fn of(sent: &Sent) -> Self {
        Self {
            direction: sent.direction,
            at_ns: sent.at_ns,
            class: sent.class,
            end: sent.end,
            payload_bytes: u32::try_from(sent.begin.abs_diff(sent.end)).unwrap_or(u32::MAX),
            wire_bytes: sent.wire_bytes,
            in_flight: sent.in_flight,
        }
    }
}

impl Acknowledgement {
    #[inline]
    pub(super) fn of(acked: &Acked) -> Self {
        Self {
            direction: acked.direction,
            bytes: acked.bytes,
            rtt_ns: acked.rtt_ns,
        }
    }
}

impl Transit {
    #[inline]
    pub(super) fn of(fate: &Fate) -> Self {
        Self {
            direction: fate.direction,
            class: fate.class,
            sent_ns: fate.sent_ns,
            end: fate.end,
            bytes: fate.begin.abs_diff(fate.end),
            old_bytes: fate.old_bytes,
            outcome: match fate.arrival {
                Arrival::Delivered { at_ns, .. } => End::Delivered {
                    raw_delay_ns: at_ns.saturating_sub(fate.sent_ns),
                },
                Arrival::Unseen => End::Unseen,
                Arrival::Lost => End::Lost,
                Arrival::Unknown => End::Unknown,
            },
        }
    }
}

impl Extent {
    #[inline]
    pub(super) fn of(range: &Range, direction: Direction, has_receiver: bool) -> Self {
        let copy = range.delivery.and_then(|delivery| {
            match (&range.copies[..], delivery.bringer) {
                // It came in a packet that was joined or cut on the way, and nothing else carried
                // it.
                ([only], Bringer::Other) => Some(only),
                (copies, _) => copies.get(delivery.copy()?),
            }
        });
        Self {
            direction,
            len: range.len(),
            first_sent_ns: range.first_sent_ns(),
            ack_latency_ns: range.ack_latency_ns(),
            retransmissions: range.retransmissions(),
            delivery: range.delivery,
            arrived_unseen: range.arrived_unseen || range.acked_ns.is_some(),
            brought_by: copy.map(|copy| copy.kind),
            was_sent: !range.copies.is_empty(),
            has_receiver,
        }
    }
}

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
        trace_ns: &ops::Range<i64>,
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
    fn was_dropped(&self, test_ns: &ops::Range<i64>) -> bool {
        let until_ns = self.last_ns.min(test_ns.end);
        let lasted_ns = until_ns.saturating_sub(self.first_ns.max(test_ns.start));
        let whole_ns = test_ns.end.saturating_sub(test_ns.start);
        lasted_ns.saturating_mul(2) < whole_ns
    }
}
