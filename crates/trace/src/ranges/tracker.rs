//! The ranges of one direction: what is sent, and the ACKs and SACK blocks that cover it.

use std::collections::VecDeque;

use smallvec::smallvec;

use super::{Copy, CopyKind, Range};
use crate::packet::LARGEST_WINDOW;

/// Ranges of one direction that are not finished, in order of position.
#[derive(Debug)]
pub(crate) struct Tracker {
    pub(super) ranges: VecDeque<Range>,
    /// All before this is finished, or from before the trace.
    pub(super) floor: i64,
    /// All before this is acknowledged.
    pub(super) acked: i64,
    /// Behind the last byte that was sent.
    pub(super) next: i64,
    /// Packets with a new byte that are not acknowledged.
    pub(super) in_flight: u32,
    /// All before this the receiver's application could read; `None` without a receiver's trace.
    pub(super) in_order: Option<i64>,
    /// The blocks of the last SACK option.
    pub(super) blocks: [(i64, i64); 4],
}

/// How the bytes of a packet divide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Placed {
    /// Never sent before.
    pub(crate) new: i64,
    /// Sent before and not finished.
    pub(crate) redundant: i64,
    /// Finished, or from before the trace.
    pub(crate) stale: i64,
    /// Never sent before, and yet acknowledged earlier in the trace: new, but in no range.
    pub(crate) late: i64,
    /// How many copies there had been of the redundant byte that had the most.
    pub(crate) earlier_copies: usize,
    /// Whether the packet ended above all that was sent before it.
    pub(crate) advanced: bool,
}

