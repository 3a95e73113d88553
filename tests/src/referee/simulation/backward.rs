//! Reverse direction: ACKs to the sender, and pillion's expected results.

use std::time::{Duration, Instant};

use pillion_bpf::{Counters, LossRule, Reaction};

use super::super::ledger::Segment;
use super::super::loss_model::{self, FoundLoss, added};
use super::super::receiver::Ack;
use super::{Simulation, TCP_CA_CWR};
use crate::{netstat, socket};

impl Simulation {
    /// Delivers an ACK to the kernel, with optional data.
    pub(super) fn deliver(&mut self, ack: Ack, data: Option<&[u8]>) {
        self.note(format!("ack {ack:?}"));
        if let Some(dsack) = ack.dsack {
            let packet = &mut self.ledger.packets[dsack.packet];
            packet.dsack_lost &= ack.number <= self.ledger.acknowledged.max(packet.range.1 - 1);
            self.ledger.record_report(&dsack);
        }
        self.ledger.record_sack(&ack);
        let expected = self.expect(&ack);
        self.note_ends(&ack, &expected.0);
        let seen = dsacks_seen();
        let blocks = ack.dsack.map(|dsack| dsack.range);
        let blocks: Vec<_> = blocks
            .into_iter()
            .chain(ack.blocks.iter().copied())
            .collect();
        self.wire.peer.echo = ack.echo;
        match data {
            Some(data) => self.wire.peer.send_with(ack.number, &blocks, 0, data),
            None => self.wire.peer.acknowledge(ack.number, &blocks),
        }
        self.wait_until_processed(ack.number);
        self.compare(&ack, &expected, dsacks_seen() - seen);
        if ack.number > self.ledger.acknowledged {
            self.ack_ends.push(ack.number);
            self.ledger.acknowledged = ack.number;
            self.last_progress = Instant::now();
        }
    }

    /// Records which small segments the ACK acknowledges, and which of them it ends with.
    fn note_ends(&mut self, ack: &Ack, found: &[FoundLoss]) {
        let full_size_bytes = self.scenario.full_size();
        let min_full = self.scenario.min_full_size();
        let suspected = self.rule.suspected_at(ack.number);
        let is_lost = |at: usize| {
            found
                .iter()
                .chain(suspected)
                .any(|found| found.segment == at)
        };
        for (number, segment) in self.ledger.segments.iter().enumerate() {
            let (start, end) = segment.range;
            let is_new = end > self.ledger.acknowledged && end <= ack.number;
            let is_small = end - start < full_size_bytes && start >= self.recorded_from;
            let is_known = segment.retransmitted || segment.sacked || is_lost(number);
            // The segment or the one before may have been full-sized: the bundler counts the end of
            // a large write as part of that write.
            let before = match number {
                0 => start,
                number => self.ledger.segments[number - 1].range.0,
            };
            let may_be_large = (end - start).max(start - before) >= min_full;
            if is_new && is_small && !is_known {
                self.ends.note(end == ack.number || may_be_large);
            }
        }
    }

    /// Waits until the kernel has processed an acknowledgement.
    pub(super) fn wait_until_processed(&mut self, number: u32) {
        if number <= self.ledger.acknowledged {
            return;
        }
        let all = self.wire.written + 1 + u32::from(self.closed);
        if !socket::wait_until(|| self.outstanding() <= all - number) {
            self.fail("the kernel did not process the ACK");
        }
    }

    /// Returns the losses that an ACK must reveal, and whether TCP must see its DSACK.
    pub(super) fn expect(&mut self, ack: &Ack) -> (Vec<FoundLoss>, Option<bool>) {
        if self.wire.attachments.is_empty() {
            return (Vec::new(), ack.dsack.map(|_| true));
        }
        self.rule.note_dsack(&self.ledger, ack);
        let recorded = |at: u32| at >= self.recorded_from;
        let last = self.ledger.ends_at(ack.number);
        let found = match last {
            Some(last) if recorded(last.range.0) => self.rule.find_losses(&self.ledger, ack),
            _ => Vec::new(),
        };
        let dsack = ack.dsack.filter(|dsack| recorded(dsack.range.0));
        let dsack = dsack.filter(|_| !self.options.bundle_retransmissions);
        let visible_to_tcp = dsack.and_then(|dsack| self.ledger.must_reach_tcp(ack, dsack));
        (found, visible_to_tcp)
    }

