//! Ground truth of a simulation: packets sent, and their arrival.

use std::time::{Duration, Instant};

use super::receiver::{Ack, Dsack, Range};

/// Segment as first sent by TCP.
#[derive(Debug, Clone)]
pub struct Segment {
    pub range: Range,
    /// Packet that carried the segment as new data.
    pub packet: usize,
    /// True if TCP has retransmitted any part of the segment.
    pub retransmitted: bool,
    /// True if a later bundle carried the segment too.
    pub bundled: bool,
    /// Packet that first delivered the whole segment.
    pub delivered_by: Option<usize>,
    /// True if an ACK has acknowledged the segment selectively.
    pub sacked: bool,
    /// Time at which the segment was detected as lost and repaired.
    pub found_at: Option<Instant>,
    /// True if a later DSACK showed that the segment was only late.
    pub refuted: bool,
}

/// Kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// New data from this position; earlier data is a bundle.
    New { from: u32 },
    /// Retransmission up to this position; later data is bundled.
    Retransmission { until: u32 },
}

#[derive(Debug, Clone)]
pub struct Packet {
    pub range: Range,
    pub kind: Kind,
    /// The sender's timestamp, if the option is in use.
    pub clock: u32,
    pub sent_at: Instant,
    /// How often the packet left once more.
    pub copies: u8,
    /// Number of its copies whose report the sender received.
    pub reported_copies: u8,
    /// True if the ACK with the packet's DSACK was lost or overtaken.
    pub dsack_lost: bool,
    /// True if the DSACK has no room for all duplicate ranges of the packet.
    pub dsack_incomplete: bool,
    /// Ranges of the packet that were new to the receiver at its first arrival.
    pub missing: Option<Vec<Range>>,
}

impl Packet {
    pub fn is_bundle(&self) -> bool {
        matches!(self.kind, Kind::New { from } if from > self.range.0)
    }

    /// Returns true if the packet carries other segments, with new data or with a retransmission.
    pub fn carries_others(&self) -> bool {
        match self.kind {
            Kind::New { .. } => self.is_bundle(),
            Kind::Retransmission { until } => until < self.range.1,
        }
    }
}

#[derive(Default)]
pub struct Ledger {
    pub segments: Vec<Segment>,
    pub packets: Vec<Packet>,
    /// Position before which everything has been acknowledged to the kernel.
    pub acknowledged: u32,
    /// True if the last ACK answers a segment received out of order.
    pub acks_gap: bool,
    episode: RetransmissionEpisode,
}

/// Retransmissions since everything was last acknowledged.
#[derive(Default)]
struct RetransmissionEpisode {
    end: u32,
    /// End of the sent data, and the sender's timestamp, at the first of them.
    sent: u32,
    clock: u32,
}

/// Packet that an ACK answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckCause {
    Bundle,
    /// TCP's retransmission of the bundle's new segment.
    Retransmission,
    Either,
    /// Neither: the ACK answers a segment received out of order.
    Another,
}

fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.1 && b.0 < a.1
}

impl Ledger {
    pub fn new() -> Self {
        Self {
            acknowledged: 1,
            ..Self::default()
        }
    }

    /// Returns the end of the sent data.
    pub fn end(&self) -> u32 {
        self.segments.last().map_or(1, |segment| segment.range.1)
    }

    /// Records a packet that left. With `may_bundle`, retransmissions may be bundled. Returns an error
    /// that describes an invalid packet.
    pub fn record_sent(
        &mut self,
        range: Range,
        may_bundle: bool,
        clock: u32,
    ) -> Result<usize, String> {
        let end = self.end();
        let id = self.packets.len();
        let kind = if range.1 > end {
            self.record_new(range, end, id)?;
            Kind::New { from: end }
        } else {
            self.record_retransmission(range, may_bundle, clock)
        };
        self.packets.push(Packet {
            range,
            kind,
            clock,
            sent_at: Instant::now(),
            copies: 0,
            reported_copies: 0,
            dsack_lost: false,
            dsack_incomplete: false,
            missing: None,
        });
        Ok(id)
    }

    /// Records a packet that is another copy of the last one, which left just now. Returns that one.
    pub fn record_copy(&mut self, range: Range, max_copies: u8) -> Option<usize> {
        const JUST_NOW: Duration = Duration::from_millis(1);
        let last = self.packets.last_mut()?;
        let is_copy = last.range == range
            && matches!(last.kind, Kind::New { .. })
            && last.copies < max_copies
            && last.sent_at.elapsed() < JUST_NOW;
        last.copies += u8::from(is_copy);
        is_copy.then_some(self.packets.len() - 1)
    }

    /// Records a DSACK that the sender received. A retransmission may cause the same one as a copy.
    pub fn record_report(&mut self, dsack: &Dsack) {
        let retransmitted = self.segments.iter().filter(|at| at.retransmitted);
        let is_again = retransmitted
            .map(|at| at.range)
            .any(|at| overlap(at, dsack.range));
        let packet = &mut self.packets[dsack.packet];
        if packet.range == dsack.range && packet.reported_copies < packet.copies && !is_again {
            packet.reported_copies += 1;
        }
    }

