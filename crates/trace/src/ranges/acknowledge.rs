//! ACK and SACK on the ranges that they cover.

use super::Tracker;

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
