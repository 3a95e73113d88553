//! The ranges of one direction: what is sent, and the ACKs and SACK blocks that cover it.

use std::collections::VecDeque;

use smallvec::smallvec;

use super::{CopyKind, Range, SentCopy};
use crate::packet::MAX_WINDOW;

/// Unfinished ranges of one direction, in order of position.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(super) ranges: VecDeque<Range>,
    /// All bytes before this position are finished, or from before the trace.
    pub(super) floor: i64,
    /// All bytes before this position are acknowledged.
    pub(super) acked: i64,
    /// Position after the last byte sent.
    pub(super) next: i64,
    /// Unacknowledged packets with a new byte.
    pub(super) in_flight: u32,
    /// All bytes before this position are readable by the application; `None` without a receiver's
    /// trace.
    pub(super) in_order: Option<i64>,
    /// The blocks of the last SACK option.
    pub(super) blocks: [(i64, i64); 4],
    /// Bytes that SACK covered and no range contains, because their transmission is not in the
    /// trace: disjoint, in order.
    sacked_gaps: Vec<(i64, i64)>,
    /// Bytes that were acknowledged and no range contains: disjoint, in order.
    acked_gaps: Vec<(i64, i64)>,
}

/// Maximum number of stored gaps of each kind.
const MAX_GAPS: usize = 256;

/// The bytes of a packet by history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PlacedBytes {
    /// Never sent before.
    pub(crate) new: i64,
    /// Sent before and not finished.
    pub(crate) redundant: i64,
    /// Finished, or from before the trace.
    pub(crate) stale: i64,
    /// Never sent before in the trace, but acknowledged: new, but in no range.
    pub(crate) already_acked: i64,
    /// The maximum number of earlier copies of a redundant byte.
    pub(crate) earlier_copies: usize,
    /// Whether the packet ended above all earlier ones.
    pub(crate) advanced: bool,
    /// Whether a redundant byte was bundled before.
    pub(crate) was_bundled: bool,
    /// When the first byte above a hole was sent, if the packet filled one.
    pub(crate) hole_since_ns: Option<i64>,
}

impl PlacedBytes {
    /// The resulting kind of the packet.
    pub(crate) fn kind(&self) -> CopyKind {
        if self.redundant + self.stale == 0 {
            CopyKind::New
        } else if self.advanced {
            CopyKind::Bundled
        } else {
            CopyKind::Retransmission
        }
    }
}

/// Position of a stream's first byte.
const FIRST: i64 = 1;

/// Maximum number of stored ranges, because without ACKs no range is ever finished. In segments of
/// 1,460 bytes, a window of 180 MiB.
const MAX_RANGES: usize = 1 << 17;

impl Tracker {
    pub(crate) fn new(has_receiver: bool) -> Self {
        Self {
            ranges: VecDeque::new(),
            floor: FIRST,
            acked: FIRST,
            next: FIRST,
            in_flight: 0,
            in_order: has_receiver.then_some(FIRST),
            blocks: [(0, 0); 4],
            sacked_gaps: Vec::new(),
            acked_gaps: Vec::new(),
        }
    }

    /// Starts with an ACK of an earlier byte than the first one in the trace, which is sent but not
    /// acknowledged as well.
    pub(crate) fn start_before_trace(&mut self, ack: i64) {
        if self.acked == FIRST && ack < FIRST {
            self.acked = ack;
        }
    }

    /// All bytes before this position are finished.
    pub(crate) fn floor(&self) -> i64 {
        self.floor
    }

    pub(crate) fn acked(&self) -> i64 {
        self.acked
    }

