//! Latencies that need no common clock: ACK latency, round trips, completion, head-of-line blocking.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pillion_stats::measure::{Distribution, share};
use serde::Serialize;

use super::batch::{Acknowledgement, Departure, End, Extent, Total, Transit};
use super::measures::milliseconds;

/// Times that the trace at the sender shows alone.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    /// ACK latency of each byte range: from the first time that it was sent to the ACK that
    /// covers it (LCN 2015 paper, section IV.A; the thesis' ALD, section 3.4.3). A SACK block
    /// is no ACK.
    pub ack_latency: Distribution,
    /// Round-trip time: from sending to the ACK, where the last packet that the ACK covers was
    /// sent once and in no bundle.
    pub rtt: Distribution,
    /// ACK latency of byte ranges that were retransmitted once, twice and three times (2013
    /// poster, figure 2), no matter how often they rode along in bundles.
    pub ack_latency_retransmitted: [Distribution; 3],
}

impl Latency {
    #[inline]
    pub(super) fn acked(&mut self, acked: &Acknowledgement) {
        if let Some(rtt_ns) = acked.rtt_ns {
            self.rtt.record(rtt_ns);
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        if let Some(latency_ns) = range.ack_latency_ns {
            self.ack_latency.record(latency_ns);
            let place = range.retransmissions.wrapping_sub(1);
            if let Some(of_so_many) = self.ack_latency_retransmitted.get_mut(place) {
                of_so_many.record(latency_ns);
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

    pub(super) fn settle(&mut self) {
        self.ack_latency.settle();
        self.rtt.settle();
        for of_so_many in &mut self.ack_latency_retransmitted {
            of_so_many.settle();
        }
    }
}

/// How long it took a connection, a short flow above all, to have all delivered that the end sent
/// which opened it: from the first SYN to the ACK of the last byte, one value for each connection of
/// which all was acknowledged.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    /// Of each connection.
    pub time: Distribution,
    /// Of those of which one of the last three segments was lost, or a copy of one (2013 poster,
    /// figure 1); empty without a trace at the receiver.
    pub with_a_tail_loss: Distribution,
    /// Where the last packets with new bytes ended, the last at the end.
    ends: [i64; TAIL + 1],
    /// Where the lost packet ended that ended last.
    lost_end: i64,
    acked_since_ns: i64,
}

/// The segments that are a flow's tail: a loss among them leaves too few duplicate ACKs behind it for
/// a fast retransmit.
const TAIL: usize = 3;

impl Completion {
    #[inline]
    pub(super) fn sent(&mut self, sent: &Departure) {
        if sent.end > self.ends[TAIL] {
            self.ends.rotate_left(1);
            self.ends[TAIL] = sent.end;
        }
    }

    /// New bytes were acknowledged.
    #[inline]
    pub(super) fn acked(&mut self, since_ns: i64) {
        self.acked_since_ns = since_ns;
    }

    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit) {
        if fate.outcome == End::Lost {
            self.lost_end = self.lost_end.max(fate.end);
        }
    }

    pub(super) fn finished(&mut self, total: &Total) {
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

    pub(super) fn settle(&mut self) {
        self.time.settle();
        self.with_a_tail_loss.settle();
    }
}

/// Head-of-line blocking: bytes that had arrived and could not be read, because others before
/// them were missing.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Blocking {
    /// How long each byte range waited that had to wait.
    #[serde(rename = "wait_ms", serialize_with = "milliseconds")]
    pub wait: Distribution,
    /// Bytes that had to wait.
    pub blocked_bytes: u64,
    /// Bytes that became readable.
    pub readable_bytes: u64,
    /// The former as a share of the latter.
    pub blocked_share: Option<f64>,
    /// How long each byte waited, summed up over all of them, in seconds times bytes.
    pub byte_seconds: f64,
    /// The missing bytes that others waited behind, in order; of connections alone, and of each
    /// direction the first 4,096.
    pub behind: Vec<Blocker>,
    #[serde(skip)]
    open: BTreeMap<i64, Blocker>,
    /// The last one, as mostly several in a row wait behind the same byte.
    #[serde(skip)]
    last: Option<Blocker>,
}

/// A missing byte, and what waited behind it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Blocker {
    /// The missing byte's position; the first byte of a connection is 1.
    pub position: i64,
    /// Byte ranges that found it missing when they arrived.
    pub ranges: u64,
    /// The bytes of these ranges.
    pub bytes: u64,
    /// How long the first of them waited until it could be read, in milliseconds.
    pub longest_ms: f64,
}

const MOST_BLOCKERS: usize = 4096;

impl Blocking {
    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        let Some(delivery) = range.delivery else {
            return;
        };
        let Some(blocked_ns) = delivery.blocked_ns() else {
            return;
        };
        self.readable_bytes += range.len;
        // What comes in one packet with the missing byte does not wait.
        if blocked_ns > 0
            && let Some(position) = delivery.behind
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
                self.put_by();
                self.last = Some(Blocker {
                    position,
                    ranges: 1,
                    bytes,
                    longest_ms,
                });
            }
        }
    }

    /// Puts the last one with the others.
    fn put_by(&mut self) {
        let Some(last) = self.last.take() else {
            return;
        };
        let full = self.open.len() >= MOST_BLOCKERS;
        match self.open.entry(last.position) {
            Entry::Vacant(place) if !full => {
                place.insert(last);
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

    pub(super) fn settle(&mut self) {
        self.wait.settle();
        self.blocked_share = share(self.blocked_bytes, self.readable_bytes);
        self.put_by();
        self.behind = std::mem::take(&mut self.open).into_values().collect();
    }
}
