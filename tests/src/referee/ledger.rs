//! What was sent, and what came of it: the truth, from outside.

use std::time::Instant;

use super::receiver::{Ack, Range, Report};

/// A segment as TCP first sent it.
#[derive(Debug, Clone)]
pub struct Segment {
    pub range: Range,
    /// The packet in which the segment left as new data.
    pub packet: usize,
    /// True if TCP has retransmitted the segment, all of it or a part.
    pub retransmitted: bool,
    /// True if a later packet carried the segment as well, as part of a bundle.
    pub rode_along: bool,
    /// The packet that first brought all of the segment to the receiver.
    pub came_with: Option<usize>,
    /// True if an ACK has told that the segment had come behind a gap.
    pub sacked: bool,
    /// When the segment was counted as lost, and repaired by a bundle.
    pub found_at: Option<Instant>,
    /// True if it was reported as come late, after it had been found to be lost.
    pub refuted: bool,
}

/// How a packet came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// New data, from this position on; what is before it is a bundle.
    New { from: u32 },
    /// A retransmission, up to this position; from there on, others ride along.
    Retransmission { until: u32 },
}

#[derive(Debug, Clone)]
pub struct Packet {
    pub range: Range,
    pub kind: Kind,
    /// The sender's clock as it left, if it tells.
    pub clock: u32,
    /// True if the report that the packet caused was in an ACK that was lost or overtaken.
    pub report_lost: bool,
    /// True if the packet brought ranges twice that its report has no room for.
    pub report_incomplete: bool,
    /// What the receiver lacked of the packet when it first arrived.
    pub lacked: Option<Vec<Range>>,
}

impl Packet {
    pub fn is_bundle(&self) -> bool {
        matches!(self.kind, Kind::New { from } if from > self.range.0)
    }

    /// True if other segments ride along, with new data or with a retransmission.
    pub fn takes_others(&self) -> bool {
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
    /// Position before which all has been acknowledged to the kernel.
    pub acknowledged: u32,
    /// True if the last ACK answers what has come behind a gap.
    pub answers_gap: bool,
    again: Again,
}

/// What TCP retransmitted while some of it was not acknowledged.
#[derive(Default)]
struct Again {
    end: u32,
    /// The position behind all that was sent, and the sender's clock, as the first of it left.
    sent: u32,
    clock: u32,
}

/// What an ACK tells to have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrived {
    Bundle,
    /// TCP's retransmission of the bundle's own segment.
    Retransmission,
    Either,
    /// Neither: the ACK answers what has come behind a gap.
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

    /// The position behind all that was sent.
    pub fn end(&self) -> u32 {
        self.segments.last().map_or(1, |segment| segment.range.1)
    }

    /// Takes note of a packet that left. With `along`, others may ride along with a retransmission.
    /// Returns what is wrong with the packet, if anything is.
    pub fn leaves(&mut self, range: Range, along: bool, clock: u32) -> Result<usize, String> {
        let end = self.end();
        let id = self.packets.len();
        let kind = if range.1 > end {
            self.leaves_new(range, end, id)?;
            Kind::New { from: end }
        } else {
            self.leaves_again(range, along, clock)
        };
        self.packets.push(Packet {
            range,
            kind,
            clock,
            report_lost: false,
            report_incomplete: false,
            lacked: None,
        });
        Ok(id)
    }

    fn leaves_new(&mut self, range: Range, end: u32, packet: usize) -> Result<(), String> {
        if range.0 > end {
            return Err(format!("{range:?} leaves a gap behind {end}"));
        }
        if range.0 < end && !self.segments.iter().any(|at| at.range.0 == range.0) {
            return Err(format!("{range:?} does not begin with a segment"));
        }
        for segment in &mut self.segments {
            segment.rode_along |= segment.range.0 >= range.0;
        }
        self.segments.push(Segment {
            range: (end, range.1),
            packet,
            retransmitted: false,
            rode_along: false,
            came_with: None,
            sacked: false,
            found_at: None,
            refuted: false,
        });
        Ok(())
    }

