//! Packets and bytes: sent, lost, spacing.

use pillion_stats::measure::{Distribution, share};
use serde::Serialize;

use super::batch::{RangeSample, SentSample, TransitResult, TransitSample};
use crate::event::DeliveryStats;
use crate::{ArrivedPacket, Class, CopyKind, DirectionCounts};

/// Packets and bytes sent, and how many repeatedly.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Volume {
    /// Packets and bytes by class.
    #[serde(flatten)]
    pub counts: DirectionCounts,
    /// Duplicate ACKs received for this direction.
    pub duplicate_acks_received: u64,
    /// Retransmitted packets by n, the number of earlier transmissions of their bytes; the last
    /// entry counts all larger n. Packets with unknown earlier copies are excluded.
    pub nth_retransmissions: [u64; NTH],
    /// Bytes sent again, bundled, retransmitted or copied, as a share of all payload, from 0 to 1: the
    /// redundancy of the LCN 2015 paper, table 3.
    pub redundant_share: Option<f64>,
    /// Bundled bytes as a share of all payload, from 0 to 1.
    pub bundled_share: Option<f64>,
    /// Loss estimated at the sender: retransmitted packets as a share of all packets with payload.
    /// Too high after spurious retransmissions, too low where bundles repair.
    pub estimated_loss_share: Option<f64>,
}

/// Number of distinguished n-th retransmissions.
pub(super) const NTH: usize = 8;

/// Index of an n-th retransmission in lists of length [`NTH`].
pub(super) fn nth_index(nth: u32) -> Option<usize> {
    Some((nth.checked_sub(1)? as usize).min(NTH - 1))
}

impl Volume {
    pub(super) fn add(&mut self, other: &Self) {
        self.counts += other.counts;
        self.duplicate_acks_received += other.duplicate_acks_received;
        for (own, other) in self
            .nth_retransmissions
            .iter_mut()
            .zip(other.nth_retransmissions)
        {
            *own += other;
        }
    }

    pub(super) fn finalize(&mut self) {
        let counts = &self.counts;
        let redundant = counts.bundled_bytes + counts.retransmitted_bytes + counts.copied_bytes;
        self.redundant_share = share(redundant, counts.payload_bytes);
        self.bundled_share = share(counts.bundled_bytes, counts.payload_bytes);
        self.estimated_loss_share = share(counts.retransmitted_packets, counts.data_packets);
    }
}

/// Losses between the two traces (thesis, section 3.4.3) and their repair. Only packets of known
/// disposition count; bytes are payload.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Loss {
    /// All packets, with or without payload, and runs of losses.
    #[serde(flatten)]
    pub delivery_stats: DeliveryStats,
    /// New, bundled or retransmitted packets with payload and known disposition.
    pub data_packets: u64,
    /// Lost data packets as a share of data packets.
    pub lost_data_packets_share: Option<f64>,
    /// The payload of data packets.
    pub data_bytes: u64,
    /// Lost bytes as a share of all data bytes; a byte counts each time it is lost.
    pub lost_bytes_share: Option<f64>,
    /// Bytes lost at their first transmission.
    pub lost_new_bytes: u64,
    /// Bytes lost when sent again, bundled or retransmitted; each loss counts.
    pub lost_old_bytes: u64,
    /// Lost packets with only new bytes.
    pub lost_new_packets: u64,
    /// Lost packets with new and bundled bytes.
    pub lost_bundled_packets: u64,
    /// Lost retransmissions.
    pub lost_retransmitted_packets: u64,
    /// Lost retransmissions by n, the number of earlier transmissions of their bytes; the last
    /// entry counts all larger n.
    pub lost_nth_retransmissions: [u64; NTH],
    /// Packets with payload and unknown disposition; in none of the counts above.
    pub unknown_data_packets: u64,
    /// Byte ranges that were sent and arrived; each counts once.
    pub delivered_ranges: u64,
    /// Ranges sent more than once that arrived in joined or split packets, so that their copy is
    /// unknown. In none of the other counts.
    pub unattributed_ranges: u64,
    /// Delivered ranges whose first arrival was not the first copy: that copy was lost or
    /// overtaken.
    pub lost_ranges: u64,
    /// Lost ranges as a share of delivered ranges.
    pub lost_ranges_share: Option<f64>,
    /// Lost ranges that a bundle delivered.
    pub ranges_repaired_by_bundle: u64,
    /// Lost ranges that a retransmission delivered.
    pub ranges_repaired_by_retransmission: u64,
    /// Bundles that delivered a missing byte, as a share of arrived bundles.
    pub bundle_hit_share: Option<f64>,
}

