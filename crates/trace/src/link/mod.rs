//! One direction of a connection between two traces.

mod fingerprints;
pub(crate) mod hull;

use std::collections::VecDeque;

use crate::event::{Arrival, Class, DeliveryStats, Disposition};
use crate::prefetch;
use fingerprints::Fingerprints;
use hull::{DelayPoint, Hull};

/// One direction between the two traces: sent packets without a disposition, and arrivals not yet
/// matched to the sender's trace.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) delivery_stats: DeliveryStats,
    /// Lower hull of the raw delays of all arrivals, with or without payload.
    lowest: Hull,
    sent: VecDeque<PendingPacket>,
    /// Fingerprints of `sent`, at the same indices.
    fingerprints: Fingerprints,
    receiver_events: VecDeque<ReceiverEvent>,
    /// Fingerprints of the last matches, to detect duplicates.
    matched: Vec<u64>,
    matches: usize,
    /// Fingerprints of the last packets that the sender's trace shows twice, and so perhaps the
    /// receiver's.
    repeated: VecDeque<u64>,
    /// The last acknowledgement number that left the receiver.
    pub(crate) acked: Option<u32>,
    /// Old bytes in packets that were split or joined on the path.
    old_arrivals: VecDeque<OldArrival>,
    /// Older ones have been forgotten up to this time.
    forgotten_until_ns: Option<i64>,
}

/// Bytes that had been received and acknowledged before they arrived in unmatched packets.
#[derive(Debug, Clone, Copy)]
struct OldArrival {
    start: i64,
    end: i64,
    last_ns: i64,
}

/// Maximum number of stored [`OldArrival`]s.
const MAX_OLD_ARRIVALS: usize = 1024;

/// Why a packet without a matching arrival may have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// The receiver acknowledged bytes that it and other packets carried.
    Acked,
    /// Its bytes were in packets that were split or joined on the path.
    Regrouped,
}

const MAX_MATCHED: usize = 64;
/// A thin stream seldom has more packets in transit.
const RECENT_PACKETS: usize = 16;

/// A packet without a disposition, or with one not yet reported.
#[derive(Debug)]
struct PendingPacket {
    disposition: Disposition,
    /// Why it may have arrived although no arrival matches.
    doubt: Option<Doubt>,
    /// Its bytes before this position were in unmatched packets.
    seen_until: i64,
    /// Whether another packet had the same fingerprint.
    has_equal: bool,
    /// Whether an equal packet arrived that may have been this one.
    is_ambiguous: bool,
}

/// Events of the receiver's trace not yet processed, in order.
#[derive(Debug, Clone, Copy)]
enum ReceiverEvent {
    Arrival(PendingArrival),
    /// An ACK left, with this acknowledgement number.
    Ack(u32),
}

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingArrival {
    pub(crate) fingerprint: u64,
    pub(crate) at_ns: i64,
    pub(crate) packet: u64,
    pub(crate) seq: u32,
    pub(crate) payload_len: u32,
}

/// The next resolved event of the receiver's trace.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResolvedEvent {
    Arrival(PendingArrival, Identity),
    /// An ACK left, with this acknowledgement number.
    Ack(u32),
}

/// The departures that are known when an arrival is identified.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownDepartures {
    /// All up to this time, by the estimated clock of the arrival side.
    pub(crate) now_ns: i64,
    /// All up to this time, whatever the clock's error.
    pub(crate) complete_until_ns: i64,
    /// Offset of the departure side's clock.
    pub(crate) offset_ns: i64,
}

impl KnownDepartures {
    fn departure_ns(self, arrival_ns: i64) -> i64 {
        arrival_ns.saturating_add(self.offset_ns)
    }
}

/// Identity of an arriving packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Identity {
    /// A sent packet, as an index for [`Link::set_arrival`].
    SentPacket(usize),
    /// A copy of a packet that had arrived.
    Duplicate,
    /// A copy that the sender's trace shows as well: it is of the capture, not of the path.
    Repeat,
    /// Not a sent packet, even though the other trace has been read well beyond it.
    Unknown,
}

