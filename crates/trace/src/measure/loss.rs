use pillion_stats::measure::share;
use serde::Serialize;

use super::batch::{End, Extent, Transit};
use super::volume::{NTH, nth_place};
use crate::pair::Passage;
use crate::{Class, CopyKind};

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
