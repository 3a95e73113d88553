//! What crosses the device on its way to the receiver, and what the receiver makes of it.

use std::time::{Duration, Instant};

use pillion_bpf::LossRule;
use rand::RngExt;

use super::super::receiver::{Ack, Arrival};
use super::{CROWD, Event, Game};
use crate::segment::{Segment, content};
use crate::socket;

/// The longest that an ACK waits in the filter for a newer one, which takes its place.
const FILTERED: Duration = Duration::from_millis(50);

impl Game {
    /// The position behind all that TCP has sent.
    pub(super) fn sent(&self) -> u32 {
        let all = self.wire.written + 1 + u32::from(self.closed);
        all - socket::unsent(&self.wire.stream)
    }

    pub(super) fn leaves(&mut self, segment: &Segment) {
        let start = self.wire.peer.position(segment.header.sequence_number);
        let end = start.wrapping_add(segment.payload.len() as u32);
        let fin = segment.header.fin;
        let now = Instant::now();
        if start == end && !fin {
            if end != self.ledger.end() && !segment.header.rst {
                self.plan(now + self.scenario.forward.delay, Event::Probe);
            }
            self.reacted();
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
            self.fail("the payload is not that of the stream");
        }
        let sent = self.sent();
        if end > sent {
            self.fail(&format!("TCP has sent no more than {sent}"));
        }
        let id = if start == end {
            usize::MAX // a FIN alone
        } else {
            let along = self.options.retransmissions;
            let clock = segment.timestamp().unwrap_or(0);
            match self.ledger.leaves((start, end), along, clock) {
                Ok(id) => id,
                Err(why) => self.fail(&why),
            }
        };
        if let Some(packet) = self.ledger.packets.get(id) {
            self.tally.packets += 1;
            self.tally.bundles += u64::from(packet.is_bundle());
            if self.off && packet.is_bundle() && !self.is_uncertain {
                self.fail("a bundle, though the application declined");
            }
            let cannot_find = self.rule.rule() == LossRule::None;
            if cannot_find && packet.takes_others() && !self.is_uncertain {
                self.fail("a bundle, though the receiver makes no reports");
            }
            let is_judged = self.rule.rule() != LossRule::Ack;
            if is_judged && self.ends.are_thinned() && packet.takes_others() && !self.is_uncertain {
                self.fail("a bundle, though hardly any ACK ends with one");
            }
        }
        let segments = self.ledger.segments.iter().rev();
        let outstanding = segments.take_while(|at| at.range.1 > self.ledger.acknowledged);
        self.is_uncertain |= outstanding.count() > CROWD;
        let arrival = Arrival {
            range: (start, end),
            fin,
            clock: segment.timestamp().unwrap_or(0),
        };
        let bytes = segment.payload.len();
        for at in self.scenario.forward.carry(&mut self.random, bytes, now) {
            self.plan(at, Event::Packet(id, arrival));
        }
        self.reacted();
    }

    pub(super) fn arrives(&mut self, id: usize, arrival: Arrival, now: Instant) {
        let lacked = self.receiver.lacks(arrival.range);
        let (start, end) = arrival.range;
        self.note(format!("arrives {start}:{end}, lacked {lacked:?}"));
        if id < self.ledger.packets.len() {
            self.ledger.arrives(id, lacked);
        }
        if self.random.random_bool(self.receiver.reneges()) {
            self.receiver.renege();
        }
        let ack = self.receiver.receive(id, arrival, now);
        for packet in self.receiver.unreported() {
            self.ledger.packets[packet].report_lost = true;
        }
        for packet in self.receiver.reported_in_part() {
            self.ledger.packets[packet].report_incomplete = true;
        }
        if let Some(ack) = ack {
            self.sends_ack(ack, now);
        }
    }

    pub(super) fn sends_ack(&mut self, ack: Ack, now: Instant) {
        if let Some(report) = ack.report {
            // Until it is there.
            self.ledger.packets[report.packet].report_lost = true;
        }
        let id = self.acks.len();
        self.note(format!("sends {ack:?}"));
        self.acks.push(ack);
        let filtered = self.filtered.take();
        if let Some(older) = filtered {
            self.note(format!("filters {:?}", self.acks[older]));
        }
        if id.is_multiple_of(self.scenario.filter) {
            return self.returns(id, now);
        }
        self.filtered = Some(id);
        self.plan(now + FILTERED, Event::Unfiltered(id));
    }

    /// An ACK leaves the filter.
    pub(super) fn returns(&mut self, id: usize, now: Instant) {
        let arrivals = self.scenario.backward.carry(&mut self.random, 0, now);
        if arrivals.is_empty() {
            self.note(format!("loses {:?}", self.acks[id]));
        }
        for at in arrivals {
            self.plan(at, Event::Ack(id));
        }
    }
}
