//! State of each byte of a stream, in ranges of bytes with the same history.

mod deliver;
mod tracker;

use smallvec::SmallVec;

pub(crate) use tracker::Tracker;

/// Neighbouring bytes of one direction that were sent, acknowledged and delivered together.
///
/// A stream is divided as it was segmented. A copy, ACK or delivery of a part splits a range
/// (thesis, section 3.4.3: TCP may repacketise).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Position of the first byte. The first byte of a connection is 1; if the trace starts midway,
    /// it is the first byte seen.
    pub start: i64,
    /// Position after the last byte.
    pub end: i64,
    /// Transmissions of the range, in trace order; empty if not in the trace.
    pub copies: SmallVec<[SentCopy; 2]>,
    /// Time of the first ACK that covers the range.
    pub acked_ns: Option<i64>,
    /// Time of the first SACK block that covers the range, if before the ACK.
    pub sacked_ns: Option<i64>,
    /// The range's arrival in the receiver's trace.
    pub delivery: Option<Delivery>,
    pub(crate) ends_packet: bool,
    /// The receiver acknowledged the range, but its trace does not show the arrival.
    pub(crate) arrived_unseen: bool,
}

/// One transmission of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentCopy {
    /// Time by the clock of the trace at the stream's sender.
    pub at_ns: i64,
    /// [`Packet::number`](crate::Packet::number) in that trace.
    pub packet: u64,
    /// Kind of the packet.
    pub kind: CopyKind,
}

/// Why a packet carried a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// The range was new.
    New,
    /// The range was sent again, together with new bytes.
    Bundled,
    /// The range was sent again, without new bytes.
    Retransmission,
}

/// The first arrival of a range, by the clock of the receiver's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Arrival time at the transport layer.
    pub at_ns: i64,
    /// The packet that delivered it.
    pub first_arrival: FirstArrival,
    /// When the application could read it: all earlier bytes had arrived.
    pub readable: ReadTime,
    /// The missing byte that it waited for, if it waited: head-of-line blocking.
    pub waited_for: Option<i64>,
}

/// The packet that delivered a range first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstArrival {
    /// This copy, as an index into [`Range::copies`].
    Copy(u32),
    /// A packet that was joined or split on the path.
    Other,
    /// A packet missing in the sender's trace, or sent before it started. Any copies in the trace
    /// came later.
    Missed,
}

/// When an application could read bytes that had arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadTime {
    /// Not before the end of the traces: earlier bytes were missing.
    Never,
    /// At an unknown time: earlier bytes arrived, but the receiver's trace does not show when.
    Unknown,
    /// At this time, by the clock of the receiver's trace, in nanoseconds.
    At(i64),
}

impl Range {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.abs_diff(self.start)
    }

    /// Always false for ranges that an observer receives.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Time of the first transmission, if the trace shows it.
    #[must_use]
    pub fn first_sent_ns(&self) -> Option<i64> {
        let missed = |delivery: Delivery| delivery.first_arrival == FirstArrival::Missed;
        if self.delivery.is_some_and(missed) {
            return None;
        }
        self.copies.first().map(|copy| copy.at_ns)
    }

    /// ACK latency in nanoseconds: first transmission to the ACK that covers it (LCN 2015 paper,
    /// section IV.A).
    #[must_use]
    pub fn ack_latency_ns(&self) -> Option<i64> {
        Some(self.acked_ns?.saturating_sub(self.first_sent_ns()?))
    }

    /// Number of transmissions without a new byte.
    #[must_use]
    pub fn retransmissions(&self) -> usize {
        self.count(CopyKind::Retransmission)
    }

    /// Number of transmissions together with new bytes.
    #[must_use]
    pub fn bundled(&self) -> usize {
        self.count(CopyKind::Bundled)
    }

    fn count(&self, kind: CopyKind) -> usize {
        self.copies.iter().filter(|copy| copy.kind == kind).count()
    }

    /// Whether it was retransmitted without a new byte.
    pub(crate) fn was_retransmitted(&self) -> bool {
        let retransmitted = |copy: &SentCopy| copy.kind == CopyKind::Retransmission;
        self.copies.len() > 1 && self.copies.iter().any(retransmitted)
    }

    /// Transmission time of the only packet that ends where the range does. A bundle and its ACK
    /// extend beyond the bundled range; an ACK of a part of a packet answers another packet.
    pub(crate) fn unique_send_time_ns(&self) -> Option<i64> {
        match &self.copies[..] {
            _ if !self.ends_packet => None,
            [only] => Some(only.at_ns),
            [first, others @ ..] if first.kind == CopyKind::New => others
                .iter()
                .all(|copy| copy.kind == CopyKind::Bundled)
                .then_some(first.at_ns),
            _ => None,
        }
    }

    /// Splits the range at a position inside it. `self` becomes the first part.
    pub(crate) fn split_off(&mut self, at: i64) -> Self {
        let mut rest = self.clone();
        rest.start = at;
        self.end = at;
        self.ends_packet = false;
        rest
    }
}

impl Delivery {
    /// The copy that arrived first, as an index into [`Range::copies`], if known.
    #[must_use]
    pub fn copy(&self) -> Option<usize> {
        match self.first_arrival {
            FirstArrival::Copy(index) => Some(index as usize),
            FirstArrival::Other | FirstArrival::Missed => None,
        }
    }

    /// When the application could read it, if known.
    #[must_use]
    pub fn in_order_ns(&self) -> Option<i64> {
        match self.readable {
            ReadTime::At(ns) => Some(ns),
            ReadTime::Never | ReadTime::Unknown => None,
        }
    }

    /// Waiting time for earlier bytes, in nanoseconds; `None` if it waited to the end or the time
    /// is unknown.
    #[must_use]
    pub fn blocked_ns(&self) -> Option<i64> {
        Some(self.in_order_ns()?.saturating_sub(self.at_ns))
    }
}
