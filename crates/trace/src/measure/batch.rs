//! Batches of samples from the meter to the ledger.

use crate::event::{Arrival, DeliveryStats, Disposition, PathDirection};
use crate::link::hull::Hull;
use crate::{
    ArrivedPacket, Class, Connection, ConnectionOutcome, CopyKind, Delivery, Direction,
    DirectionCounts, Endpoint, FirstArrival, Range, ReceivedAck, SentPacket, Side,
};

/// Events of a [`Meter`](super::Meter), one list per kind, because no measure depends on the order
/// between kinds. Contains only what is measured, because all of it moves between cores.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// One clock took both traces.
    pub(super) one_clock: bool,
    pub(super) sent: Vec<BatchEntry<SentSample>>,
    pub(super) acked: Vec<BatchEntry<AckSample>>,
    pub(super) arrived: Vec<BatchEntry<ArrivedPacket>>,
    pub(super) ranges: Vec<BatchEntry<RangeSample>>,
    pub(super) dispositions: Vec<BatchEntry<TransitSample>>,
    pub(super) finished: Vec<FinishedConnection>,
}

/// A sample of a connection.
#[derive(Debug)]
pub(super) struct BatchEntry<T> {
    /// The connection's number.
    pub(super) number: u64,
    /// Time since the first packet; of a range, when its receiver could read it, if known.
    pub(super) since_ns: i64,
    pub(super) sample: T,
}

/// Sample of a sent packet.
#[derive(Debug)]
pub(super) struct SentSample {
    pub(super) direction: Direction,
    pub(super) at_ns: i64,
    pub(super) class: Class,
    /// Position after the payload.
    pub(super) end: i64,
    pub(super) payload_bytes: u32,
    pub(super) wire_bytes: u32,
    pub(super) in_flight: u32,
}

/// Sample of an ACK.
#[derive(Debug)]
pub(super) struct AckSample {
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    pub(super) rtt_ns: Option<i64>,
}

/// Sample of a [`Range`].
#[derive(Debug)]
pub(super) struct RangeSample {
    pub(super) direction: Direction,
    /// Length in bytes.
    pub(super) len: u64,
    pub(super) first_sent_ns: Option<i64>,
    pub(super) ack_latency_ns: Option<i64>,
    /// Number of transmissions without a new byte.
    pub(super) retransmissions: usize,
    pub(super) delivery: Option<Delivery>,
    /// The range arrived, but not in the receiver's trace.
    pub(super) arrived_unseen: bool,
    /// The kind of packet in which the range first arrived.
    pub(super) delivered_by: Option<CopyKind>,
    /// Whether the sender's trace shows it.
    pub(super) was_sent: bool,
    /// Whether the receiver's trace shows its connection.
    pub(super) has_receiver: bool,
}

/// Sample of a [`Disposition`].
#[derive(Debug)]
pub(super) struct TransitSample {
    pub(super) direction: Direction,
    pub(super) class: Class,
    pub(super) sent_ns: i64,
    /// Position after the payload.
    pub(super) end: i64,
    pub(super) bytes: u64,
    pub(super) old_bytes: u64,
    pub(super) outcome: TransitResult,
}

/// Result of a packet's transit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransitResult {
    Delivered {
        raw_delay_ns: Option<i64>,
    },
    /// The packet arrived at an unknown time.
    Unseen,
    Lost,
    Unknown,
}

impl SentSample {
    #[inline]
    pub(super) fn new(sent: &SentPacket) -> Self {
        Self {
            direction: sent.direction,
            at_ns: sent.at_ns,
            class: sent.class,
            end: sent.end,
            payload_bytes: u32::try_from(sent.start.abs_diff(sent.end)).unwrap_or(u32::MAX),
            wire_bytes: sent.wire_bytes,
            in_flight: sent.in_flight,
        }
    }
}

impl AckSample {
    #[inline]
    pub(super) fn new(acked: &ReceivedAck) -> Self {
        Self {
            direction: acked.direction,
            bytes: acked.bytes,
            rtt_ns: acked.rtt_ns,
        }
    }
}

impl TransitSample {
    #[inline]
    pub(super) fn new(disposition: &Disposition) -> Self {
        Self {
            direction: disposition.direction,
            class: disposition.class,
            sent_ns: disposition.sent_ns,
            end: disposition.end,
            bytes: disposition.start.abs_diff(disposition.end),
            old_bytes: disposition.old_bytes,
            outcome: match disposition.arrival {
                Arrival::Delivered { .. } => TransitResult::Delivered {
                    raw_delay_ns: disposition.raw_delay_ns(),
                },
                Arrival::Unseen => TransitResult::Unseen,
                Arrival::Lost => TransitResult::Lost,
                Arrival::Unknown => TransitResult::Unknown,
            },
        }
    }
}

impl RangeSample {
    #[inline]
    pub(super) fn new(range: &Range, direction: Direction, has_receiver: bool) -> Self {
        let copy = range.delivery.and_then(|delivery| {
            match (&range.copies[..], delivery.first_arrival) {
                // It arrived in a joined or split packet, and no other packet carried it.
                ([only], FirstArrival::Other) => Some(only),
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
            delivered_by: copy.map(|copy| copy.kind),
            was_sent: !range.copies.is_empty(),
            has_receiver,
        }
    }
}

/// A connection at its end.
#[derive(Debug)]
pub(super) struct FinishedConnection {
    pub(super) info: ConnectionInfo,
    pub(super) totals: [DirectionTotals; 2],
}

/// Identity and handshake of a finished connection.
#[derive(Debug)]
pub(super) struct ConnectionInfo {
    pub(super) number: u64,
    pub(super) ends: [Endpoint; 2],
    pub(super) main: Direction,
    pub(super) ways: [PathDirection; 2],
    pub(super) lowest: [Hull; 2],
    pub(super) groups: Vec<usize>,
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) outcome: ConnectionOutcome,
    pub(super) syns: u32,
    pub(super) handshake_ns: Option<i64>,
    pub(super) only_at: Option<Side>,
}

/// A connection's own counters of one direction.
#[derive(Debug)]
pub(super) struct DirectionTotals {
    pub(super) counts: DirectionCounts,
    pub(super) duplicate_acks_received: u64,
    /// `None` if no other trace shows the connection.
    pub(super) delivery_stats: Option<DeliveryStats>,
    /// Time of the originator's first SYN since the first packet; `None` for the other direction.
    pub(super) opened_since_ns: Option<i64>,
    /// Whether any byte was sent, and all were acknowledged.
    pub(super) all_acked: bool,
}

impl FinishedConnection {
    /// `groups`: indices of its groups in the options. `opened_since_ns`: time of the first SYN
    /// since the first packet.
    pub(super) fn new(
        connection: &Connection,
        groups: Vec<usize>,
        opened_since_ns: Option<i64>,
    ) -> Self {
        let handshake = connection.handshake;
        let completed_ns = handshake.first_syn_ns.zip(handshake.completed_ns);
        let info = ConnectionInfo {
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
            DirectionTotals {
                counts: half.counts,
                duplicate_acks_received: peer.counts.duplicate_acks,
                delivery_stats: connection.delivery_stats(direction).copied(),
                opened_since_ns: opened_since_ns.filter(|_| direction == Direction::Forward),
                all_acked: half.is_all_acked(),
            }
        });
        Self { info, totals }
    }
}
