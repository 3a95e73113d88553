//! What became of each byte of a stream, in ranges of bytes that shared one fate.

mod deliver;
mod tracker;

use smallvec::SmallVec;

pub(crate) use tracker::Tracker;

/// Neighbouring bytes of one direction that were sent, acknowledged and delivered together.
///
/// A stream falls into ranges as it was cut into segments; a copy, an acknowledgement or a
/// delivery of a part cuts a range in two (thesis, section 3.4.3: TCP may repacketise).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// Position of the first byte; the first byte of a connection stands at 1, or, where the
    /// trace begins in its middle, the first one seen.
    pub begin: i64,
    /// Position behind the last byte.
    pub end: i64,
    /// Each time the range was sent, in the order of the trace; none if the trace misses it.
    pub copies: SmallVec<[Copy; 2]>,
    /// When an ACK came that covers the range.
    pub acked_ns: Option<i64>,
    /// When a SACK block came that covers the range, if that was before the ACK.
    pub sacked_ns: Option<i64>,
    /// The range's arrival in the receiver's trace.
    pub delivery: Option<Delivery>,
    pub(crate) ends_packet: bool,
    /// The range arrived, for the receiver acknowledged it; its trace does not show when.
    pub(crate) arrived_unseen: bool,
}

/// One time that a range was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// When, by the clock of the trace at the stream's sender.
    pub at_ns: i64,
    /// [`Packet::number`](crate::Packet::number) in that trace.
    pub packet: u64,
    /// In what kind of packet.
    pub kind: CopyKind,
}

/// Why a packet carried a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyKind {
    /// The range was new.
    New,
    /// The range rode along with new bytes.
    Bundled,
    /// The range was sent again, with no new byte.
    Retransmission,
}

/// The first arrival of a range, by the clock of the receiver's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// When it reached the transport layer.
    pub at_ns: i64,
    /// What brought it.
    pub bringer: Bringer,
    /// When the application could read it: all bytes before it were there.
    pub readable: Readable,
    /// The missing byte that it had to wait for, if it had to wait: head-of-line blocking.
    pub behind: Option<i64>,
}

/// The packet that brought a range first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bringer {
    /// This copy, as an index into [`Range::copies`].
    Copy(u32),
    /// One that is none of those sent, as segments are that were joined or cut on the way.
    Other,
    /// One that the sender's trace misses or that was sent before it began: the copies that it
    /// shows came later, if there are any.
    Missed,
}

/// When an application could read bytes that had arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readable {
    /// Never, as far as the traces go: bytes before them were missing to the end.
    Never,
    /// At a time that is not known: bytes before them arrived, and the receiver's trace does not
    /// show when.
    Unknown,
    /// At this time, by the clock of the receiver's trace, in nanoseconds.
    At(i64),
}

impl Range {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.end.abs_diff(self.begin)
    }

    /// Never so for a range that an observer is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// When it was first sent, if the trace shows it.
    #[must_use]
    pub fn first_sent_ns(&self) -> Option<i64> {
        let missed = |delivery: Delivery| delivery.bringer == Bringer::Missed;
        if self.delivery.is_some_and(missed) {
            return None;
        }
        self.copies.first().map(|copy| copy.at_ns)
    }

    /// From the first time that it was sent to the ACK that covers it: the ACK latency of the
    /// LCN 2015 paper, section IV.A, in nanoseconds.
    #[must_use]
    pub fn ack_latency_ns(&self) -> Option<i64> {
        Some(self.acked_ns?.saturating_sub(self.first_sent_ns()?))
    }

    /// How often it was sent with no new byte.
    #[must_use]
    pub fn retransmissions(&self) -> usize {
        self.count(CopyKind::Retransmission)
    }

    /// How often it rode along with new bytes.
    #[must_use]
    pub fn bundled(&self) -> usize {
        self.count(CopyKind::Bundled)
    }

    fn count(&self, kind: CopyKind) -> usize {
        self.copies.iter().filter(|copy| copy.kind == kind).count()
    }

    /// Whether it was sent again with no new byte.
    pub(crate) fn was_retransmitted(&self) -> bool {
        let again = |copy: &Copy| copy.kind == CopyKind::Retransmission;
        self.copies.len() > 1 && self.copies.iter().any(again)
    }

    /// When the only packet was sent that ends where the range does. A bundle goes on beyond what
    /// rides along, and an ACK of it as well; an ACK of a part of a packet answers another one.
    pub(crate) fn sent_to_its_end_ns(&self) -> Option<i64> {
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

    /// Cuts it at a position inside it; itself is left with the first part.
    pub(crate) fn split_off(&mut self, at: i64) -> Self {
        let mut rest = self.clone();
        rest.begin = at;
        self.end = at;
        self.ends_packet = false;
        rest
    }
}

impl Delivery {
    /// The copy that came first, as an index into [`Range::copies`], if it is known.
    #[must_use]
    pub fn copy(&self) -> Option<usize> {
        match self.bringer {
            Bringer::Copy(index) => Some(index as usize),
            Bringer::Other | Bringer::Missed => None,
        }
    }

    /// When the application could read it, if that is known.
    #[must_use]
    pub fn in_order_ns(&self) -> Option<i64> {
        match self.readable {
            Readable::At(ns) => Some(ns),
            Readable::Never | Readable::Unknown => None,
        }
    }

    /// How long it waited for bytes before it, in nanoseconds; none if it waited to the end, or
    /// if it is not known how long.
    #[must_use]
    pub fn blocked_ns(&self) -> Option<i64> {
        Some(self.in_order_ns()?.saturating_sub(self.at_ns))
    }
}