impl Link {
    /// Adds a sent packet. `is_identified`: no other packet has its fingerprint.
    #[inline]
    pub(crate) fn depart(
        &mut self,
        fingerprint: u64,
        disposition: Disposition,
        is_identified: bool,
    ) {
        let has_equal = !is_identified && self.find_equal(fingerprint, disposition.class);
        self.sent.push_back(PendingPacket {
            seen_until: disposition.start,
            disposition,
            doubt: None,
            has_equal,
            is_ambiguous: false,
        });
        self.fingerprints.push(fingerprint);
    }

    /// Marks packets with this fingerprint as equal to another. Equal payload is a retransmission;
    /// equal ACKs follow each other.
    fn find_equal(&mut self, fingerprint: u64, class: Class) -> bool {
        let recent = match class {
            Class::New | Class::Bundled => return false,
            Class::Retransmission { .. } => self.sent.len(),
            _ => RECENT_PACKETS,
        };
        let from = self.sent.len().saturating_sub(recent);
        let equal = self.fingerprints.all(from, fingerprint);
        for &index in &equal {
            self.sent[index].has_equal = true;
        }
        !equal.is_empty()
    }

    /// The sent packet that arrived at `arrived_ns` by the sender's clock, and whether it may have
    /// been an equal one: the first of those sent before.
    #[inline]
    pub(crate) fn choose(&mut self, index: usize, arrived_ns: i64) -> (usize, bool) {
        match self.sent.get(index) {
            Some(entry) if entry.has_equal => self.choose_among_equals(index, arrived_ns),
            _ => (index, false),
        }
    }

    #[cold]
    fn choose_among_equals(&mut self, index: usize, arrived_ns: i64) -> (usize, bool) {
        let fingerprint = self.fingerprints.get(index).copied().unwrap_or_default();
        let mut equal = self.fingerprints.all(0, fingerprint);
        equal.retain(|&index| self.sent[index].disposition.sent_ns <= arrived_ns);
        let chosen = equal.first().copied().unwrap_or(index);
        if equal.len() > 1 {
            for index in equal {
                self.sent[index].is_ambiguous = true;
            }
        }
        (chosen, self.sent[chosen].is_ambiguous)
    }

    /// The packet after the last match, if it has this fingerprint and no arrival is pending.
    #[inline]
    pub(crate) fn expects(&self, fingerprint: u64) -> Option<usize> {
        let expected = self.fingerprints.expected();
        let is_it = self.fingerprints.get(expected) == Some(&fingerprint);
        (is_it && self.receiver_events.is_empty()).then_some(expected)
    }

    /// Prefetches the entries that the next packet is compared with or appended to.
    #[inline]
    pub(crate) fn prefetch_state(&self) {
        let expected = self.fingerprints.expected();
        let sent = [self.sent.front(), self.sent.get(expected), self.sent.back()];
        sent.into_iter().flatten().for_each(prefetch);
        if let Some(fingerprint) = self.fingerprints.get(expected) {
            prefetch(fingerprint);
        }
    }

    /// Whether there are unidentified arrivals.
    #[inline]
    pub(crate) fn has_pending_arrivals(&self) -> bool {
        !self.receiver_events.is_empty()
    }

    #[inline]
    pub(crate) fn arrive(&mut self, pending: PendingArrival) {
        self.receiver_events
            .push_back(ReceiverEvent::Arrival(pending));
    }

    /// Queues an ACK that left the receiver after unidentified arrivals.
    pub(crate) fn acknowledge(&mut self, ack: u32) {
        self.receiver_events.push_back(ReceiverEvent::Ack(ack));
    }

