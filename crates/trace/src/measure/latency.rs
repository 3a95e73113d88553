//! Latencies that need only one clock: ACK latency, RTT, completion, head-of-line blocking.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pillion_stats::measure::{Distribution, Percentile, share};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::batch::{
    AckSample, DirectionTotals, RangeSample, SentSample, TransitResult, TransitSample,
};

/// Times that need only the sender's trace.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    /// ACK latency of each byte range: first transmission to the ACK that covers it (LCN 2015
    /// paper, section IV.A; ALD in the thesis, section 3.4.3). A SACK block does not count.
    pub ack_latency: Distribution,
    /// Round-trip time: transmission to ACK, if the last packet that the ACK covers was sent once
    /// and in no bundle.
    pub rtt: Distribution,
    /// ACK latency of byte ranges that were retransmitted once, twice and three times (2013 poster,
    /// figure 2), with any number of bundled copies.
    pub ack_latency_retransmitted: [Distribution; 3],
}

impl Latency {
    #[inline]
    pub(super) fn acked(&mut self, acked: &AckSample) {
        if let Some(rtt_ns) = acked.rtt_ns {
            self.rtt.record(rtt_ns);
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &RangeSample) {
        if let Some(latency_ns) = range.ack_latency_ns {
            self.ack_latency.record(latency_ns);
            let index = range.retransmissions.wrapping_sub(1);
            if let Some(distribution) = self.ack_latency_retransmitted.get_mut(index) {
                distribution.record(latency_ns);
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ack_latency.add(&other.ack_latency);
        self.rtt.add(&other.rtt);
        let others = &other.ack_latency_retransmitted;
        for (own, other) in self.ack_latency_retransmitted.iter_mut().zip(others) {
            own.add(other);
        }
    }

    pub(super) fn finalize(&mut self) {
        self.ack_latency.finalize();
        self.rtt.finalize();
        for distribution in &mut self.ack_latency_retransmitted {
            distribution.finalize();
        }
    }
}

/// Flow completion time: from the first SYN to the ACK of the last byte from the end that opened
/// the connection. One value per connection whose bytes were all acknowledged; of interest for
/// short flows.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    /// All connections.
    pub time: Distribution,
    /// Connections in which one of the last three segments, or a copy of one, was lost (2013
    /// poster, figure 1). Empty without a receiver's trace.
    pub with_a_tail_loss: Distribution,
    /// End positions of the last packets with new bytes, the latest last.
    ends: [i64; TAIL + 1],
    /// The highest end position of a lost packet.
    lost_end: i64,
    acked_since_ns: i64,
}

/// Number of segments in a flow's tail. A loss among them causes too few duplicate ACKs for a fast
/// retransmit.
const TAIL: usize = 3;

impl Completion {
    #[inline]
    pub(super) fn sent(&mut self, sent: &SentSample) {
        if sent.end > self.ends[TAIL] {
            self.ends.rotate_left(1);
            self.ends[TAIL] = sent.end;
        }
    }

    /// Records the time of an ACK of new bytes.
    #[inline]
    pub(super) fn acked(&mut self, since_ns: i64) {
        self.acked_since_ns = since_ns;
    }

    #[inline]
    pub(super) fn disposition(&mut self, disposition: &TransitSample) {
        if disposition.outcome == TransitResult::Lost {
            self.lost_end = self.lost_end.max(disposition.end);
        }
    }

    pub(super) fn finished(&mut self, total: &DirectionTotals) {
        let Some(opened_since_ns) = total.opened_since_ns.filter(|_| total.all_acked) else {
            return;
        };
        let time_ns = self.acked_since_ns.saturating_sub(opened_since_ns);
        self.time.record(time_ns);
        if self.lost_end > self.ends[0] {
            self.with_a_tail_loss.record(time_ns);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.time.add(&other.time);
        self.with_a_tail_loss.add(&other.with_a_tail_loss);
    }

    pub(super) fn finalize(&mut self) {
        self.time.finalize();
        self.with_a_tail_loss.finalize();
    }
}

/// Head-of-line blocking: bytes that had arrived but waited for missing bytes before them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Blocking {
    /// Waiting time of each byte range that waited.
    #[serde(rename = "wait_ms", serialize_with = "milliseconds")]
    pub wait: Distribution,
    /// Bytes that waited.
    pub blocked_bytes: u64,
    /// Bytes that became readable.
    pub readable_bytes: u64,
    /// Blocked bytes as a share of readable bytes.
    pub blocked_share: Option<f64>,
    /// Sum of the waiting times of all bytes, in seconds times bytes.
    pub byte_seconds: f64,
    /// Missing bytes that others waited for, in order. Only per connection, and at most 4,096 per
    /// direction.
    pub blocks: Vec<HolBlock>,
    #[serde(skip)]
    open: BTreeMap<i64, HolBlock>,
    /// The current block, because consecutive ranges usually wait for the same byte.
    #[serde(skip)]
    last: Option<HolBlock>,
}

/// A missing byte and the ranges that waited for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct HolBlock {
    /// The missing byte's position; the first byte of a connection is 1.
    pub position: i64,
    /// Byte ranges that arrived while it was missing.
    pub ranges: u64,
    /// The bytes of these ranges.
    pub bytes: u64,
    /// The longest waiting time of these ranges, in milliseconds.
    pub longest_ms: f64,
}

const MAX_HOL_BLOCKS: usize = 4096;

impl Blocking {
    #[inline]
    pub(super) fn range(&mut self, range: &RangeSample) {
        let Some(delivery) = range.delivery else {
            return;
        };
        let Some(blocked_ns) = delivery.blocked_ns() else {
            return;
        };
        self.readable_bytes += range.len;
        // A range in the same packet as the missing byte does not wait.
        if blocked_ns > 0
            && let Some(position) = delivery.waited_for
        {
            self.blocked(position, range.len, blocked_ns);
        }
    }

