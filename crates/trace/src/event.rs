//! Events that the analysis reports, and their terms.

use std::ops::AddAssign;

use serde::Serialize;

/// One of the two directions of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the originator to the responder.
    Forward,
    /// From the responder to the originator.
    Backward,
}

impl Direction {
    /// Both directions, forward first.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];

    /// The opposite direction.
    #[must_use]
    #[inline]
    pub fn reverse(self) -> Self {
        match self {
            Self::Forward => Self::Backward,
            Self::Backward => Self::Forward,
        }
    }
}

/// A direction of the path between the two traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathDirection {
    /// From the host at the sender's trace to the one at the receiver's.
    ToReceiver,
    /// From the host at the receiver's trace to the one at the sender's.
    ToSender,
}

/// One of two traces, or its end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// At the sender, or the only trace.
    Sender,
    /// At the receiver.
    Receiver,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Receiver,
            Self::Receiver => Self::Sender,
        }
    }
}

/// Offset of the clock of the receiver's trace from that of the sender's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOffset {
    /// One clock took both traces.
    SameClock,
    /// The receiver's clock is ahead by about this many nanoseconds.
    Estimated(i64),
}

/// A packet in the trace at its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentPacket {
    /// The packet's direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number).
    pub packet: u64,
    /// Capture time, in nanoseconds since 1970.
    pub at_ns: i64,
    /// Purpose of the packet.
    pub class: Class,
    /// The packet's PSH flag: the sender had no more data at that time.
    pub push: bool,
    /// Position of the packet's first byte of payload.
    pub start: i64,
    /// Position after the packet's payload.
    pub end: i64,
    /// Bytes sent for the first time.
    pub new_bytes: u64,
    /// Bytes that had been sent before.
    pub old_bytes: u64,
    /// The packet's size on the wire with link header, in bytes.
    pub wire_bytes: u32,
    /// Packets with new bytes sent earlier and not yet acknowledged.
    pub in_flight: u32,
    /// Bytes sent earlier and not yet acknowledged.
    pub bytes_in_flight: u64,
}

/// Purpose of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Only new bytes.
    New,
    /// New bytes, and bytes sent before.
    Bundled,
    /// Only bytes sent before.
    Retransmission {
        /// 1 if none of the bytes had been sent more than once, 2 if some had been sent twice, and
        /// so on; bundled copies count as well. 0 if earlier copies are unknown: acknowledged, or
        /// sent before the trace started.
        nth: u32,
    },
    /// A probe of an idle connection.
    KeepAlive,
    /// A probe of a closed window.
    WindowProbe,
    /// No payload.
    Control,
}

/// A packet in the trace at its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedPacket {
    /// The packet's direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number) in that trace.
    pub packet: u64,
    /// Capture time by that trace's clock.
    pub at_ns: i64,
    /// Bytes of payload.
    pub payload_bytes: u32,
    /// The packet's size on the wire with link header, in bytes.
    pub wire_bytes: u32,
}

/// An ACK in the trace at the sender of the acknowledged data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedAck {
    /// The direction of the acknowledged data; the ACK itself has the opposite direction.
    pub direction: Direction,
    /// [`Packet::number`](crate::Packet::number).
    pub packet: u64,
    /// Capture time, in nanoseconds since 1970.
    pub at_ns: i64,
    /// All bytes before this position are acknowledged.
    pub position: i64,
    /// Bytes that it acknowledged for the first time.
    pub bytes: u64,
    /// Bytes that its SACK blocks covered for the first time.
    pub sacked_bytes: u64,
    /// A duplicate ACK by RFC 5681, section 2. With SACK blocks, RFC 6675, section 2 applies: it
    /// must report bytes, or the FIN, for the first time.
    pub duplicate: bool,
    /// Bytes that it reports as received twice (RFC 2883), by position; none if it reports a FIN.
    pub dsack: Option<(i64, i64)>,
    /// Time since the transmission of the last packet that it acknowledged, in nanoseconds. Only if
    /// that packet was sent once and not bundled.
    pub rtt_ns: Option<i64>,
}

impl Class {
    /// Whether it is new, bundled or retransmitted payload; false for probes.
    #[must_use]
    pub fn carries_data(self) -> bool {
        matches!(
            self,
            Self::New | Self::Bundled | Self::Retransmission { .. }
        )
    }
}

/// Disposition of a packet between the two traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Disposition {
    /// The packet's direction in its connection.
    pub direction: Direction,
    /// The packet's direction between the two traces.
    pub path_direction: PathDirection,
    /// [`Packet::number`](crate::Packet::number) in the trace at its sender.
    pub packet: u64,
    /// Capture time at the sender, by that trace's clock.
    pub sent_ns: i64,
    /// Purpose of the packet.
    pub class: Class,
    /// Position of the packet's first byte of payload.
    pub start: i64,
    /// Position after the packet's payload.
    pub end: i64,
    /// Bytes of the packet's payload that had been sent before.
    pub old_bytes: u64,
    /// Whether the packet arrived.
    pub arrival: Arrival,
}