    /// Returns the number of copies, of segments from a position on, whose report the sender has not
    /// received. No more losses may be estimated up to now.
    pub fn unreported_copies(&self, from: u32) -> u64 {
        let packets = self.packets.iter().filter(|at| at.range.1 > from);
        packets
            .map(|at| u64::from(at.copies - at.reported_copies))
            .sum()
    }

    fn record_new(&mut self, range: Range, end: u32, packet: usize) -> Result<(), String> {
        if range.0 > end {
            return Err(format!("{range:?} leaves a gap after {end}"));
        }
        if range.0 < end && !self.segments.iter().any(|at| at.range.0 == range.0) {
            return Err(format!("{range:?} does not start at a segment"));
        }
        for segment in &mut self.segments {
            segment.bundled |= segment.range.0 >= range.0;
        }
        self.segments.push(Segment {
            range: (end, range.1),
            packet,
            retransmitted: false,
            bundled: false,
            delivered_by: None,
            sacked: false,
            found_at: None,
            refuted: false,
        });
        Ok(())
    }

    fn record_retransmission(&mut self, range: Range, may_bundle: bool, clock: u32) -> Kind {
        let mut until = range.1;
        if may_bundle && let Some(first) = self.segments.iter().find(|at| at.range.1 > range.0) {
            until = until.min(first.range.1);
        }
        if self.acknowledged >= self.episode.end {
            self.episode.sent = self.end();
            self.episode.clock = clock;
        }
        self.episode.end = self.episode.end.max(until);
        for segment in &mut self.segments {
            segment.retransmitted |= overlap(segment.range, (range.0, until));
            segment.bundled |= overlap(segment.range, (until, range.1));
        }
        Kind::Retransmission { until }
    }

    /// Returns segments that TCP retransmitted although a bundle had delivered them. Segments of a
    /// bundle whose DSACK is lost count too, because the sender cannot tell the difference.
    pub fn retransmitted_and_repaired(&self) -> impl Iterator<Item = &Segment> {
        let is_repaired = |segment: &&Segment| {
            let delivered_by = segment
                .delivered_by
                .filter(|packet| *packet != segment.packet);
            let is_by_bundle = delivered_by.is_some_and(|packet| self.packets[packet].is_bundle());
            let has = |range: Range| range.0 <= segment.range.0 && segment.range.1 < range.1;
            let unreported = self.packets.iter().filter(|packet| packet.dsack_lost);
            let unreported = unreported.filter(|packet| packet.is_bundle());
            let is_unreported = unreported.map(|packet| packet.range).any(has);
            segment.retransmitted && (is_by_bundle || is_unreported)
        };
        self.segments.iter().filter(is_repaired)
    }

    /// Records a packet that arrived, and the ranges of it that were new.
    pub fn record_arrival(&mut self, id: usize, missing: Vec<Range>) {
        let range = self.packets[id].range;
        for segment in &mut self.segments {
            let (start, end) = segment.range;
            if range.0 <= start
                && end <= range.1
                && missing.iter().any(|at| overlap(*at, (start, end)))
            {
                segment.delivered_by.get_or_insert(id);
            }
        }
        self.packets[id].missing.get_or_insert(missing);
    }

    /// Records the selective acknowledgements of an ACK.
    pub fn record_sack(&mut self, ack: &Ack) {
        let has = |block: &Range, at: Range| block.0 <= at.0 && at.1 <= block.1;
        self.acks_gap = false;
        for segment in &mut self.segments {
            let first = ack.blocks.first();
            self.acks_gap |= !segment.sacked && first.is_some_and(|it| has(it, segment.range));
            let mut blocks = ack.blocks.iter();
            segment.sacked |= blocks.any(|block| has(block, segment.range));
        }
    }