impl Placed {
    /// What it makes of the whole packet.
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

/// Without ACKs in the trace nothing would ever be finished, so more ranges than this are not
/// kept. In segments of 1,460 bytes they are a window of 180 MiB.
const MOST_RANGES: usize = 1 << 17;

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
        }
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

    /// Whether nothing has been entered.
    pub(crate) fn is_fresh(&self) -> bool {
        self.ranges.is_empty() && self.floor == FIRST && self.next == FIRST
    }

    /// Whether a position can belong to this stream at this time.
    pub(crate) fn is_near(&self, position: i64) -> bool {
        position.abs_diff(self.next) <= LARGEST_WINDOW.unsigned_abs()
    }

    /// Bytes sent and not acknowledged.
    #[inline]
    pub(crate) fn outstanding(&self) -> i64 {
        (self.next - self.acked).max(0)
    }

    /// Enters the payload of a packet.
    #[inline]
    pub(crate) fn sent(&mut self, begin: i64, end: i64, at_ns: i64, packet: u64) -> Placed {
        let placed = if begin >= self.next {
            self.append(begin, end, at_ns, packet);
            Placed {
                new: end - begin,
                advanced: true,
                ..Placed::default()
            }
        } else {
            self.sent_again(begin, end, at_ns, packet)
        };
        self.next = self.next.max(end);
        placed
    }

    #[inline]
    fn append(&mut self, begin: i64, end: i64, at_ns: i64, packet: u64) {
        self.in_flight += 1;
        let arrived_unseen = self.has_received(end);
        self.ranges.push_back(Range {
            begin,
            end,
            copies: smallvec![Copy {
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

    fn sent_again(&mut self, begin: i64, end: i64, at_ns: i64, packet: u64) -> Placed {
        let mut placed = Placed {
            stale: (self.floor.min(end) - begin).max(0),
            advanced: end > self.next,
            ..Placed::default()
        };
        let copy = Copy {
            at_ns,
            packet,
            kind: if placed.advanced {
                CopyKind::Bundled
            } else {
                CopyKind::Retransmission
            },
        };
        let mut at = begin.max(self.floor);
        let mut index = self.index_of(at);
        while at < end {
            let gap_end = self.ranges.get(index).map_or(end, |range| range.begin);
            if gap_end > at {
                if at < self.acked {
                    let stop = gap_end.min(end).min(self.acked);
                    placed.late += stop - at;
                    at = stop;
                    continue;
                }
                let stop = gap_end.min(end);
                let copy = Copy {
                    kind: CopyKind::New,
                    ..copy
                };
                placed.new += stop - at;
                self.fill(index, at, stop, copy);
                at = stop;
            } else {
                self.isolate(&mut index, at, end);
                let range = &mut self.ranges[index];
                if range.copies.is_empty() {
                    placed.new += range.end - range.begin;
                    range.copies.push(Copy {
                        kind: CopyKind::New,
                        ..copy
                    });
                } else {
                    placed.redundant += range.end - range.begin;
                    placed.earlier_copies = placed.earlier_copies.max(range.copies.len());
                    range.copies.push(copy);
                }
                at = range.end;
            }
            index += 1;
        }
        placed
    }

    /// Puts bytes that no range has into their place.
    fn fill(&mut self, index: usize, begin: i64, end: i64, copy: Copy) {
        let ends_packet = end > self.next;
        self.in_flight += u32::from(ends_packet);
        let arrived_unseen = self.has_received(end);
        self.ranges.insert(
            index,
            Range {
                begin,
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

    /// Whether all before a position was received before it was sent, as it seems where the clocks
    /// are not known well yet.
    #[inline]
    fn has_received(&self, end: i64) -> bool {
        self.in_order.is_some_and(|in_order| end <= in_order)
    }

    /// The first range that does not end before a position.
    pub(super) fn index_of(&self, at: i64) -> usize {
        match (self.ranges.front(), self.ranges.back()) {
            (Some(first), _) if first.end > at => 0,
            (_, Some(last)) if last.end <= at => self.ranges.len(),
            (_, Some(last)) if last.begin <= at => self.ranges.len() - 1,
            (first, _) => first
                .and_then(|first| self.guess(first, at))
                .unwrap_or_else(|| self.ranges.partition_point(|range| range.end <= at)),
        }
    }

    /// The range that holds `at`, if all before it are about as long as the first one, as the
    /// segments of a greedy stream are.
    fn guess(&self, first: &Range, at: i64) -> Option<usize> {
        let index = usize::try_from((at - first.begin) / (first.end - first.begin).max(1)).ok()?;
        let guessed = self.ranges.get(index)?;
        (guessed.begin <= at && at < guessed.end).then_some(index)
    }

    /// Cuts the range at `index`, which holds `at`, so that one begins at `at` and ends at or
    /// before `end`; `index` is that one's afterwards.
    pub(super) fn isolate(&mut self, index: &mut usize, at: i64, end: i64) {
        if self.ranges[*index].begin < at {
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

    /// Whether the next range is finished: acknowledged, and, where there is a receiver's trace,
    /// received.
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
        settled || self.ranges.len() > MOST_RANGES
    }

    /// Forgets the next range.
    pub(crate) fn drop_first(&mut self) {
        if let Some(range) = self.ranges.pop_front() {
            self.floor = range.end;
            if range.acked_ns.is_none() && range.ends_packet {
                self.in_flight = self.in_flight.saturating_sub(1);
            }
            if self.ranges.len() >= MOST_RANGES {
                self.skip_missing();
            }
        }
    }
}

/// What an ACK did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Advance {
    /// Bytes that it acknowledged first.
    pub(crate) bytes: i64,
    /// Bytes that it acknowledged first and that the trace does not show as sent.
    pub(crate) unseen: i64,
    /// When the last packet that it acknowledged was sent, if no other packet can have made the
    /// peer send it (P. Karn, C. Partridge, 1987): it ends where the ACK does, was sent once, and
    /// nothing else that the ACK covers was sent again, which it may have waited for.
    pub(crate) sample_from_ns: Option<i64>,
}

/// What a SACK option did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sacked {
    /// Bytes that no block had covered before.
    pub(crate) bytes: i64,
    /// The bytes that came twice, by the first block (RFC 2883).
    pub(crate) duplicate: Option<(i64, i64)>,
}

impl Tracker {
    /// Enters a cumulative acknowledgement of all before `ack`.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: i64, at_ns: i64) -> Advance {
        if ack <= self.acked {
            return Advance::default();
        }
        self.advance(ack, at_ns)
    }

    fn advance(&mut self, ack: i64, at_ns: i64) -> Advance {
        let mut advance = Advance {
            bytes: ack - self.acked,
            ..Advance::default()
        };
        let (mut covered, mut again) = (0, false);
        let mut index = self.index_of(self.acked);
        while let Some(range) = self.ranges.get(index)
            && range.begin < ack
        {
            if range.end > ack {
                self.cut(index, ack);
            }
            let range = &mut self.ranges[index];
            covered += range.end - range.begin.max(self.acked);
            range.acked_ns = Some(at_ns);
            self.in_flight = self.in_flight.saturating_sub(u32::from(range.ends_packet));
            again |= range.was_retransmitted();
            advance.sample_from_ns = match range.sacked_ns {
                None if !again && range.end == ack => range.sent_to_its_end_ns(),
                _ => None,
            };
            index += 1;
        }
        advance.unseen = advance.bytes - covered;
        self.acked = ack;
        self.next = self.next.max(ack);
        advance
    }

    /// Enters the blocks of a SACK option, as positions, of an ACK that acknowledges all before
    /// `ack`.
    #[inline]
    pub(crate) fn selectively_acknowledged(
        &mut self,
        ack: i64,
        blocks: &[(i64, i64)],
        at_ns: i64,
    ) -> Sacked {
        if blocks.is_empty() {
            return Sacked::default();
        }
        self.cover(ack, blocks, at_ns)
    }

    fn cover(&mut self, ack: i64, blocks: &[(i64, i64)], at_ns: i64) -> Sacked {
        let mut sacked = Sacked::default();
        let mut seen = [(0, 0); 4];
        for (place, &(left, right)) in blocks.iter().enumerate() {
            let inside_second = blocks
                .get(1)
                .is_some_and(|&(second, end)| second <= left && right <= end);
            if right <= left || right > self.next {
                continue;
            }
            if place == 0 && (right <= ack || inside_second) {
                sacked.duplicate = Some((left, right));
                continue;
            }
            if let Some(slot) = seen.get_mut(place) {
                *slot = (left, right);
            }
            let known = self
                .blocks
                .iter()
                .filter(|(begin, end)| (*begin..*end).contains(&left))
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
        while at < right
            && let Some(range) = self.ranges.get(index)
            && range.begin < right
        {
            at = at.max(range.begin);
            self.isolate(&mut index, at, right);
            let range = &mut self.ranges[index];
            if range.sacked_ns.is_none() && range.acked_ns.is_none() {
                range.sacked_ns = Some(at_ns);
                bytes += range.end - range.begin;
            }
            at = range.end;
            index += 1;
        }
        bytes
    }
}
