//! What comes back to the sender, and what pillion is to make of it.

use std::time::{Duration, Instant};

use pillion_bpf::{Counters, LossRule, Reaction};

use super::super::judge::{self, Found, added};
use super::super::ledger::Segment;
use super::super::receiver::Ack;
use super::{Game, REDUCING};
use crate::{netstat, socket};

impl Game {
    /// Brings an ACK to the kernel, maybe with data.
    pub(super) fn deliver(&mut self, ack: Ack, data: Option<&[u8]>) {
        self.note(format!("ack {ack:?}"));
        if let Some(report) = ack.report {
            let packet = &mut self.ledger.packets[report.packet];
            packet.report_lost &= ack.number <= self.ledger.acknowledged.max(packet.range.1 - 1);
        }
        self.ledger.sacks(&ack);
        let expected = self.expect(&ack);
        self.note_ends(&ack, &expected.0);
        let seen = reports_seen();
        let blocks = ack.report.map(|report| report.range);
        let blocks: Vec<_> = blocks
            .into_iter()
            .chain(ack.blocks.iter().copied())
            .collect();
        self.wire.peer.echo = ack.echo;
        match data {
            Some(data) => self.wire.peer.send_with(ack.number, &blocks, 0, data),
            None => self.wire.peer.acknowledge(ack.number, &blocks),
        }
        self.takes_note(ack.number);
        self.compare(&ack, &expected, reports_seen() - seen);
        if ack.number > self.ledger.acknowledged {
            self.judged.push(ack.number);
            self.ledger.acknowledged = ack.number;
            self.progress = Instant::now();
        }
    }

    /// Takes note of which small segments the ACK acknowledges, and with which of them it ends.
    fn note_ends(&mut self, ack: &Ack, found: &[Found]) {
        let full = self.scenario.full_size();
        let least_full = self.scenario.least_full_size();
        let doubts = self.rule.in_doubt(ack.number);
        let is_lost = |at: usize| found.iter().chain(doubts).any(|found| found.segment == at);
        for (number, segment) in self.ledger.segments.iter().enumerate() {
            let (start, end) = segment.range;
            let is_new = end > self.ledger.acknowledged && end <= ack.number;
            let is_small = end - start < full && start >= self.recorded_from;
            let is_known = segment.retransmitted || segment.sacked || is_lost(number);
            // It may have been full-sized, as may the one before it: the bundler takes the end of a
            // large write for a part of it.
            let before = match number {
                0 => start,
                number => self.ledger.segments[number - 1].range.0,
            };
            let may_be_large = (end - start).max(start - before) >= least_full;
            if is_new && is_small && !is_known {
                self.ends.note(end == ack.number || may_be_large);
            }
        }
    }

    /// Waits until the kernel has processed an acknowledgement.
    pub(super) fn takes_note(&mut self, number: u32) {
        if number <= self.ledger.acknowledged {
            return;
        }
        let all = self.wire.written + 1 + u32::from(self.closed);
        if !socket::until(|| self.outstanding() <= all - number) {
            self.fail("the kernel took no note of an ACK");
        }
    }

    /// The segments that are to be found lost by an ACK, and whether TCP is to see its report.
    pub(super) fn expect(&mut self, ack: &Ack) -> (Vec<Found>, Option<bool>) {
        if self.wire.attachments.is_empty() {
            return (Vec::new(), ack.report.map(|_| true));
        }
        self.rule.hears(&self.ledger, ack);
        let recorded = |at: u32| at >= self.recorded_from;
        let last = self.ledger.ends_at(ack.number);
        let found = match last {
            Some(last) if recorded(last.range.0) => self.rule.judge(&self.ledger, ack),
            _ => Vec::new(),
        };
        let report = ack.report.filter(|report| recorded(report.range.0));
        let report = report.filter(|_| !self.options.retransmissions);
        let visible = report.and_then(|report| self.ledger.is_for_tcp(ack, report));
        (found, visible)
    }

