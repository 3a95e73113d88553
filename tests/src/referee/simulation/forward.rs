//! Forward direction: packets to the receiver, and its answers.

use std::time::{Duration, Instant};

use pillion_bpf::LossRule;
use rand::RngExt;

use super::super::receiver::{Ack, Arrival};
use super::{Event, MAX_OUTSTANDING, Simulation};
use crate::segment::{Segment, content};
use crate::socket;

/// Maximum time that an ACK waits in the filter for a newer one to replace it.
const FILTER_DELAY: Duration = Duration::from_millis(50);

impl Simulation {
    /// Returns the end of the data that TCP has sent.
    pub(super) fn sent(&self) -> u32 {
        let all = self.wire.written + 1 + u32::from(self.closed);
        all - socket::unsent(&self.wire.stream)
    }

    pub(super) fn on_sent(&mut self, segment: &Segment) {
        let start = self.wire.peer.position(segment.header.sequence_number);
        let end = start.wrapping_add(segment.payload.len() as u32);
        let fin = segment.header.fin;
        let now = Instant::now();
        if start == end && !fin {
            if end != self.ledger.end() && !segment.header.rst {
                self.schedule(now + self.scenario.forward.delay, Event::Probe);
            }
            self.check_reaction();
            return;
        }
        self.note(format!("leaves {start}:{end}"));
        if segment.header.rst {
            self.fail("the connection was reset");
        }
        if let Some(fault) = &segment.fault {
            self.fail(fault);
        }
        if segment.payload != content(start, end) {
            self.fail("the payload differs from the stream");
        }
        let sent = self.sent();
        if end > sent {
            self.fail(&format!("TCP has sent no more than {sent}"));
        }
        let max_copies = self.scenario.max_copies;
        let copied = self.ledger.record_copy((start, end), max_copies);
        let id = if start == end {
            usize::MAX // only a FIN
        } else if let Some(id) = copied {
            self.statistics.copies += 1;
            id
        } else {
            let may_bundle = self.options.bundle_retransmissions;
            let clock = segment.timestamp().unwrap_or(0);
            match self.ledger.record_sent((start, end), may_bundle, clock) {
                Ok(id) => id,
                Err(reason) => self.fail(&reason),
            }
        };
        if let Some(packet) = self.ledger.packets.get(id).filter(|_| copied.is_none()) {
            self.statistics.packets += 1;
            self.statistics.bundles += u64::from(packet.is_bundle());
            if self.disabled_by_application && packet.is_bundle() && !self.is_uncertain {
                self.fail("a bundle, although the application declined");
            }
            let cannot_find = self.rule.rule() == LossRule::None;
            if cannot_find && packet.carries_others() && !self.is_uncertain {
                self.fail("a bundle, although the receiver sends no DSACKs");
            }
            let is_judged = self.rule.rule() != LossRule::Ack;
            if is_judged && self.ends.are_thinned() && packet.carries_others() && !self.is_uncertain
            {
                self.fail("a bundle, although ACKs are thinned");
            }
        }
        let segments = self.ledger.segments.iter().rev();
        let outstanding = segments.take_while(|at| at.range.1 > self.ledger.acknowledged);
        self.is_uncertain |= outstanding.count() > MAX_OUTSTANDING;
        let arrival = Arrival {
            range: (start, end),
            fin,
            clock: segment.timestamp().unwrap_or(0),
        };
        let bytes = segment.payload.len();
        for at in self.scenario.forward.carry(&mut self.random, bytes, now) {
            self.schedule(at, Event::Packet(id, arrival));
        }
        self.check_reaction();
    }

    pub(super) fn on_arrival(&mut self, id: usize, arrival: Arrival, now: Instant) {
        let missing = self.receiver.missing_in(arrival.range);
        let (start, end) = arrival.range;
        self.note(format!("arrives {start}:{end}, missing {missing:?}"));
        if id < self.ledger.packets.len() {
            self.ledger.record_arrival(id, missing);
        }
        if self.random.random_bool(self.receiver.reneges()) {
            self.receiver.renege();
        }
        let ack = self.receiver.receive(id, arrival, now);
        for packet in self.receiver.take_unreported() {
            self.ledger.packets[packet].dsack_lost = true;
        }
        for packet in self.receiver.partly_reported() {
            self.ledger.packets[packet].dsack_incomplete = true;
        }
        if let Some(ack) = ack {
            self.queue_ack(ack, now);
        }
    }

    pub(super) fn queue_ack(&mut self, ack: Ack, now: Instant) {
        if let Some(dsack) = ack.dsack {
            // Until the ACK arrives.
            self.ledger.packets[dsack.packet].dsack_lost = true;
        }
        let id = self.acks.len();
        self.note(format!("sends {ack:?}"));
        self.acks.push(ack);
        let filtered = self.filtered.take();
        if let Some(older) = filtered {
            self.note(format!("filters {:?}", self.acks[older]));
        }
        if id.is_multiple_of(self.scenario.filter) {
            return self.send_back(id, now);
        }
        self.filtered = Some(id);
        self.schedule(now + FILTER_DELAY, Event::Unfiltered(id));
    }

    /// Sends an ACK from the filter to the sender.
    pub(super) fn send_back(&mut self, id: usize, now: Instant) {
        let arrivals = self.scenario.backward.carry(&mut self.random, 0, now);
        if arrivals.is_empty() {
            self.note(format!("loses {:?}", self.acks[id]));
        }
        for at in arrivals {
            self.schedule(at, Event::Ack(id));
        }
    }
}