    /// Returns the segment that ends at an ACK number.
    pub fn ends_at(&self, number: u32) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&number, |at| at.range.1);
        at.ok().map(|at| &self.segments[at])
    }

    /// Returns the packet whose new data ends at an ACK, if it carried a bundle.
    pub fn bundle_that_ends(&self, ack: &Ack) -> Option<(usize, AckCause)> {
        let last = self.ends_at(ack.number)?;
        let is_bundle = self.packets[last.packet].is_bundle();
        let is_new = ack.number > self.acknowledged;
        (is_new && is_bundle).then(|| (last.packet, self.ack_cause(ack, last)))
    }

    /// Returns which packet an ACK answers: the bundle, a retransmission of only its last segment,
    /// or neither. It restates pillion's rule in a few lines.
    fn ack_cause(&self, ack: &Ack, last: &Segment) -> AckCause {
        let RetransmissionEpisode { sent, clock, .. } = self.episode;
        let packet = &self.packets[last.packet];
        let echoes_before = |clock: u32| ack.echo.wrapping_sub(clock).cast_signed() < 0;
        let is_in_order = last.range.1 == sent && packet.range.0 <= self.acknowledged;
        if self.acks_gap && ack.dsack.is_none() {
            AckCause::Another
        } else if !last.retransmitted {
            AckCause::Bundle
        } else if last.sacked {
            AckCause::Either
        } else if ack.dsack.is_some_and(|at| at.range.0 >= last.range.0) {
            AckCause::Retransmission
        } else if clock == 0 || ack.echo == 0 || last.range.1 > sent {
            AckCause::Either
        } else if !echoes_before(clock) || is_in_order && echoes_before(packet.clock) {
            AckCause::Retransmission
        } else {
            AckCause::Bundle
        }
    }

    /// Returns the segments that an ACK reveals as lost and repaired under the DSACK rule.
    pub fn hidden_by_dsack(&self, ack: &Ack, packet: usize) -> Vec<usize> {
        let Packet { range, kind, .. } = self.packets[packet].clone();
        let Kind::New { from } = kind else {
            return Vec::new();
        };
        let mut lost = (range.0.max(self.acknowledged), from);
        if let Some(dsack) = ack.dsack {
            let is_before = dsack.range.1 <= range.0;
            if dsack.range.0 >= from || is_before && !self.is_pending(dsack.range, range.0) {
                return Vec::new(); // the DSACK of another packet replaced this one
            }
            if is_before {
                // The bundle's own DSACK would have replaced this one.
            } else if dsack.range.0 > lost.0 {
                lost.1 = lost.1.min(dsack.range.0);
            } else {
                lost.0 = lost.0.max(dsack.range.1);
            }
        }
        self.unexplained_in(lost)
    }

    /// Returns whether this is the pending DSACK of an earlier bundle, whose packet ended before
    /// this position and was not acknowledged yet.
    fn is_pending(&self, dsack: Range, until: u32) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|at| {
            let packet = &self.packets[at.packet];
            let is_its_dsack = packet.range == (dsack.0, at.range.1) && at.range.0 == dsack.1;
            let is_new = at.range.1 > self.acknowledged && at.range.1 <= until;
            is_its_dsack && is_new && packet.is_bundle() && !at.retransmitted
        })
    }

    /// Returns the segments that an ACK reveals as lost and repaired under the published rule: an
    /// ACK of several segments.
    pub fn hidden_by_ack(&self, packet: usize) -> Vec<usize> {
        match self.packets[packet].kind {
            Kind::New { from } => self.unexplained_in((self.acknowledged, from)),
            Kind::Retransmission { .. } => Vec::new(),
        }
    }

    /// Returns the segments in a range whose delivery nothing else explains.
    fn unexplained_in(&self, (start, end): Range) -> Vec<usize> {
        let segments = self.segments.iter().enumerate();
        let starting_in = segments.filter(|(_, at)| (start..end).contains(&at.range.0));
        let unexplained = starting_in.filter(|(_, at)| !at.retransmitted && !at.sacked);
        unexplained.map(|(at, _)| at).collect()
    }

    /// Returns whether a DSACK must reach TCP, because neither a bundle nor a copy caused it. Returns
    /// `None` if a bundle caused it and timestamps may decide.
    pub fn must_reach_tcp(&self, ack: &Ack, dsack: Dsack) -> Option<bool> {
        let touched = || {
            self.segments
                .iter()
                .filter(|at| overlap(at.range, dsack.range))
        };
        if !touched().any(|at| at.retransmitted) {
            let packet = &self.packets[dsack.packet];
            let is_of_copy = packet.copies > 0 && packet.range == dsack.range;
            return Some(!is_of_copy && !touched().all(|at| at.bundled));
        }
        let matches_packet = self.ends_at(ack.number).is_some_and(|last| {
            ack.number > self.acknowledged
                && !self.has_retransmission_to(ack.number)
                && self.packets[last.packet].range.0 == dsack.range.0
                && dsack.range.1 <= last.range.0
        });
        let is_again = matches!(self.packets[dsack.packet].kind, Kind::Retransmission { .. });
        match (matches_packet, is_again || ack.echo == 0) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        }
    }

    /// Returns the range that a DSACK proves to have arrived, in an ACK that acknowledges nothing
    /// new. A DSACK of a whole bundle proves only its new bytes, unless it may be that of the next
    /// bundle, whose ACK was overtaken.
    pub fn proved_by(&self, dsack: &Dsack, ack: &Ack) -> Dsack {
        let mut proved = *dsack;
        let is_next_bundle = |at: &Packet| match at.kind {
            Kind::New { from } => at.range.1 == ack.number && (at.range.0, from) == dsack.range,
            Kind::Retransmission { .. } => false,
        };
        let packet = &self.packets[dsack.packet];
        if let Kind::New { from } = packet.kind
            && dsack.range == packet.range
            && !self.packets.iter().any(is_next_bundle)
        {
            proved.range.0 = from;
        }
        proved
    }

    fn has_retransmission_to(&self, end: u32) -> bool {
        let is_again = |at: &Packet| matches!(at.kind, Kind::Retransmission { .. });
        let mut packets = self.packets.iter();
        packets.any(|at| is_again(at) && at.range.1 == end)
    }
}
