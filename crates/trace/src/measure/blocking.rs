use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use pillion_stats::measure::{Distribution, share};
use serde::Serialize;

use super::batch::Extent;
use super::summary::milliseconds;

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