    /// The next event of the receiver's trace, if it is identified. Order is preserved. Departures
    /// are known as far as `known` describes.
    pub(crate) fn next_resolved(&mut self, known: KnownDepartures) -> Option<ResolvedEvent> {
        let pending = match *self.receiver_events.front()? {
            ReceiverEvent::Arrival(pending) => pending,
            ReceiverEvent::Ack(ack) => {
                self.receiver_events.pop_front();
                return Some(ResolvedEvent::Ack(ack));
            }
        };
        let found = self.fingerprints.find(pending.fingerprint);
        let is_copy = self.matched.contains(&pending.fingerprint);
        let identity = if let Some(index) = found {
            // An equal packet that was sent later did not arrive yet.
            let arrived_ns = known.departure_ns(pending.at_ns);
            let (first, _) = self.choose(index, arrived_ns);
            if is_copy && self.sent[first].disposition.sent_ns > arrived_ns {
                self.copy(pending.fingerprint)
            } else {
                Identity::SentPacket(index)
            }
        } else if is_copy && pending.at_ns < known.now_ns {
            self.copy(pending.fingerprint)
        } else if !is_copy && pending.at_ns < known.complete_until_ns {
            Identity::Unknown
        } else {
            self.fingerprints.searched();
            return None;
        };
        self.receiver_events.pop_front();
        self.fingerprints.restart_search();
        Some(ResolvedEvent::Arrival(pending, identity))
    }

    /// Records that the sender's trace shows a packet a second time.
    #[cold]
    pub(crate) fn departs_again(&mut self, fingerprint: u64) {
        if self.repeated.len() == MAX_MATCHED {
            self.repeated.pop_front();
        }
        self.repeated.push_back(fingerprint);
    }

    /// The identity of a copy of a packet that had arrived.
    #[cold]
    fn copy(&mut self, fingerprint: u64) -> Identity {
        match self.repeated.iter().position(|it| *it == fingerprint) {
            Some(index) => {
                self.repeated.remove(index);
                Identity::Repeat
            }
            None => Identity::Duplicate,
        }
    }

    #[inline]
    pub(crate) fn disposition(&self, index: usize) -> Option<&Disposition> {
        self.sent.get(index).map(|entry| &entry.disposition)
    }

    /// Records that bytes of these packets (numbers in the sender's trace) arrived unseen. A single
    /// packet arrived; among several it is unknown which.
    pub(crate) fn arrived_unseen(&mut self, packets: impl ExactSizeIterator<Item = u64>) {
        let only = packets.len() == 1;
        for packet in packets {
            let index = self.index_of(packet);
            if let Some(entry) = index.and_then(|index| self.sent.get_mut(index)) {
                entry.doubt.get_or_insert(Doubt::Acked);
                if only && entry.disposition.arrival == Arrival::Unknown {
                    entry.disposition.arrival = Arrival::Unseen;
                }
            }
        }
    }

    /// Records that these bytes arrived in an unmatched packet: one of their copies was joined or
    /// split on the path. It is the last one that had not arrived, as on a path without reordering.
    pub(crate) fn arrived_otherwise(
        &mut self,
        (start, end): (i64, i64),
        copies: impl DoubleEndedIterator<Item = u64>,
    ) {
        for packet in copies.rev() {
            let index = self.index_of(packet);
            if let Some(entry) = index.and_then(|index| self.sent.get_mut(index))
                && entry.disposition.arrival == Arrival::Unknown
                && entry.seen_until <= start
            {
                entry.seen_until = end;
                entry.doubt = Some(Doubt::Regrouped);
                return;
            }
        }
    }

    /// Records that old bytes arrived in an unmatched packet, by the clock of the packet's sender.
    pub(crate) fn old_bytes_arrived(&mut self, start: i64, end: i64, at_ns: i64) {
        match self.old_arrivals.back_mut() {
            Some(last) if last.end == start => (last.end, last.last_ns) = (end, at_ns),
            _ => self.old_arrivals.push_back(OldArrival {
                start,
                end,
                last_ns: at_ns,
            }),
        }
        if self.old_arrivals.len() > MAX_OLD_ARRIVALS {
            let oldest = self.old_arrivals.pop_front();
            self.forgotten_until_ns = oldest.map(|oldest| oldest.last_ns);
        }
    }

