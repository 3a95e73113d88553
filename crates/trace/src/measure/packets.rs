//! Packets and bytes: sent, lost, and how they follow each other.

use pillion_stats::measure::{Distribution, share};
use serde::Serialize;

use super::batch::{Departure, End, Extent, Transit};
use crate::event::Passage;
use crate::{Arrived, Class, CopyKind, Counts};

/// What was sent, and how much of it more than once.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Volume {
    /// Packets and bytes by what they were for.
    #[serde(flatten)]
    pub counts: Counts,
    /// Duplicate ACKs that came back for it.
    pub duplicate_acks_received: u64,
    /// Retransmitted packets by what they were: the first retransmission of their bytes, the
    /// second and so on; the last counts all later ones. Those of which the copies before are
    /// not known are in none.
    pub nth_retransmissions: [u64; NTH],
    /// Bytes sent again, bundled or retransmitted, as a share of all payload, from 0 to 1: the
    /// redundancy of the LCN 2015 paper, table 3.
    pub redundant_share: Option<f64>,
    /// Bundled bytes as a share of all payload, from 0 to 1.
    pub bundled_share: Option<f64>,
    /// Loss as the sender alone lets one estimate it: retransmitted packets as a share of all
    /// packets with payload. Too high where the sender repeats what was not lost, too low where
    /// bundles repair.
    pub estimated_loss_share: Option<f64>,
}

/// How many retransmissions of the same bytes are told apart.
pub(super) const NTH: usize = 8;

/// The place of an n-th retransmission in lists that tell [`NTH`] apart.
pub(super) fn nth_place(nth: u32) -> Option<usize> {
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

    pub(super) fn settle(&mut self) {
        let counts = &self.counts;
        let redundant = counts.bundled_bytes + counts.retransmitted_bytes;
        self.redundant_share = share(redundant, counts.payload_bytes);
        self.bundled_share = share(counts.bundled_bytes, counts.payload_bytes);
        self.estimated_loss_share = share(counts.retransmitted_packets, counts.data_packets);
    }
}

/// What was lost on the way from one trace to the other (thesis, section 3.4.3), and what brought
/// it after all. Only what is known to be lost or delivered counts; bytes are of payload.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Loss {
    /// All packets, those without payload as well, and runs of losses among them.
    #[serde(flatten)]
    pub passage: Passage,
    /// Packets with payload that are new, bundled or retransmitted and whose fate is known.
    pub data_packets: u64,
    /// Lost data packets as a share of those whose fate is known.
    pub lost_data_packets_share: Option<f64>,
    /// The payload of data packets whose fate is known.
    pub data_bytes: u64,
    /// Lost bytes as a share of all data bytes, each time that they were lost.
    pub lost_bytes_share: Option<f64>,
    /// Bytes that were lost the first time they were sent.
    pub lost_new_bytes: u64,
    /// Bytes that were lost when they were sent again, bundled or retransmitted, each time.
    pub lost_old_bytes: u64,
    /// Packets with nothing but new bytes that were lost.
    pub lost_new_packets: u64,
    /// Packets with new and bundled bytes that were lost.
    pub lost_bundled_packets: u64,
    /// Retransmissions that were lost.
    pub lost_retransmitted_packets: u64,
    /// Lost retransmissions by what they were: the first of their bytes, the second and so on; the
    /// last counts all later ones.
    pub lost_nth_retransmissions: [u64; NTH],
    /// Packets with payload of which it is not known whether they arrived: in none of the counts
    /// above.
    pub unknown_data_packets: u64,
    /// Byte ranges that were sent and arrived, each once.
    pub delivered_ranges: u64,
    /// Ranges that were sent more than once and arrived in packets that were joined or cut on the
    /// way, so that nothing tells which copy it was: in none of these counts.
    pub unattributed_ranges: u64,
    /// Of the delivered ranges, those that another copy than the first one brought: lost the first time, or
    /// overtaken.
    pub lost_ranges: u64,
    /// Lost ranges as a share of delivered ones.
    pub lost_ranges_share: Option<f64>,
    /// Lost ranges that a bundle brought.
    pub ranges_repaired_by_bundle: u64,
    /// Lost ranges that a retransmission brought.
    pub ranges_repaired_by_retransmission: u64,
    /// Bundles that brought a byte which was missing, as a share of those that arrived.
    pub bundle_hit_share: Option<f64>,
}