/// Whether a packet arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The packet arrived.
    Delivered {
        /// Arrival time by the clock of the trace at its receiver.
        at_ns: i64,
        /// [`Packet::number`](crate::Packet::number) in that trace.
        packet: u64,
        /// Bytes sent before that the receiver did not have: repaired by the bundle or
        /// retransmission.
        repaired_bytes: u64,
        /// An equal packet was in transit, so that it may have arrived instead: the delay is
        /// unknown.
        is_ambiguous: bool,
    },
    /// The packet arrived at an unknown time. Its bytes were acknowledged, no other packet carried
    /// them, and the receiver's trace does not show it.
    Unseen,
    /// The packet did not arrive, or the trace misses it.
    Lost,
    /// Unknown: the other trace does not cover that time, segments were joined or split on the
    /// path, or several packets carried bytes that arrived unseen. Byte counts are exact
    /// nevertheless.
    Unknown,
}

impl Disposition {
    /// Transit time by two unsynchronised clocks, in nanoseconds. [`Clock`](crate::pair::Clock)
    /// converts it to a delay. `None` if it did not arrive, or an equal packet may have arrived
    /// instead.
    #[must_use]
    pub fn raw_delay_ns(&self) -> Option<i64> {
        match self.arrival {
            Arrival::Delivered {
                at_ns,
                is_ambiguous: false,
                ..
            } => Some(at_ns.saturating_sub(self.sent_ns)),
            _ => None,
        }
    }
}

/// Delivery of one direction's packets between the two traces. A packet with copies counts once: it
/// is lost if none of them arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct DeliveryStats {
    /// Packets that arrived.
    pub delivered_packets: u64,
    /// Packets that arrived according to ACKs, but are missing in the receiver's trace.
    pub unseen_packets: u64,
    /// Packets that did not arrive.
    pub lost_packets: u64,
    /// Lost packets with payload that are new, bundled or retransmitted.
    pub lost_data_packets: u64,
    /// The payload of lost data packets.
    pub lost_bytes: u64,
    /// Packets of unknown disposition.
    pub unknown_packets: u64,
    /// Repetitions that arrived and were not sent.
    pub duplicated_packets: u64,
    /// Repetitions of packets that arrived, if the sender sent copies.
    pub delivered_copies: u64,
    /// Arrived packets that were not sent in this form: joined or split on the path, or missing in
    /// the sender's trace.
    pub unmatched_packets: u64,
    /// Bytes that arrived for the first time.
    pub delivered_bytes: u64,
    /// Acknowledged bytes whose arrival is not in the receiver's trace.
    pub unseen_bytes: u64,
    /// Bundles with a redundant byte that the receiver did not have.
    pub bundle_hits: u64,
    /// Bundles that arrived although the receiver had all of their redundant bytes.
    pub bundle_misses: u64,
    /// Retransmitted packets that arrived although the receiver had all of their bytes.
    pub spurious_retransmissions: u64,
    /// Redundant bytes of bundles that the receiver did not have.
    pub repaired_bytes: u64,
    /// Redundant bytes of arrived bundles that the receiver had.
    pub needless_bytes: u64,
    /// Runs of losses by length: the number of runs of 1, 2, ... packets in order of transmission.
    /// The last entry counts all longer runs.
    pub loss_runs: [u64; 16],
    /// The longest run of losses, in packets.
    pub longest_loss_run: u32,
    #[serde(skip)]
    run: u32,
}

impl DeliveryStats {
    /// Counts a packet's disposition; call in order of transmission.
    #[inline]
    pub(crate) fn count(&mut self, disposition: &Disposition) {
        let data = disposition.class.carries_data();
        match disposition.arrival {
            Arrival::Lost => {
                self.lost_packets += 1;
                self.lost_data_packets += u64::from(data);
                self.lost_bytes += if data {
                    disposition.start.abs_diff(disposition.end)
                } else {
                    0
                };
                self.run = self.run.saturating_add(1);
                return;
            }
            Arrival::Unknown => self.unknown_packets += 1,
            Arrival::Unseen => self.unseen_packets += 1,
            Arrival::Delivered {
                repaired_bytes,
                is_ambiguous,
                ..
            } => {
                self.delivered_packets += 1;
                let needless = repaired_bytes == 0 && !is_ambiguous;
                let retransmitted = matches!(disposition.class, Class::Retransmission { .. });
                self.spurious_retransmissions += u64::from(retransmitted && needless);
                if disposition.class == Class::Bundled {
                    self.bundle_hits += u64::from(repaired_bytes > 0);
                    self.bundle_misses += u64::from(repaired_bytes == 0);
                    self.repaired_bytes += repaired_bytes;
                    self.needless_bytes += disposition.old_bytes.saturating_sub(repaired_bytes);
                }
            }
        }
        self.end_run();
    }

    /// Ends the current run of losses, if any.
    pub(crate) fn end_run(&mut self) {
        if let Some(longer) = self.run.checked_sub(1) {
            let index = (longer as usize).min(self.loss_runs.len() - 1);
            self.loss_runs[index] += 1;
            self.longest_loss_run = self.longest_loss_run.max(self.run);
            self.run = 0;
        }
    }
}

impl AddAssign for DeliveryStats {
    /// Adds counters; runs of losses must have ended.
    fn add_assign(&mut self, other: Self) {
        add_fields! {
            self += other:
            delivered_packets, unseen_packets, lost_packets, lost_data_packets, lost_bytes,
            unknown_packets, duplicated_packets, delivered_copies, unmatched_packets,
            delivered_bytes, unseen_bytes, bundle_hits, bundle_misses, spurious_retransmissions,
            repaired_bytes, needless_bytes
        }
        for (own, other) in self.loss_runs.iter_mut().zip(other.loss_runs) {
            *own += other;
        }
        self.longest_loss_run = self.longest_loss_run.max(other.longest_loss_run);
    }
}