    fn blocked(&mut self, position: i64, bytes: u64, blocked_ns: i64) {
        self.wait.record(blocked_ns);
        self.blocked_bytes += bytes;
        self.byte_seconds += bytes as f64 * blocked_ns as f64 / 1e9;
        let longest_ms = blocked_ns as f64 / 1e6;
        match &mut self.last {
            Some(last) if last.position == position => {
                last.ranges += 1;
                last.bytes += bytes;
                last.longest_ms = last.longest_ms.max(longest_ms);
            }
            _ => {
                self.flush_last();
                self.last = Some(HolBlock {
                    position,
                    ranges: 1,
                    bytes,
                    longest_ms,
                });
            }
        }
    }

    /// Merges the current block into the others.
    fn flush_last(&mut self) {
        let Some(last) = self.last.take() else {
            return;
        };
        let full = self.open.len() >= MAX_HOL_BLOCKS;
        match self.open.entry(last.position) {
            Entry::Vacant(slot) if !full => {
                slot.insert(last);
            }
            Entry::Vacant(_) => {}
            Entry::Occupied(mut same) => {
                let same = same.get_mut();
                same.ranges += last.ranges;
                same.bytes += last.bytes;
                same.longest_ms = same.longest_ms.max(last.longest_ms);
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.wait.add(&other.wait);
        self.blocked_bytes += other.blocked_bytes;
        self.readable_bytes += other.readable_bytes;
        self.byte_seconds += other.byte_seconds;
    }

    pub(super) fn finalize(&mut self) {
        self.wait.finalize();
        self.blocked_share = share(self.blocked_bytes, self.readable_bytes);
        self.flush_last();
        self.blocks = std::mem::take(&mut self.open).into_values().collect();
    }
}

/// For `serialize_with`: a summary in milliseconds.
fn milliseconds<S: Serializer>(
    distribution: &Distribution,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Summary(distribution, 1e6).serialize(serializer)
}

/// A distribution's summary, with the divisor for the output unit.
pub(super) struct Summary<'a>(pub(super) &'a Distribution, pub(super) f64);

impl Serialize for Summary<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(distribution, unit) = *self;
        let whole = |value: Option<u64>| value.map(|value| value as f64 / unit);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("count", &distribution.len())?;
        map.serialize_entry("exact", &distribution.is_exact())?;
        map.serialize_entry("sample", &distribution.sample())?;
        map.serialize_entry("min", &whole(distribution.min()))?;
        map.serialize_entry("mean", &distribution.mean().map(|mean| mean / unit))?;
        map.serialize_entry("sd", &distribution.sd().map(|sd| sd / unit))?;
        for percentile in Percentile::ALL {
            let value = distribution.quantile(percentile.share);
            map.serialize_entry(percentile.name, &whole(value))?;
        }
        map.serialize_entry("max", &whole(distribution.max()))?;
        map.end()
    }
}