    /// Whether a packet without a matching arrival may have arrived as a repetition of old bytes.
    fn may_be_old(&self, disposition: &Disposition) -> bool {
        let Disposition {
            start,
            end,
            sent_ns,
            ..
        } = *disposition;
        let overlaps =
            |old: &OldArrival| old.start < end && start < old.end && old.last_ns >= sent_ns;
        start < end
            && (self.forgotten_until_ns.is_some_and(|ns| ns >= sent_ns)
                || self.old_arrivals.iter().any(overlaps))
    }

    /// Records that this packet arrived after an ACK of its bytes was captured: no other one did.
    pub(crate) fn settle_acked(&mut self, index: usize) {
        let Some(arrived) = self.sent.get(index).filter(|it| it.doubt.is_some()) else {
            return;
        };
        let (start, end) = (arrived.disposition.start, arrived.disposition.end);
        for other in self.sent.iter_mut().take(index) {
            let sent = &other.disposition;
            let overlaps = sent.start < end && start < sent.end;
            other
                .doubt
                .take_if(|doubt| overlaps && *doubt == Doubt::Acked);
        }
    }

    /// The index of a sent packet: usually one of the last.
    fn index_of(&self, packet: u64) -> Option<usize> {
        let number = |it: &PendingPacket| it.disposition.packet;
        let mut last = self.sent.iter().rev().take(RECENT_PACKETS);
        match last.position(|it| number(it) == packet) {
            Some(after) => Some(self.sent.len() - 1 - after),
            None => self.sent.binary_search_by_key(&packet, number).ok(),
        }
    }

    /// The lower hull of the raw delays, for any clock drift.
    pub(crate) fn lowest(&self) -> &Hull {
        &self.lowest
    }

    /// Records the arrival of a sent packet.
    #[inline]
    pub(crate) fn set_arrival(&mut self, index: usize, arrival: Arrival) {
        if let Some(entry) = self.sent.get_mut(index) {
            entry.disposition.arrival = arrival;
            if let Some(delay_ns) = entry.disposition.raw_delay_ns() {
                let at_ns = entry.disposition.sent_ns;
                self.lowest.add(DelayPoint { at_ns, delay_ns });
            }
        }
        if let Some(fingerprint) = self.fingerprints.arrived(index) {
            if self.matched.len() < MAX_MATCHED {
                self.matched.push(fingerprint);
            } else {
                self.matched[self.matches % MAX_MATCHED] = fingerprint;
                self.matches = self.matches.wrapping_add(1);
            }
        }
    }

    /// Whether the oldest packet arrived, or was sent before `loss_deadline_ns`.
    #[inline]
    pub(crate) fn has_disposition(&self, loss_deadline_ns: i64) -> bool {
        self.sent
            .front()
            .is_some_and(|PendingPacket { disposition, .. }| {
                disposition.arrival != Arrival::Unknown || disposition.sent_ns < loss_deadline_ns
            })
    }

    /// Whether the arrival of the oldest packet is unknown.
    #[inline]
    pub(crate) fn front_is_unresolved(&self) -> bool {
        let first = self.sent.front();
        first.is_some_and(|first| first.disposition.arrival == Arrival::Unknown)
    }

    /// The payload positions of the oldest packet.
    pub(crate) fn next_payload(&self) -> (i64, i64) {
        let first = self.sent.front();
        first.map_or((0, 0), |first| {
            (first.disposition.start, first.disposition.end)
        })
    }

    /// Marks the oldest packet as lost. Exceptions: it may have arrived unseen, the other trace was
    /// off, or its bytes were in packets that were split or joined on the path.
    pub(crate) fn declare_lost(&mut self, covered: (i64, i64)) {
        let Some(first) = self.sent.front() else {
            return;
        };
        let sent = &first.disposition;
        let on = (covered.0..=covered.1).contains(&sent.sent_ns);
        if sent.arrival == Arrival::Unknown && on && first.doubt.is_none() && !self.may_be_old(sent)
        {
            self.sent[0].disposition.arrival = Arrival::Lost;
        }
    }

    /// Removes the oldest packet.
    #[inline]
    pub(crate) fn take_disposition(&mut self) -> Option<Disposition> {
        self.fingerprints.pop();
        Some(self.sent.pop_front()?.disposition)
    }
}
