//! Model of pillion's loss detection, to compare with its results.

use std::collections::VecDeque;

use pillion_bpf::{Counters, LossRule, Options};

use super::ledger::{AckCause, Kind, Ledger};
use super::receiver::Ack;

/// Number of points after which a receiver counts as one without DSACKs.
const LEARNING_POINTS: u32 = 32;
/// The same with bundled retransmissions, whose duplicates the model does not cover.
const LEARNING_POINTS_WITH_RETRANSMISSIONS: u32 = 2 * LEARNING_POINTS;
/// Points for an ACK of a bundle without a DSACK, if part of the duplicate data had been
/// acknowledged before. Any other such ACK may be explained by a loss, and counts one point.
const POINTS_IF_CERTAIN: u32 = 4;

/// Segment detected as lost, and the packet that repaired it.
#[derive(Debug, Clone, Copy)]
pub struct FoundLoss {
    pub segment: usize,
    pub packet: usize,
}

/// Loss rule as learnt from the receiver.
#[derive(Debug, Default)]
pub struct LearntRule {
    requested: LossRule,
    retransmissions: bool,
    learnt: Option<LossRule>,
    silence_points: u32,
    /// Losses found so far, if the receiver sends DSACKs.
    suspected: Vec<FoundLoss>,
    /// Suspected losses of the last ACK that showed any, and that ACK's number.
    last_suspected: (u32, Vec<FoundLoss>),
}

impl LearntRule {
    /// Returns the initial rule; without SACK no DSACK can arrive.
    pub fn new(options: &Options, sack: bool) -> Self {
        let requested = match options.loss_rule {
            LossRule::Auto if !sack => LossRule::Ack,
            requested => requested,
        };
        Self {
            requested,
            retransmissions: options.bundle_retransmissions,
            ..Self::default()
        }
    }

    /// Records a DSACK, which proves that the receiver sends them. In an ACK that acknowledges
    /// nothing new, it refutes suspected losses of late segments.
    pub fn note_dsack(&mut self, ledger: &Ledger, ack: &Ack) {
        let Some(dsack) = ack.dsack else {
            return;
        };
        if self.requested == LossRule::Auto {
            self.learnt = Some(LossRule::Dsack);
        }
        if ack.number <= ledger.acknowledged {
            let proved = ledger.proved_by(&dsack, ack);
            self.suspected
                .retain(|at| !proved.has(ledger.segments[at.segment].range));
        }
    }

    /// Returns segments that this ACK reveals as lost, after `note_dsack`.
    pub fn find_losses(&mut self, ledger: &Ledger, ack: &Ack) -> Vec<FoundLoss> {
        let Some((packet, ack_cause)) = ledger.bundle_that_ends(ack) else {
            return Vec::new();
        };
        if ack_cause == AckCause::Bundle && ack.dsack.is_none() {
            let start = ledger.packets[packet].range.0;
            self.note_missing_dsack(ledger.acknowledged > start);
        }
        let mut found = self.confirm_suspected();
        if matches!(ack_cause, AckCause::Retransmission | AckCause::Another) {
            return found;
        }
        let found_in = |segments: Vec<usize>| {
            let segments = segments.into_iter();
            segments.map(move |segment| FoundLoss { segment, packet })
        };
        let by_dsack: Vec<_> = found_in(ledger.hidden_by_dsack(ack, packet)).collect();
        let by_ack = found_in(ledger.hidden_by_ack(packet));
        match self.rule() {
            LossRule::Dsack => found.extend(by_dsack),
            LossRule::Ack => found.extend(by_ack),
            LossRule::None => {}
            LossRule::Auto => {
                if !by_dsack.is_empty() {
                    self.last_suspected = (ack.number, by_dsack.clone());
                }
                self.suspected.extend(by_dsack);
            }
        }
        found
    }

    /// Returns suspected losses that an ACK revealed.
    pub fn suspected_at(&self, number: u32) -> &[FoundLoss] {
        let (last, suspected) = &self.last_suspected;
        if *last == number { suspected } else { &[] }
    }

    pub fn rule(&self) -> LossRule {
        self.learnt.unwrap_or(self.requested)
    }

    fn note_missing_dsack(&mut self, is_certain: bool) {
        if self.rule() == LossRule::Auto {
            self.silence_points += if is_certain { POINTS_IF_CERTAIN } else { 1 };
            let threshold = match self.retransmissions {
                true => LEARNING_POINTS_WITH_RETRANSMISSIONS,
                false => LEARNING_POINTS,
            };
            if self.silence_points >= threshold {
                self.learnt = Some(LossRule::None);
            }
        }
    }

    /// Returns suspected losses once the rule is learnt; otherwise none.
    fn confirm_suspected(&mut self) -> Vec<FoundLoss> {
        let suspected = match self.rule() {
            LossRule::Auto => return Vec::new(),
            _ => std::mem::take(&mut self.suspected),
        };
        match self.rule() {
            LossRule::Dsack => suspected,
            _ => Vec::new(),
        }
    }
}

/// Recent small segments, and which of them an ACK ended with.
#[derive(Debug, Default)]
pub struct AckEnds {
    last: VecDeque<bool>,
}

impl AckEnds {
    pub fn note(&mut self, is_end_of_ack: bool) {
        self.last.push_front(is_end_of_ack);
        self.last.truncate(64);
    }

    /// Returns true if clearly more than three quarters have no ACK that ends there. The margin
    /// allows for segments of which the model does not know whether a bundle could have repaired
    /// them.
    pub fn are_thinned(&self) -> bool {
        self.last.iter().filter(|is_end| !**is_end).count() >= 58
    }
}

/// Returns the number of segments detected as lost that had arrived but whose DSACK had not.
/// Returns an error for any other false loss.
pub fn false_losses(ledger: &Ledger, found: &[FoundLoss]) -> Result<u64, String> {
    let mut dsack_lost = 0;
    for FoundLoss { segment, packet } in found {
        let range = ledger.segments[*segment].range;
        let packet = &ledger.packets[*packet];
        // The bundle did not arrive, but a retransmission of its last segment did, and no timestamp
        // distinguishes them.
        let received = packet.missing.is_some();
        let missing = packet.missing.as_deref().unwrap_or_default();
        if missing
            .iter()
            .any(|(start, end)| *start < range.1 && range.0 < *end)
        {
            continue;
        }
        if received && !packet.dsack_lost && !packet.dsack_incomplete {
            return Err(format!("{range:?} was not lost"));
        }
        dsack_lost += 1;
    }
    Ok(dsack_lost)
}

/// Returns three counts of segments that were lost and delivered by a bundle before TCP noticed:
/// all of them; those detected; and those missed because no ACK ended with the bundle.
pub fn hidden(ledger: &Ledger, ack_ends: &[u32]) -> [u64; 3] {
    let mut counts = [0; 3];
    for segment in &ledger.segments {
        let Some(delivered_by) = segment.delivered_by else {
            continue;
        };
        let packet = &ledger.packets[delivered_by];
        let in_bundle = matches!(packet.kind, Kind::New { from } if segment.range.0 < from);
        if segment.retransmitted || !in_bundle {
            continue;
        }
        counts[0] += 1;
        counts[1] += u64::from(segment.found_at.is_some());
        counts[2] += u64::from(segment.found_at.is_none() && !ack_ends.contains(&packet.range.1));
    }
    counts
}

/// Returns the increase of a counter in one step.
pub fn added(before: &Counters, after: &Counters, counter: impl Fn(&Counters) -> u64) -> u64 {
    counter(after) - counter(before)
}