    pub(crate) fn next(&self) -> i64 {
        self.next
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether the tracker is unused.
    pub(crate) fn is_fresh(&self) -> bool {
        self.ranges.is_empty() && self.floor == FIRST && self.next == FIRST
    }

    /// Whether a position can belong to this stream now.
    pub(crate) fn is_near(&self, position: i64) -> bool {
        position.abs_diff(self.next) <= MAX_WINDOW.unsigned_abs()
    }

    /// Skips bytes that the trace does not show.
    pub(crate) fn skip_to(&mut self, position: i64) {
        self.next = self.next.max(position);
    }

    /// Whether all bytes between these positions are acknowledged, by ACK or SACK.
    pub(crate) fn is_reported(&self, start: i64, end: i64) -> bool {
        let mut at = start.max(self.acked);
        let sacked = self.ranges.range(self.index_of(at)..);
        let sacked = sacked.take_while(|range| range.start < end && range.sacked_ns.is_some());
        let sacked = sacked.map(|range| (range.start, range.end));
        for (start, end) in self.sacked_gaps.iter().copied().chain(sacked) {
            if start <= at {
                at = at.max(end);
            }
        }
        at >= end
    }

    /// Bytes sent and not acknowledged.
    #[inline]
    pub(crate) fn outstanding(&self) -> i64 {
        (self.next - self.acked).max(0)
    }

    /// Adds the payload of a packet.
    #[inline]
    pub(crate) fn sent(&mut self, start: i64, end: i64, at_ns: i64, packet: u64) -> PlacedBytes {
        let placed = if start >= self.next {
            self.append(start, end, at_ns, packet);
            PlacedBytes {
                new: end - start,
                advanced: true,
                ..PlacedBytes::default()
            }
        } else {
            self.sent_again(start, end, at_ns, packet)
        };
        self.next = self.next.max(end);
        placed
    }

    #[inline]
    fn append(&mut self, start: i64, end: i64, at_ns: i64, packet: u64) {
        self.in_flight += 1;
        let arrived_unseen = self.has_received(end);
        self.ranges.push_back(Range {
            start,
            end,
            copies: smallvec![SentCopy {
                at_ns,
                packet,
                kind: CopyKind::New
            }],
            acked_ns: None,
            sacked_ns: None,
            delivery: None,
            ends_packet: true,
            arrived_unseen,
        });
    }

    fn sent_again(&mut self, start: i64, end: i64, at_ns: i64, packet: u64) -> PlacedBytes {
        let mut placed = PlacedBytes {
            already_acked: self.take_acked_gaps(start, end),
            advanced: end > self.next,
            ..PlacedBytes::default()
        };
        let copy = SentCopy {
            at_ns,
            packet,
            kind: if placed.advanced {
                CopyKind::Bundled
            } else {
                CopyKind::Retransmission
            },
        };
        let mut at = start.max(self.floor);
        let mut index = self.index_of(at);
        while at < end {
            let gap_end = self.ranges.get(index).map_or(end, |range| range.start);
            if gap_end > at {
                if at < self.acked {
                    at = gap_end.min(end).min(self.acked);
                    continue;
                }
                let stop = gap_end.min(end);
                let copy = SentCopy {
                    kind: CopyKind::New,
                    ..copy
                };
                placed.new += stop - at;
                let above = self
                    .ranges
                    .get(index)
                    .and_then(|range| range.copies.first());
                placed.hole_since_ns = placed.hole_since_ns.or(above.map(|above| above.at_ns));
                self.fill(index, at, stop, copy);
                at = stop;
            } else {
                self.isolate(&mut index, at, end);
                let range = &mut self.ranges[index];
                if range.copies.is_empty() {
                    placed.new += range.end - range.start;
                    range.copies.push(SentCopy {
                        kind: CopyKind::New,
                        ..copy
                    });
                } else {
                    placed.redundant += range.end - range.start;
                    placed.earlier_copies = placed.earlier_copies.max(range.copies.len());
                    placed.was_bundled |= range.bundled() > 0;
                    range.copies.push(copy);
                }
                at = range.end;
            }
            index += 1;
        }
        placed.stale = end - start - placed.new - placed.redundant - placed.already_acked;
        placed
    }

    /// Removes bytes from the acknowledged gaps, and returns how many were in them.
    pub(super) fn take_acked_gaps(&mut self, start: i64, end: i64) -> i64 {
        let gaps = &mut self.acked_gaps;
        let first = gaps.partition_point(|gap| gap.1 <= start);
        let last = gaps.partition_point(|gap| gap.0 < end);
        let (Some(head), Some(tail)) = (gaps.get(first), gaps[..last].last()) else {
            return 0;
        };
        let rest = [(head.0, start), (end, tail.1)];
        let rest = rest.into_iter().filter(|gap| gap.0 < gap.1);
        let taken = gaps.splice(first..last, rest);
        taken.map(|gap| gap.1.min(end) - gap.0.max(start)).sum()
    }

    /// Inserts bytes that no range contains.
    fn fill(&mut self, index: usize, start: i64, end: i64, copy: SentCopy) {
        let ends_packet = end > self.next;
        self.in_flight += u32::from(ends_packet);
        let arrived_unseen = self.has_received(end);
        self.ranges.insert(
            index,
            Range {
                start,
                end,
                copies: smallvec![copy],
                acked_ns: None,
                sacked_ns: None,
                delivery: None,
                ends_packet,
                arrived_unseen,
            },
        );
    }

    /// Whether all bytes before a position were received before they were sent, which happens while
    /// the clock offset is inaccurate.
    #[inline]
    fn has_received(&self, end: i64) -> bool {
        self.in_order.is_some_and(|in_order| end <= in_order)
    }

    /// The first range that ends after a position.
    pub(super) fn index_of(&self, at: i64) -> usize {
        match (self.ranges.front(), self.ranges.back()) {
            (Some(first), _) if first.end > at => 0,
            (_, Some(last)) if last.end <= at => self.ranges.len(),
            (_, Some(last)) if last.start <= at => self.ranges.len() - 1,
            (first, _) => first
                .and_then(|first| self.guess(first, at))
                .unwrap_or_else(|| self.ranges.partition_point(|range| range.end <= at)),
        }
    }

    /// The range that contains `at`, if all earlier ranges are about as long as the first, as in a
    /// greedy stream.
    fn guess(&self, first: &Range, at: i64) -> Option<usize> {
        let index = usize::try_from((at - first.start) / (first.end - first.start).max(1)).ok()?;
        let guessed = self.ranges.get(index)?;
        (guessed.start <= at && at < guessed.end).then_some(index)
    }

    /// Splits the range at `index`, which contains `at`, so that a range starts at `at` and ends at
    /// or before `end`. `index` then refers to it.
    pub(super) fn isolate(&mut self, index: &mut usize, at: i64, end: i64) {
        if self.ranges[*index].start < at {
            self.cut(*index, at);
            *index += 1;
        }
        if self.ranges[*index].end > end {
            self.cut(*index, end);
        }
    }

    pub(super) fn cut(&mut self, index: usize, at: i64) {
        let rest = self.ranges[index].split_off(at);
        self.ranges.insert(index + 1, rest);
    }

    /// The next range.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Range> {
        self.ranges.front()
    }

