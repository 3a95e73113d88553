//! Rows of tables, where a measure itself holds more than single values.

use std::borrow::Cow;

use serde::Serialize;

use super::loss::Loss;
use super::results::Single;
use super::volume::Volume;
use crate::{Outcome, Side};

/// Of whom a row tells.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Whom<'a> {
    scope: &'static str,
    name: Cow<'a, str>,
    direction: &'static str,
}

impl<'a> Whom<'a> {
    pub(super) fn all() -> Self {
        Self::new("all", "".into())
    }

    pub(super) fn group(name: &'a str) -> Self {
        Self::new("group", name.into())
    }

    pub(super) fn connection(number: u64) -> Self {
        Self::new("connection", number.to_string().into())
    }

    fn new(scope: &'static str, name: Cow<'a, str>) -> Self {
        Self {
            scope,
            name,
            direction: "",
        }
    }

    pub(super) fn towards(&self, direction: &'static str) -> Self {
        Self {
            direction,
            ..self.clone()
        }
    }

    pub(super) fn columns(&self) -> [&str; 3] {
        [self.scope, &self.name, self.direction]
    }
}

/// The name of a group; empty of all connections.
#[derive(Debug, Serialize)]
pub(super) struct Named<'a> {
    pub(super) name: &'a str,
}

/// Retransmissions that were the n-th of their bytes.
#[derive(Debug, Serialize)]
pub(super) struct NthRow {
    pub(super) nth: usize,
    pub(super) packets: u64,
    pub(super) lost_packets: Option<u64>,
}

/// Runs of losses that were so many packets long.
#[derive(Debug, Serialize)]
pub(super) struct RunRow {
    pub(super) run_packets: usize,
    pub(super) runs: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct ConnectionRow {
    connection: u64,
    sender: String,
    receiver: String,
    opened_by_sender: bool,
    /// Separated by spaces.
    groups: String,
    begin_s: f64,
    duration_s: f64,
    outcome: Outcome,
    only_at: Option<Side>,
    syns: u32,
    handshake_ms: Option<f64>,
    throughput_bit_per_s: f64,
    optimum_bit_per_s: Option<f64>,
}

impl ConnectionRow {
    pub(super) fn of(single: &Single) -> Self {
        Self {
            connection: single.number,
            sender: single.sender.to_string(),
            receiver: single.receiver.to_string(),
            opened_by_sender: single.opened_by_sender,
            groups: single.groups.join(" "),
            begin_s: single.begin_s,
            duration_s: single.duration_s,
            outcome: single.outcome,
            only_at: single.only_at,
            syns: single.syns,
            handshake_ms: single.handshake_ms,
            throughput_bit_per_s: single.throughput_bit_per_s,
            optimum_bit_per_s: single.optimum_bit_per_s,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct SentRow {
    duplicate_acks_received: u64,
    redundant_share: Option<f64>,
    bundled_share: Option<f64>,
    estimated_loss_share: Option<f64>,
}

impl SentRow {
    pub(super) fn of(volume: &Volume) -> Self {
        Self {
            duplicate_acks_received: volume.duplicate_acks_received,
            redundant_share: volume.redundant_share,
            bundled_share: volume.bundled_share,
            estimated_loss_share: volume.estimated_loss_share,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct LossRow {
    delivered_packets: u64,
    lost_packets: u64,
    unknown_packets: u64,
    duplicated_packets: u64,
    unmatched_packets: u64,
    data_packets: u64,
    lost_data_packets: u64,
    lost_data_packets_share: Option<f64>,
    lost_new_packets: u64,
    lost_bundled_packets: u64,
    lost_retransmitted_packets: u64,
    data_bytes: u64,
    lost_bytes: u64,
    lost_bytes_share: Option<f64>,
    lost_new_bytes: u64,
    lost_old_bytes: u64,
    delivered_bytes: u64,
    unseen_bytes: u64,
    delivered_ranges: u64,
    lost_ranges: u64,
    lost_ranges_share: Option<f64>,
    ranges_repaired_by_bundle: u64,
    ranges_repaired_by_retransmission: u64,
    bundle_hits: u64,
    bundle_misses: u64,
    bundle_hit_share: Option<f64>,
    repaired_bytes: u64,
    needless_bytes: u64,
    longest_loss_run: u32,
}

impl LossRow {
    pub(super) fn of(loss: &Loss) -> Self {
        let passage = &loss.passage;
        Self {
            delivered_packets: passage.delivered_packets,
            lost_packets: passage.lost_packets,
            unknown_packets: passage.unknown_packets,
            duplicated_packets: passage.duplicated_packets,
            unmatched_packets: passage.unmatched_packets,
            data_packets: loss.data_packets,
            lost_data_packets: passage.lost_data_packets,
            lost_data_packets_share: loss.lost_data_packets_share,
            lost_new_packets: loss.lost_new_packets,
            lost_bundled_packets: loss.lost_bundled_packets,
            lost_retransmitted_packets: loss.lost_retransmitted_packets,
            data_bytes: loss.data_bytes,
            lost_bytes: passage.lost_bytes,
            lost_bytes_share: loss.lost_bytes_share,
            lost_new_bytes: loss.lost_new_bytes,
            lost_old_bytes: loss.lost_old_bytes,
            delivered_bytes: passage.delivered_bytes,
            unseen_bytes: passage.unseen_bytes,
            delivered_ranges: loss.delivered_ranges,
            lost_ranges: loss.lost_ranges,
            lost_ranges_share: loss.lost_ranges_share,
            ranges_repaired_by_bundle: loss.ranges_repaired_by_bundle,
            ranges_repaired_by_retransmission: loss.ranges_repaired_by_retransmission,
            bundle_hits: passage.bundle_hits,
            bundle_misses: passage.bundle_misses,
            bundle_hit_share: loss.bundle_hit_share,
            repaired_bytes: passage.repaired_bytes,
            needless_bytes: passage.needless_bytes,
            longest_loss_run: passage.longest_loss_run,
        }
    }
}
