use crate::connection::{Connection, Direction};
use crate::pair::Fate;
use crate::ranges::Range;

/// Is told what the analysis finds, as soon as it is certain. All methods do nothing unless
/// implemented.
///
/// Of each connection come first its packets and ACKs in the order of the trace, each byte range
/// once it is finished, and at the end the connection itself, with all that was counted.
pub trait Observer {
    /// By how much the clock of the trace at the receiver is ahead of the other; told before all
    /// else, and whenever a better estimate is known. Of one trace it is never told.
    fn clocks(&mut self, ahead: Ahead) {
        let _ = ahead;
    }

    /// A packet left its sender.
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        let _ = (connection, sent);
    }

    /// A packet reached its receiver, whether or not its sender's trace shows it. Of one trace it
    /// is never told.
    fn arrived(&mut self, connection: &Connection, arrived: &Arrived) {
        let _ = (connection, arrived);
    }

    /// An ACK reached the sender of what it acknowledges.
    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        let _ = (connection, acked);
    }

    /// All is known of a range of bytes; ranges come in order of position.
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let _ = (connection, direction, range);
    }

    /// The fate of a packet between the traces at the sender and at the receiver; the fates of
    /// one direction come in the order of sending.
    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        let _ = (connection, fate);
    }

    /// No more will come of a connection; its ranges have been shown.
    fn finished(&mut self, connection: &Connection) {
        let _ = connection;
    }
}

/// By how much the clock of the trace at the receiver is ahead of the one at the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Both are the same clock.
    Never,
    /// About so many nanoseconds.
    About(i64),
}

/// A packet as its sender's trace shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The packet's direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number).
    pub packet: u64,
    /// When it was captured, in nanoseconds since 1970.
    pub at_ns: i64,
    /// What the packet was for.
    pub class: Class,
    /// The packet's PSH flag: the sender had no more to send at that time.
    pub push: bool,
    /// Position of the packet's first byte of payload.
    pub begin: i64,
    /// Position behind the packet's payload.
    pub end: i64,
    /// Bytes never sent before.
    pub new_bytes: u64,
    /// Bytes sent before.
    pub old_bytes: u64,
    /// The packet's size on the wire with link header, in bytes.
    pub wire_bytes: u32,
    /// Packets with new bytes that were sent before it and not acknowledged.
    pub in_flight: u32,
    /// Bytes that were sent before it and not acknowledged.
    pub bytes_in_flight: u64,
}

/// What a packet was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// New bytes alone.
    New,
    /// New bytes, and some that were sent before.
    Bundled,
    /// Bytes that were sent before, alone.
    Retransmission {
        /// 1 if none of the bytes had been sent more than once, 2 if some had been sent twice,
        /// and so on, bundled copies counted as well; 0 if the copies before it are not known:
        /// they were acknowledged, or were sent before the trace began.
        nth: u32,
    },
    /// A probe of an idle connection.
    KeepAlive,
    /// A probe of a closed window.
    WindowProbe,
    /// No payload.
    Control,
}

/// A packet as the trace at its receiver shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// The packet's direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number) in that trace.
    pub packet: u64,
    /// When it was captured there, by that trace's clock.
    pub at_ns: i64,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// The packet's size on the wire with link header, in bytes.
    pub wire_bytes: u32,
}

/// An ACK as the trace shows it at the sender of what it acknowledges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acked {
    /// The direction of what the ACK acknowledges; the ACK itself went the other way.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number).
    pub packet: u64,
    /// When it was captured, in nanoseconds since 1970.
    pub at_ns: i64,
    /// All before this position is acknowledged.
    pub position: i64,
    /// Bytes that it acknowledged first.
    pub bytes: u64,
    /// Bytes that its SACK blocks covered first.
    pub sacked_bytes: u64,
    /// A duplicate ACK: of RFC 5681, section 2; if it has SACK blocks, of RFC 6675, section 2, one
    /// that reports bytes, or the FIN, which no block had reported.
    pub duplicate: bool,
    /// Bytes that it says came twice (RFC 2883), by position.
    pub dsack: Option<(i64, i64)>,
    /// The time since the last packet was sent that it acknowledged, in nanoseconds, if that
    /// was sent only once and was not bundled.
    pub rtt_ns: Option<i64>,
}

impl Class {
    /// Whether it is new, bundled or retransmitted payload; a probe's is none.
    #[must_use]
    pub fn carries_data(self) -> bool {
        matches!(
            self,
            Self::New | Self::Bundled | Self::Retransmission { .. }
        )
    }
}

impl Observer for () {}