    pub(super) fn compare(
        &mut self,
        ack: &Ack,
        expected: &(Vec<FoundLoss>, Option<bool>),
        dsacks: u64,
    ) {
        let (found, visible_to_tcp) = expected;
        let counters = self.read_counters();
        let lost = added(&self.counters, &counters, |at| at.hidden_losses);
        let copy_losses = added(&self.counters, &counters, |at| at.copy_losses);
        self.counters = counters;
        self.statistics.dsacks_seen += dsacks;
        self.statistics.dsacks_removed += u64::from(ack.dsack.is_some()) - dsacks.min(1);
        if self.is_uncertain {
            return;
        }
        // The record has one entry for a large write, for queued segments that left together, and
        // for everything older than itself.
        let starts_before_record = self.ledger.acknowledged < self.recorded_from;
        let full_size_bytes = self.scenario.full_size();
        let is_full = |at: &FoundLoss| {
            let (start, end) = self.ledger.segments[at.segment].range;
            end - start >= full_size_bytes
        };
        let sent_together = found.iter().any(is_full);
        let in_one = starts_before_record || self.scenario.has_large_writes() || sent_together;
        let by_ack = self.rule.rule() == LossRule::Ack && in_one;
        let partial = self.ledger.acks_gap && in_one;
        let is_certain = self.is_exact() && !by_ack && !partial;
        if lost != found.len() as u64 && is_certain {
            let segments = found.iter().map(|at| &self.ledger.segments[at.segment]);
            let segments: Vec<_> = segments.collect();
            self.fail(&format!(
                "{lost} losses were detected, expected {segments:?}"
            ));
        }
        if visible_to_tcp.is_some_and(|visible_to_tcp| u64::from(visible_to_tcp) != dsacks) {
            self.fail(&format!(
                "TCP saw {dsacks} DSACKs, expected: {visible_to_tcp:?}"
            ));
        }
        let (losses, unreported) = (
            self.counters.copy_losses,
            self.ledger.unreported_copies(self.recorded_from),
        );
        if copy_losses > 0 && losses > unreported {
            self.fail(&format!(
                "{losses} copies counted as lost, but only {unreported} reports are missing"
            ));
        }
        if self.rule.rule() == LossRule::Dsack && self.scenario.max_copies == 0 {
            match loss_model::false_losses(&self.ledger, found) {
                Ok(dsack_lost) => self.statistics.dsack_lost += dsack_lost,
                Err(reason) => self.fail(&reason),
            }
        }
        if let Some(dsack) = ack.dsack
            && ack.number <= self.ledger.acknowledged
        {
            let proved = self.ledger.proved_by(&dsack, ack);
            let found = self
                .ledger
                .segments
                .iter_mut()
                .filter(|at| at.found_at.is_some());
            let refuted = found.filter(|at| proved.has(at.range));
            refuted.for_each(|at| at.refuted = true);
        }
        for at in found {
            self.ledger.segments[at.segment].found_at = Some(Instant::now());
        }
        self.statistics.found += lost;
        self.check_window();
    }

    /// True if the model says which segments are found lost. Losses that copies hide are estimated.
    fn is_exact(&self) -> bool {
        !self.options.bundle_retransmissions && self.scenario.max_copies == 0
    }

    /// Reads TCP's state and returns it. A window reduction covers all losses of data sent so far;
    /// for a needed tail loss probe TCP reduces the window immediately.
    fn check_window(&mut self) -> u8 {
        let state = self.wire.tcp_info().tcpi_ca_state;
        let probes = netstat("TCPLossProbeRecovery");
        if state >= TCP_CA_CWR || probes > self.probes_needed {
            self.reacted_until = self.sent();
        }
        self.probes_needed = probes;
        state
    }

    /// After a packet has left, checks that the kernel received a congestion signal exactly when a
    /// loss required it.
    pub(super) fn check_reaction(&mut self) {
        let counters = self.read_counters();
        let reactions = added(&self.counters, &counters, |at| at.reactions);
        self.counters.reactions = counters.reactions;
        let state = self.check_window();
        let found = self
            .ledger
            .segments
            .iter()
            .filter(|at| at.found_at.is_some());
        if reactions == 0 {
            // A late segment needs no reaction. A loss needs one only after the reordering window:
            // at most a quarter of the RTT, or one RTT after reordering was seen.
            let rtt = Duration::from_micros(self.wire.tcp_info().tcpi_rtt.into());
            let reorders = found.clone().any(|at| at.refuted);
            let window = match (self.options.published, reorders) {
                (true, _) => Duration::ZERO,
                (false, true) => rtt,
                (false, false) => rtt / 4,
            };
            let is_due = |at: &Segment| {
                at.found_at
                    .is_some_and(|found| window.is_zero() || found.elapsed() > window)
            };
            let unanswered = found
                .filter(|at| at.range.1 > self.reacted_until && !at.refuted && is_due(at))
                .count();
            let is_certain = !self.is_uncertain && self.is_exact();
            if unanswered > 0 && is_certain && self.options.reaction() == Reaction::Cwr {
                self.fail(&format!("no reaction to {unanswered} losses"));
            }
            return;
        }
        // TCP may have undone its reduction for retransmitted segments.
        let retransmitted = self.ledger.retransmitted_and_repaired();
        // The published rule also takes a delayed ACK of retransmitted data for a loss.
        let by_ack = self.rule.rule() == LossRule::Ack;
        let segments = self.ledger.segments.iter();
        let delayed = segments.filter(|at| by_ack && at.retransmitted);
        let lost = found.chain(retransmitted).chain(delayed);
        let new = lost.filter(|at| at.range.1 > self.reduced_at).count();
        self.reacted_until = self.sent();
        self.statistics.reactions += reactions;
        self.note(format!("{reactions} reactions"));
        if new == 0 && !self.is_uncertain && self.is_exact() {
            self.fail("a reaction without a loss since the last one");
        }
        if self.options.reaction() == Reaction::None {
            self.fail("a reaction despite Reaction::None");
        }
        if state < TCP_CA_CWR {
            self.fail(&format!(
                "the kernel received a congestion signal, but is in state {state}"
            ));
        }
        self.reduced_at = self.ledger.acknowledged.max(self.reduced_at);
    }

    pub(super) fn read_counters(&self) -> Counters {
        match self.wire.attachments.last() {
            Some(attachment) => attachment.totals().expect("the totals").counters,
            None => Counters::default(),
        }
    }
}

/// Returns the DSACKs that TCP has seen, of acknowledged and of out-of-order data.
fn dsacks_seen() -> u64 {
    netstat("TCPDSACKRecv") + netstat("TCPDSACKOfoRecv")
}