impl Loss {
    /// Counts a packet with payload; [`Passage`] counts for itself.
    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit) {
        if fate.outcome == End::Unknown {
            self.unknown_data_packets += 1;
            return;
        }
        self.data_packets += 1;
        self.data_bytes += fate.bytes;
        if fate.outcome != End::Lost {
            return;
        }
        self.lost_old_bytes += fate.old_bytes;
        self.lost_new_bytes += fate.bytes.saturating_sub(fate.old_bytes);
        match fate.class {
            Class::New => self.lost_new_packets += 1,
            Class::Bundled => self.lost_bundled_packets += 1,
            Class::Retransmission { nth } => {
                self.lost_retransmitted_packets += 1;
                if let Some(place) = nth_place(nth) {
                    self.lost_nth_retransmissions[place] += 1;
                }
            }
            Class::KeepAlive | Class::WindowProbe | Class::Control => {}
        }
    }

    /// Counts a range.
    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        let Some(brought_by) = range.brought_by else {
            self.unattributed_ranges += u64::from(range.was_sent);
            return;
        };
        self.delivered_ranges += 1;
        self.lost_ranges += u64::from(brought_by != CopyKind::New);
        match brought_by {
            CopyKind::New => {}
            CopyKind::Bundled => self.ranges_repaired_by_bundle += 1,
            CopyKind::Retransmission => self.ranges_repaired_by_retransmission += 1,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.passage += other.passage;
        self.data_packets += other.data_packets;
        self.data_bytes += other.data_bytes;
        self.lost_new_bytes += other.lost_new_bytes;
        self.lost_old_bytes += other.lost_old_bytes;
        self.lost_new_packets += other.lost_new_packets;
        self.lost_bundled_packets += other.lost_bundled_packets;
        self.lost_retransmitted_packets += other.lost_retransmitted_packets;
        for (own, other) in self
            .lost_nth_retransmissions
            .iter_mut()
            .zip(other.lost_nth_retransmissions)
        {
            *own += other;
        }
        self.unknown_data_packets += other.unknown_data_packets;
        self.delivered_ranges += other.delivered_ranges;
        self.unattributed_ranges += other.unattributed_ranges;
        self.lost_ranges += other.lost_ranges;
        self.ranges_repaired_by_bundle += other.ranges_repaired_by_bundle;
        self.ranges_repaired_by_retransmission += other.ranges_repaired_by_retransmission;
    }

    pub(super) fn settle(&mut self) {
        let passage = &self.passage;
        let bundles = passage.bundle_hits + passage.bundle_misses;
        self.lost_data_packets_share = share(passage.lost_data_packets, self.data_packets);
        self.lost_bytes_share = share(passage.lost_bytes, self.data_bytes);
        self.lost_ranges_share = share(self.lost_ranges, self.delivered_ranges);
        self.bundle_hit_share = share(passage.bundle_hits, bundles);
    }
}

/// How packets with payload follow each other, retransmissions included, and how large they are;
/// probes are left out.
#[derive(Debug, Clone, Default)]
pub struct Spacing {
    /// Inter-transmission time (ITT): between two packets as they are sent.
    pub itt: Distribution,
    /// Inter-arrival time (IAT): between two packets as they arrive.
    pub iat: Distribution,
    /// Payload of each.
    pub payload: Distribution,
    /// Size of each on the wire with all headers.
    pub packet: Distribution,
    /// Packets in flight as each finds them when it is sent, itself not counted.
    pub in_flight: Distribution,
    /// The same of each packet that carries a bundle: a test of thinness lets none go beyond its
    /// limit.
    pub in_flight_of_bundles: Distribution,
    last_sent_ns: Option<i64>,
    last_arrived_ns: Option<i64>,
}

impl Spacing {
    /// Enters a packet with payload.
    #[inline]
    pub(super) fn sent(&mut self, sent: &Departure) {
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

    /// Enters a packet with payload.
    #[inline]
    pub(super) fn arrived(&mut self, arrived: &Arrived) {
        if let Some(last_ns) = self.last_arrived_ns.replace(arrived.at_ns) {
            self.iat.record(arrived.at_ns.saturating_sub(last_ns));
        }
    }

    /// Whether a packet with payload is known to have arrived.
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

    pub(super) fn settle(&mut self) {
        for distribution in [
            &mut self.itt,
            &mut self.iat,
            &mut self.payload,
            &mut self.packet,
            &mut self.in_flight,
            &mut self.in_flight_of_bundles,
        ] {
            distribution.settle();
        }
    }
}