    /// Whether the next range is finished: acknowledged and, with a receiver's trace, received.
    #[inline]
    pub(crate) fn has_finished(&self) -> bool {
        let Some(first) = self.ranges.front() else {
            return false;
        };
        let settled = match (self.in_order, first.acked_ns) {
            (None, acked_ns) => acked_ns.is_some(),
            (Some(in_order), Some(_)) => first.end <= in_order,
            (Some(in_order), None) => first.copies.is_empty() && first.end <= in_order,
        };
        settled || self.ranges.len() > MAX_RANGES
    }

    /// Drops the next range.
    pub(crate) fn drop_first(&mut self) {
        if let Some(range) = self.ranges.pop_front() {
            self.floor = range.end;
            if range.acked_ns.is_none() && range.ends_packet {
                self.in_flight = self.in_flight.saturating_sub(1);
            }
            if self.ranges.len() >= MAX_RANGES {
                self.skip_missing();
            }
        }
    }
}

/// Effect of an ACK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AckEffect {
    /// Bytes acknowledged for the first time.
    pub(crate) bytes: i64,
    /// Bytes acknowledged for the first time whose transmission is not in the trace.
    pub(crate) unseen: i64,
    /// Transmission time of the last acknowledged packet, if no other packet can have caused the
    /// ACK (P. Karn, C. Partridge, 1987). The packet ends at the ACK, was sent once, and the ACK
    /// covers no other retransmission that it may have waited for.
    pub(crate) sample_from_ns: Option<i64>,
}

/// Effect of a SACK option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct SackEffect {
    /// Bytes covered for the first time.
    pub(crate) bytes: i64,
    /// Bytes received twice, according to the first block (RFC 2883); empty for a FIN.
    pub(crate) duplicate: Option<(i64, i64)>,
}

impl Tracker {
    /// Applies a cumulative ACK of all bytes before `ack`.
    #[inline]
    pub(crate) fn apply_ack(&mut self, ack: i64, at_ns: i64) -> AckEffect {
        if ack <= self.acked {
            return AckEffect::default();
        }
        self.advance(ack, at_ns)
    }

