use super::finished::Finished;
use crate::pair::{Arrival, Fate};
use crate::{Acked, Arrived, Bringer, Class, CopyKind, Delivery, Direction, Range, Sent};

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
