//! What pillion did, held against what the rules say.

use std::collections::VecDeque;

use pillion_bpf::{Counters, LossRule, Options};

use super::ledger::{Arrived, Kind, Ledger};
use super::receiver::Ack;

/// Points after which a receiver is taken for one that makes no reports.
const ENOUGH_POINTS: u32 = 32;
/// The same where others ride along with retransmissions: it is not modelled what came twice then.
const ENOUGH_POINTS_WITH_RETRANSMISSIONS: u32 = 2 * ENOUGH_POINTS;
/// Points for an ACK of a bundle without a report, where the receiver had acknowledged before some of
/// what came twice; a loss explains any other with one point.
const POINTS_IF_CERTAIN: u32 = 4;

/// A segment that is found to have been lost, and the packet that repaired it.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    pub segment: usize,
    pub packet: usize,
}

/// The rule by which losses are found, as it is learnt.
#[derive(Debug, Default)]
pub struct Rule {
    asked: LossRule,
    retransmissions: bool,
    learnt: Option<LossRule>,
    silent: u32,
    /// Losses found so far, if the receiver reports duplicates.
    doubts: Vec<Found>,
    /// Losses in doubt of the last ACK that showed any, and that ACK's number.
    last_doubts: (u32, Vec<Found>),
}

impl Rule {
    /// The rule for a peer that offers SACK, or does not: then no report can come.
    pub fn new(options: &Options, sack: bool) -> Self {
        let asked = match options.loss_rule {
            LossRule::Auto if !sack => LossRule::Ack,
            asked => asked,
        };
        Self {
            asked,
            retransmissions: options.retransmissions,
            ..Self::default()
        }
    }

    /// A report tells at once that the receiver makes them. In an ACK that acknowledges nothing, it
    /// tells that what is in doubt had only been late.
    pub fn hears(&mut self, ledger: &Ledger, ack: &Ack) {
        let Some(report) = ack.report else {
            return;
        };
        if self.asked == LossRule::Auto {
            self.learnt = Some(LossRule::Dsack);
        }
        if ack.number <= ledger.acknowledged {
            let proved = ledger.proved_by(&report, ack);
            self.doubts
                .retain(|at| !proved.has(ledger.segments[at.segment].range));
        }
    }

    /// Segments that are found to have been lost with this ACK, once it was heard.
    pub fn judge(&mut self, ledger: &Ledger, ack: &Ack) -> Vec<Found> {
        let Some((packet, arrived)) = ledger.bundle_that_ends(ack) else {
            return Vec::new();
        };
        if arrived == Arrived::Bundle && ack.report.is_none() {
            let start = ledger.packets[packet].range.0;
            self.note_silence(ledger.acknowledged > start);
        }
        let mut found = self.settle_doubts();
        if matches!(arrived, Arrived::Retransmission | Arrived::Another) {
            return found;
        }
        let with = |segments: Vec<usize>| {
            let segments = segments.into_iter();
            segments.map(move |segment| Found { segment, packet })
        };
        let by_report: Vec<_> = with(ledger.hidden_by_report(ack, packet)).collect();
        let by_ack = with(ledger.hidden_by_ack(packet));
        match self.rule() {
            LossRule::Dsack => found.extend(by_report),
            LossRule::Ack => found.extend(by_ack),
            LossRule::None => {}
            LossRule::Auto => {
                if !by_report.is_empty() {
                    self.last_doubts = (ack.number, by_report.clone());
                }
                self.doubts.extend(by_report);
            }
        }
        found
    }

    /// Losses that an ACK showed, if they are in doubt.
    pub fn in_doubt(&self, number: u32) -> &[Found] {
        let (last, doubts) = &self.last_doubts;
        if *last == number { doubts } else { &[] }
    }

    pub fn rule(&self) -> LossRule {
        self.learnt.unwrap_or(self.asked)
    }

    fn note_silence(&mut self, is_certain: bool) {
        if self.rule() == LossRule::Auto {
            self.silent += if is_certain { POINTS_IF_CERTAIN } else { 1 };
            let enough = match self.retransmissions {
                true => ENOUGH_POINTS_WITH_RETRANSMISSIONS,
                false => ENOUGH_POINTS,
            };
            if self.silent >= enough {
                self.learnt = Some(LossRule::None);
            }
        }
    }

    /// The losses that were in doubt, once it is known what silence means; none, if nothing.
    fn settle_doubts(&mut self) -> Vec<Found> {
        let doubts = match self.rule() {
            LossRule::Auto => return Vec::new(),
            _ => std::mem::take(&mut self.doubts),
        };
        match self.rule() {
            LossRule::Dsack => doubts,
            _ => Vec::new(),
        }
    }
}

/// The last small segments, and with which of them an ACK ended.
#[derive(Debug, Default)]
pub struct Ends {
    last: VecDeque<bool>,
}

impl Ends {
    pub fn note(&mut self, is_end_of_ack: bool) {
        self.last.push_front(is_end_of_ack);
        self.last.truncate(64);
    }

    /// True if three quarters have no ACK that ends there, and some more: in here it is not known of
    /// every segment whether a bundle could have repaired it.
    pub fn are_thinned(&self) -> bool {
        self.last.iter().filter(|is_end| !**is_end).count() >= 58
    }
}

/// Number of segments found to be lost that had come, but whose report had not; an error where
/// another had come.
pub fn false_losses(ledger: &Ledger, found: &[Found]) -> Result<u64, String> {
    let mut report_lost = 0;
    for Found { segment, packet } in found {
        let range = ledger.segments[*segment].range;
        let packet = &ledger.packets[*packet];
        // It did not come; but a retransmission of its last segment did, and no timestamp tells.
        let came = packet.lacked.is_some();
        let lacked = packet.lacked.as_deref().unwrap_or_default();
        if lacked
            .iter()
            .any(|(start, end)| *start < range.1 && range.0 < *end)
        {
            continue;
        }
        if came && !packet.report_lost && !packet.report_incomplete {
            return Err(format!("{range:?} was not lost"));
        }
        report_lost += 1;
    }
    Ok(report_lost)
}

/// How many segments were lost and brought by a bundle, with TCP none the wiser; how many of these
/// were found; and how many were not for want of an ACK that ends with the bundle.
pub fn hidden(ledger: &Ledger, judged: &[u32]) -> [u64; 3] {
    let mut counts = [0; 3];
    for segment in &ledger.segments {
        let Some(came_with) = segment.came_with else {
            continue;
        };
        let packet = &ledger.packets[came_with];
        let in_bundle = matches!(packet.kind, Kind::New { from } if segment.range.0 < from);
        if segment.retransmitted || !in_bundle {
            continue;
        }
        counts[0] += 1;
        counts[1] += u64::from(segment.found_at.is_some());
        counts[2] += u64::from(segment.found_at.is_none() && !judged.contains(&packet.range.1));
    }
    counts
}

/// What a step added to a counter.
pub fn added(before: &Counters, after: &Counters, counter: impl Fn(&Counters) -> u64) -> u64 {
    counter(after) - counter(before)
}