    fn leaves_again(&mut self, range: Range, along: bool, clock: u32) -> Kind {
        let mut until = range.1;
        if along && let Some(first) = self.segments.iter().find(|at| at.range.1 > range.0) {
            until = until.min(first.range.1);
        }
        if self.acknowledged >= self.again.end {
            self.again.sent = self.end();
            self.again.clock = clock;
        }
        self.again.end = self.again.end.max(until);
        for segment in &mut self.segments {
            segment.retransmitted |= overlap(segment.range, (range.0, until));
            segment.rode_along |= overlap(segment.range, (until, range.1));
        }
        Kind::Retransmission { until }
    }

    /// Segments that TCP retransmitted although a bundle had delivered them. Segments of a bundle whose
    /// report is lost count too, because the sender cannot tell the difference.
    pub fn retransmitted_and_repaired(&self) -> impl Iterator<Item = &Segment> {
        let is_repaired = |segment: &&Segment| {
            let came_with = segment.came_with.filter(|packet| *packet != segment.packet);
            let is_by_bundle = came_with.is_some_and(|packet| self.packets[packet].is_bundle());
            let has = |range: Range| range.0 <= segment.range.0 && segment.range.1 < range.1;
            let unreported = self.packets.iter().filter(|packet| packet.report_lost);
            let unreported = unreported.filter(|packet| packet.is_bundle());
            let is_unreported = unreported.map(|packet| packet.range).any(has);
            segment.retransmitted && (is_by_bundle || is_unreported)
        };
        self.segments.iter().filter(is_repaired)
    }

    /// Takes note of a packet that arrived, and of the ranges of it that the receiver lacked.
    pub fn arrives(&mut self, id: usize, lacked: Vec<Range>) {
        let range = self.packets[id].range;
        for segment in &mut self.segments {
            let (start, end) = segment.range;
            if range.0 <= start
                && end <= range.1
                && lacked.iter().any(|at| overlap(*at, (start, end)))
            {
                segment.came_with.get_or_insert(id);
            }
        }
        self.packets[id].lacked.get_or_insert(lacked);
    }

    /// Takes note of what an ACK acknowledges selectively.
    pub fn sacks(&mut self, ack: &Ack) {
        let has = |block: &Range, at: Range| block.0 <= at.0 && at.1 <= block.1;
        self.answers_gap = false;
        for segment in &mut self.segments {
            let first = ack.blocks.first();
            self.answers_gap |= !segment.sacked && first.is_some_and(|it| has(it, segment.range));
            let mut blocks = ack.blocks.iter();
            segment.sacked |= blocks.any(|block| has(block, segment.range));
        }
    }

    /// The segment that ends where an ACK does.
    pub fn ends_at(&self, number: u32) -> Option<&Segment> {
        let at = self.segments.binary_search_by_key(&number, |at| at.range.1);
        at.ok().map(|at| &self.segments[at])
    }

    /// The packet whose new data an ACK ends with, if it carried a bundle.
    pub fn bundle_that_ends(&self, ack: &Ack) -> Option<(usize, Arrived)> {
        let last = self.ends_at(ack.number)?;
        let is_bundle = self.packets[last.packet].is_bundle();
        let is_new = ack.number > self.acknowledged;
        (is_new && is_bundle).then(|| (last.packet, self.arrived(ack, last)))
    }

    /// Whether it was the bundle that came, or a retransmission of the last segment alone, or neither:
    /// the rule, in a few lines.
    fn arrived(&self, ack: &Ack, last: &Segment) -> Arrived {
        let Again { sent, clock, .. } = self.again;
        let packet = &self.packets[last.packet];
        let echoes_before = |clock: u32| ack.echo.wrapping_sub(clock).cast_signed() < 0;
        let is_in_order = last.range.1 == sent && packet.range.0 <= self.acknowledged;
        if self.answers_gap && ack.report.is_none() {
            Arrived::Another
        } else if !last.retransmitted {
            Arrived::Bundle
        } else if last.sacked {
            Arrived::Either
        } else if ack.report.is_some_and(|at| at.range.0 >= last.range.0) {
            Arrived::Retransmission
        } else if clock == 0 || ack.echo == 0 || last.range.1 > sent {
            Arrived::Either
        } else if !echoes_before(clock) || is_in_order && echoes_before(packet.clock) {
            Arrived::Retransmission
        } else {
            Arrived::Bundle
        }
    }