    pub(super) fn compare(
        &mut self,
        ack: &Ack,
        expected: &(Vec<Found>, Option<bool>),
        reports: u64,
    ) {
        let (found, visible) = expected;
        let counters = self.read_counters();
        let lost = added(&self.counters, &counters, |at| at.hidden_losses);
        self.counters = counters;
        self.tally.reports_seen += reports;
        self.tally.reports_hidden += u64::from(ack.report.is_some()) - reports.min(1);
        if self.is_uncertain {
            return;
        }
        // Of a large write, the record knows one segment, and of several that waited and left
        // together, as of what is older than it.
        let begins_late = self.ledger.acknowledged < self.recorded_from;
        let full = self.scenario.full_size();
        let is_full = |at: &Found| {
            let (begin, end) = self.ledger.segments[at.segment].range;
            end - begin >= full
        };
        let left_together = found.iter().any(is_full);
        let in_one = begins_late || self.scenario.has_large_writes() || left_together;
        let by_ack = self.rule.rule() == LossRule::Ack && in_one;
        let in_part = self.ledger.answers_gap && in_one;
        let is_certain = !self.options.retransmissions && !by_ack && !in_part;
        if lost != found.len() as u64 && is_certain {
            let segments = found.iter().map(|at| &self.ledger.segments[at.segment]);
            let segments: Vec<_> = segments.collect();
            self.fail(&format!("{lost} losses were found, not {segments:?}"));
        }
        if visible.is_some_and(|visible| u64::from(visible) != reports) {
            self.fail(&format!(
                "TCP saw {reports} reports, and should: {visible:?}"
            ));
        }
        if self.rule.rule() == LossRule::Dsack {
            match judge::false_losses(&self.ledger, found) {
                Ok(report_lost) => self.tally.report_lost += report_lost,
                Err(why) => self.fail(&why),
            }
        }
        if let Some(report) = ack.report
            && ack.number <= self.ledger.acknowledged
        {
            let proved = self.ledger.proved_by(&report, ack);
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
        self.tally.found += lost;
        self.looks_at_window();
    }

    /// Looks at TCP's state, which it returns: where TCP reduces its window, it answers for all
    /// losses of what it has sent. For a probe that was needed, it does so at once.
    fn looks_at_window(&mut self) -> u8 {
        let state = self.wire.tcp_info().tcpi_ca_state;
        let probes = netstat("TCPLossProbeRecovery");
        if state >= REDUCING || probes > self.probes_needed {
            self.answered = self.sent();
        }
        self.probes_needed = probes;
        state
    }

    /// Checks, when a packet has left, whether the kernel has been told of congestion, and for a
    /// reason.
    pub(super) fn reacted(&mut self) {
        let counters = self.read_counters();
        let reactions = added(&self.counters, &counters, |at| at.reactions);
        self.counters.reactions = counters.reactions;
        let state = self.looks_at_window();
        let found = self
            .ledger
            .segments
            .iter()
            .filter(|at| at.found_at.is_some());
        if reactions == 0 {
            // A segment that came late needs no reaction. A loss needs one only after the reordering
            // window: at most a quarter of the RTT, or an RTT once a segment came late.
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
                .filter(|at| at.range.1 > self.answered && !at.refuted && is_due(at))
                .count();
            let is_certain = !self.is_uncertain && !self.options.retransmissions;
            if unanswered > 0 && is_certain && self.options.reaction == Reaction::Cwr {
                self.fail(&format!("no reaction to {unanswered} losses"));
            }
            return;
        }
        // TCP may have taken back its reduction for those that it has retransmitted.
        let retransmitted = self.ledger.retransmitted_and_repaired();
        // The published rule takes a delayed ACK of what it had to retransmit for a loss as well.
        let by_ack = self.rule.rule() == LossRule::Ack;
        let segments = self.ledger.segments.iter();
        let delayed = segments.filter(|at| by_ack && at.retransmitted);
        let lost = found.chain(retransmitted).chain(delayed);
        let new = lost.filter(|at| at.range.1 > self.reduced_at).count();
        self.answered = self.sent();
        self.tally.reactions += reactions;
        self.note(format!("{reactions} reactions"));
        if new == 0 && !self.is_uncertain && !self.options.retransmissions {
            self.fail("a reaction without a loss since the last one");
        }
        if self.options.reaction == Reaction::None {
            self.fail("a reaction that was not wanted");
        }
        if state < REDUCING {
            self.fail(&format!("the kernel was told, and is in state {state}"));
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

/// Reports of duplicates that TCP has seen: of what is acknowledged, and of what is not.
fn reports_seen() -> u64 {
    netstat("TCPDSACKRecv") + netstat("TCPDSACKOfoRecv")
}