impl Loss {
    /// Counts a packet with payload, except in [`DeliveryStats`].
    #[inline]
    pub(super) fn disposition(&mut self, disposition: &TransitSample) {
        if disposition.outcome == TransitResult::Unknown {
            self.unknown_data_packets += 1;
            return;
        }
        self.data_packets += 1;
        self.data_bytes += disposition.bytes;
        if disposition.outcome != TransitResult::Lost {
            return;
        }
        self.lost_old_bytes += disposition.old_bytes;
        self.lost_new_bytes += disposition.bytes.saturating_sub(disposition.old_bytes);
        match disposition.class {
            Class::New => self.lost_new_packets += 1,
            Class::Bundled => self.lost_bundled_packets += 1,
            Class::Retransmission { nth } => {
                self.lost_retransmitted_packets += 1;
                if let Some(index) = nth_index(nth) {
                    self.lost_nth_retransmissions[index] += 1;
                }
            }
            Class::KeepAlive | Class::WindowProbe | Class::Control => {}
        }
    }

    /// Counts a range.
    #[inline]
    pub(super) fn range(&mut self, range: &RangeSample) {
        let Some(delivered_by) = range.delivered_by else {
            self.unattributed_ranges += u64::from(range.was_sent);
            return;
        };
        self.delivered_ranges += 1;
        self.lost_ranges += u64::from(delivered_by != CopyKind::New);
        match delivered_by {
            CopyKind::New => {}
            CopyKind::Bundled => self.ranges_repaired_by_bundle += 1,
            CopyKind::Retransmission => self.ranges_repaired_by_retransmission += 1,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        add_fields! {
            self += other:
            delivery_stats, data_packets, data_bytes, lost_new_bytes, lost_old_bytes,
            lost_new_packets, lost_bundled_packets, lost_retransmitted_packets,
            unknown_data_packets, delivered_ranges, unattributed_ranges, lost_ranges,
            ranges_repaired_by_bundle, ranges_repaired_by_retransmission
        }
        for (own, other) in self
            .lost_nth_retransmissions
            .iter_mut()
            .zip(other.lost_nth_retransmissions)
        {
            *own += other;
        }
    }

    pub(super) fn finalize(&mut self) {
        let delivery_stats = &self.delivery_stats;
        let bundles = delivery_stats.bundle_hits + delivery_stats.bundle_misses;
        self.lost_data_packets_share = share(delivery_stats.lost_data_packets, self.data_packets);
        self.lost_bytes_share = share(delivery_stats.lost_bytes, self.data_bytes);
        self.lost_ranges_share = share(self.lost_ranges, self.delivered_ranges);
        self.bundle_hit_share = share(delivery_stats.bundle_hits, bundles);
    }
}

/// Spacing and size of packets with payload, retransmissions included, probes excluded.
#[derive(Debug, Clone, Default)]
pub struct Spacing {
    /// Inter-transmission time (ITT) of two packets.
    pub itt: Distribution,
    /// Inter-arrival time (IAT) of two packets.
    pub iat: Distribution,
    /// Payload per packet.
    pub payload: Distribution,
    /// Wire size per packet, headers included.
    pub packet: Distribution,
    /// Packets in flight when a packet is sent, itself excluded.
    pub in_flight: Distribution,
    /// The same for packets with a bundle. A thin-stream test keeps it within its limit.
    pub in_flight_of_bundles: Distribution,
    last_sent_ns: Option<i64>,
    last_arrived_ns: Option<i64>,
}

impl Spacing {
    /// Adds a sent packet with payload.
    #[inline]
    pub(super) fn sent(&mut self, sent: &SentSample) {
        if let Some(last_ns) = self.last_sent_ns.replace(sent.at_ns) {
            self.itt.record(sent.at_ns.saturating_sub(last_ns));
        }
        self.payload.record(sent.payload_bytes.into());
        self.packet.record(sent.wire_bytes.into());
        self.in_flight.record(sent.in_flight.into());
        if sent.class == Class::Bundled {
            self.in_flight_of_bundles.record(sent.in_flight.into());
        }
    }

    /// Adds an arrived packet with payload.
    #[inline]
    pub(super) fn arrived(&mut self, arrived: &ArrivedPacket) {
        if let Some(last_ns) = self.last_arrived_ns.replace(arrived.at_ns) {
            self.iat.record(arrived.at_ns.saturating_sub(last_ns));
        }
    }

    /// Whether a packet with payload arrived.
    pub(super) fn has_arrived(&self) -> bool {
        self.last_arrived_ns.is_some()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.itt.add(&other.itt);
        self.iat.add(&other.iat);
        self.payload.add(&other.payload);
        self.packet.add(&other.packet);
        self.in_flight.add(&other.in_flight);
        self.in_flight_of_bundles.add(&other.in_flight_of_bundles);
    }

    pub(super) fn finalize(&mut self) {
        for distribution in [
            &mut self.itt,
            &mut self.iat,
            &mut self.payload,
            &mut self.packet,
            &mut self.in_flight,
            &mut self.in_flight_of_bundles,
        ] {
            distribution.finalize();
        }
    }
}