    /// The segments that an ACK tells to be lost and repaired, by the reports of duplicates: the
    /// rule, in a few lines.
    pub fn hidden_by_report(&self, ack: &Ack, packet: usize) -> Vec<usize> {
        let Packet { range, kind, .. } = self.packets[packet].clone();
        let Kind::New { from } = kind else {
            return Vec::new();
        };
        let mut lost = (range.0.max(self.acknowledged), from);
        if let Some(report) = ack.report {
            let is_before = report.range.1 <= range.0;
            if report.range.0 >= from || is_before && !self.is_pending(report.range, range.0) {
                return Vec::new(); // the report of another one, in place of this one's
            }
            if is_before {
                // This one's would have taken its place.
            } else if report.range.0 > lost.0 {
                lost.1 = lost.1.min(report.range.0);
            } else {
                lost.0 = lost.0.max(report.range.1);
            }
        }
        self.unaccounted_in(lost)
    }

    /// Whether it is the report of an earlier bundle, of a packet that ended before this position,
    /// which nothing has acknowledged before.
    fn is_pending(&self, report: Range, until: u32) -> bool {
        let mut segments = self.segments.iter();
        segments.any(|at| {
            let packet = &self.packets[at.packet];
            let is_of_it = packet.range == (report.0, at.range.1) && at.range.0 == report.1;
            let is_new = at.range.1 > self.acknowledged && at.range.1 <= until;
            is_of_it && is_new && packet.is_bundle() && !at.retransmitted
        })
    }

    /// The segments that an ACK tells to be lost and repaired, by the published rule: an ACK of
    /// several segments.
    pub fn hidden_by_ack(&self, packet: usize) -> Vec<usize> {
        match self.packets[packet].kind {
            Kind::New { from } => self.unaccounted_in((self.acknowledged, from)),
            Kind::Retransmission { .. } => Vec::new(),
        }
    }

    /// The segments that nothing else brought, for all that is known.
    fn unaccounted_in(&self, (start, end): Range) -> Vec<usize> {
        let segments = self.segments.iter().enumerate();
        let begins_in = segments.filter(|(_, at)| (start..end).contains(&at.range.0));
        let unaccounted = begins_in.filter(|(_, at)| !at.retransmitted && !at.sacked);
        unaccounted.map(|(at, _)| at).collect()
    }

    /// Whether a report is for TCP, as one about a bundle is not: the rule, in a few lines. `None` if
    /// it is a bundle's, and timestamps may tell.
    pub fn is_for_tcp(&self, ack: &Ack, report: Report) -> Option<bool> {
        let touched = || {
            self.segments
                .iter()
                .filter(|at| overlap(at.range, report.range))
        };
        if !touched().any(|at| at.retransmitted) {
            return Some(!touched().all(|at| at.rode_along));
        }
        let is_of_packet = self.ends_at(ack.number).is_some_and(|last| {
            ack.number > self.acknowledged
                && !self.has_retransmission_to(ack.number)
                && self.packets[last.packet].range.0 == report.range.0
                && report.range.1 <= last.range.0
        });
        let is_again = matches!(
            self.packets[report.packet].kind,
            Kind::Retransmission { .. }
        );
        match (is_of_packet, is_again || ack.echo == 0) {
            (true, _) => Some(false),
            (false, true) => Some(true),
            (false, false) => None,
        }
    }

    /// What a report proves to have come, in an ACK that acknowledges nothing: of a whole bundle, its
    /// own bytes alone; but it may be that of the bundle behind it, whose ACK was overtaken.
    pub fn proved_by(&self, report: &Report, ack: &Ack) -> Report {
        let mut proved = *report;
        let of_next = |at: &Packet| match at.kind {
            Kind::New { from } => at.range.1 == ack.number && (at.range.0, from) == report.range,
            Kind::Retransmission { .. } => false,
        };
        let packet = &self.packets[report.packet];
        if let Kind::New { from } = packet.kind
            && report.range == packet.range
            && !self.packets.iter().any(of_next)
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
