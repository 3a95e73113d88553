use pillion_stats::measure::share;
use serde::Serialize;

use crate::Counts;

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