    fn advance(&mut self, ack: i64, at_ns: i64) -> AckEffect {
        let mut advance = AckEffect {
            bytes: ack - self.acked,
            ..AckEffect::default()
        };
        // Bytes from before the trace are not missing in it.
        let mut at = self.acked.max(FIRST);
        let mut retransmitted = false;
        let mut index = self.index_of(self.acked);
        while let Some(range) = self.ranges.get(index)
            && range.start < ack
        {
            if range.end > ack {
                self.cut(index, ack);
            }
            let range = &mut self.ranges[index];
            advance.unseen += add_gap(&mut self.acked_gaps, at, range.start);
            at = range.end;
            range.acked_ns = Some(at_ns);
            self.in_flight = self.in_flight.saturating_sub(u32::from(range.ends_packet));
            retransmitted |= range.was_retransmitted();
            advance.sample_from_ns = match range.sacked_ns {
                None if !retransmitted && range.end == ack => range.unique_send_time_ns(),
                _ => None,
            };
            index += 1;
        }
        advance.unseen += add_gap(&mut self.acked_gaps, at, ack);
        self.acked = ack;
        self.next = self.next.max(ack);
        self.sacked_gaps.retain(|&(_, end)| end > ack);
        advance
    }

    /// Applies the blocks of a SACK option, as positions, of an ACK with this acknowledgement
    /// position. `end`: after the last byte of the stream, if a FIN shows it.
    #[inline]
    pub(crate) fn apply_sack(
        &mut self,
        ack: i64,
        blocks: &[(i64, i64)],
        end: i64,
        at_ns: i64,
    ) -> SackEffect {
        if blocks.is_empty() {
            return SackEffect::default();
        }
        self.cover(ack, blocks, end, at_ns)
    }

    fn cover(&mut self, ack: i64, blocks: &[(i64, i64)], end: i64, at_ns: i64) -> SackEffect {
        let mut sacked = SackEffect::default();
        let mut seen = [(0, 0); 4];
        for (index, &(left, right)) in blocks.iter().enumerate() {
            let inside_second = blocks
                .get(1)
                .is_some_and(|&(second, end)| second <= left && right <= end);
            if right <= left || right > self.next.saturating_add(MAX_WINDOW) {
                continue;
            }
            let is_duplicate = index == 0 && (right <= ack || inside_second);
            // A block may cover the FIN's sequence number, which is not a byte.
            let right = right.min(end);
            if is_duplicate {
                sacked.duplicate = Some((left, right));
                continue;
            }
            if let Some(slot) = seen.get_mut(index) {
                *slot = (left, right);
            }
            let known = self
                .blocks
                .iter()
                .filter(|(start, end)| (*start..*end).contains(&left))
                .map(|&(_, end)| end)
                .max();
            sacked.bytes += self.mark(known.unwrap_or(left).max(ack), right, at_ns);
        }
        self.blocks = seen;
        sacked
    }

    fn mark(&mut self, mut at: i64, right: i64, at_ns: i64) -> i64 {
        let mut bytes = 0;
        let mut index = self.index_of(at);
        while at < right {
            let gap_end = self.ranges.get(index).map_or(right, |range| range.start);
            if gap_end > at {
                bytes += add_gap(&mut self.sacked_gaps, at, gap_end.min(right));
                at = gap_end;
                continue;
            }
            self.isolate(&mut index, at, right);
            let range = &mut self.ranges[index];
            if range.sacked_ns.is_none() && range.acked_ns.is_none() {
                range.sacked_ns = Some(at_ns);
                bytes += range.end - range.start;
            }
            at = range.end;
            index += 1;
        }
        bytes
    }
}

/// Adds bytes that no range contains to the gaps of one kind. Returns how many are new there.
#[inline]
fn add_gap(gaps: &mut Vec<(i64, i64)>, left: i64, right: i64) -> i64 {
    if left < right {
        merge_gap(gaps, left, right)
    } else {
        0
    }
}

fn merge_gap(gaps: &mut Vec<(i64, i64)>, left: i64, right: i64) -> i64 {
    let first = gaps.partition_point(|&(_, end)| end < left);
    let last = gaps.partition_point(|&(start, _)| start <= right);
    let known = gaps.drain(first..last);
    let (mut merged, mut bytes) = ((left, right), right - left);
    for (start, end) in known {
        bytes -= (end.min(right) - start.max(left)).max(0);
        merged = (merged.0.min(start), merged.1.max(end));
    }
    gaps.insert(first, merged);
    if gaps.len() > MAX_GAPS {
        gaps.remove(0);
    }
    bytes
}
