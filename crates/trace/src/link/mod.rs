//! One direction of a connection between two traces.

pub(crate) mod hull;
mod prints;

use std::collections::VecDeque;

use crate::event::{Arrival, Fate, Passage};
use crate::prefetch;
use hull::{Hull, Point};
use prints::Prints;

/// One direction between the two traces: what was sent and has no fate yet, and what arrived and
/// waits for the trace at the sender to show it.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) passage: Passage,
    /// Of the raw delays of all that arrived, with payload or without.
    lowest: Hull,
    sent: VecDeque<Departed>,
    /// Of what was sent, in the same places.
    prints: Prints,
    shown: VecDeque<Shown>,
    /// Of the packets that matched last, to know duplicates by.
    matched: Vec<u64>,
    matches: usize,
    /// What the last ACK said that left the receiver.
    pub(crate) acked: Option<u32>,
    /// Whether a packet arrived that was cut or joined on the way.
    pub(crate) regrouped: bool,
}

const REMEMBERED: usize = 64;
/// More packets of a thin stream are seldom under way.
const LATELY: usize = 16;

/// A packet that has no fate yet, or was not told of.
#[derive(Debug)]
struct Departed {
    fate: Fate,
    /// Whether it may have arrived unseen: what it carried did, in one packet or another.
    doubtful: bool,
}

/// What the trace at the receiver shows and has not been entered yet, in its order.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Arrival(Waiting),
    /// An ACK left, of all before this sequence number.
    Ack(u32),
}

/// A packet that arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) print: u64,
    pub(crate) at_ns: i64,
    pub(crate) packet: u64,
    pub(crate) seq: u32,
    pub(crate) payload_len: u32,
}

/// What is clear next of what the trace at the receiver shows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Clear {
    Arrival(Waiting, Identity),
    /// An ACK left, of all before this sequence number.
    Ack(u32),
}

/// What an arriving packet turned out to be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Identity {
    /// This departure, as an index for [`Link::settle`].
    Sent(usize),
    /// One that had arrived before.
    Duplicate,
    /// None that was sent, not even when the other trace had been read well beyond it.
    Unknown,
}

impl Link {
    #[inline]
    pub(crate) fn depart(&mut self, print: u64, fate: Fate) {
        self.sent.push_back(Departed {
            fate,
            doubtful: false,
        });
        self.prints.push(print);
    }

    /// The departure after the one that matched last, if it has this fingerprint and no arrival
    /// waits.
    #[inline]
    pub(crate) fn expects(&self, print: u64) -> Option<usize> {
        let expected = self.prints.expected();
        let is_it = self.prints.get(expected) == Some(&print);
        (is_it && self.shown.is_empty()).then_some(expected)
    }

    /// Has the processor fetch what the next packet is compared with and stands behind.
    #[inline]
    pub(crate) fn fetch_kept(&self) {
        let expected = self.prints.expected();
        let sent = [self.sent.front(), self.sent.get(expected), self.sent.back()];
        sent.into_iter().flatten().for_each(prefetch);
        if let Some(print) = self.prints.get(expected) {
            prefetch(print);
        }
    }

    /// Whether there are arrivals of which it is not clear what they are.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        !self.shown.is_empty()
    }

    #[inline]
    pub(crate) fn arrive(&mut self, waiting: Waiting) {
        self.shown.push_back(Shown::Arrival(waiting));
    }

    /// An ACK left the receiver, behind arrivals of which it is not clear what they are.
    pub(crate) fn acknowledge(&mut self, ack: u32) {
        self.shown.push_back(Shown::Ack(ack));
    }

    /// What the trace at the receiver shows next, if it is clear what it is. All keeps its order.
    /// All is clear of what is before `certain_ns`.
    pub(crate) fn next_clear(&mut self, certain_ns: i64) -> Option<Clear> {
        let waiting = match *self.shown.front()? {
            Shown::Arrival(waiting) => waiting,
            Shown::Ack(ack) => {
                self.shown.pop_front();
                return Some(Clear::Ack(ack));
            }
        };
        let identity = if let Some(index) = self.prints.find(waiting.print) {
            Identity::Sent(index)
        } else if self.matched.contains(&waiting.print) {
            Identity::Duplicate
        } else if waiting.at_ns < certain_ns {
            Identity::Unknown
        } else {
            self.prints.searched();
            return None;
        };
        self.shown.pop_front();
        self.prints.begin_anew();
        Some(Clear::Arrival(waiting, identity))
    }

    #[inline]
    pub(crate) fn fate(&self, index: usize) -> Option<&Fate> {
        self.sent.get(index).map(|departed| &departed.fate)
    }

    /// Says that bytes arrived unseen, which these packets carried, by their numbers in the trace
    /// at the sender. A single one arrived; of several it is not known which.
    pub(crate) fn arrived_unseen(&mut self, packets: impl ExactSizeIterator<Item = u64>) {
        let only = packets.len() == 1;
        for packet in packets {
            let place = self.place_of(packet);
            if let Some(departed) = place.and_then(|place| self.sent.get_mut(place)) {
                departed.doubtful = true;
                if only && departed.fate.arrival == Arrival::Unknown {
                    departed.fate.arrival = Arrival::Unseen;
                }
            }
        }
    }

    /// Says that bytes arrived which these packets carried, in a packet that is none of those sent:
    /// they may have been joined or cut on the way.
    pub(crate) fn arrived_otherwise(&mut self, packets: impl Iterator<Item = u64>) {
        for packet in packets {
            let place = self.place_of(packet);
            if let Some(departed) = place.and_then(|place| self.sent.get_mut(place)) {
                departed.doubtful = true;
            }
        }
    }

    /// Where a packet stands among those sent: mostly it is one of the last.
    fn place_of(&self, packet: u64) -> Option<usize> {
        let number = |it: &Departed| it.fate.packet;
        let mut last = self.sent.iter().rev().take(LATELY);
        match last.position(|it| number(it) == packet) {
            Some(behind) => Some(self.sent.len() - 1 - behind),
            None => self.sent.binary_search_by_key(&packet, number).ok(),
        }
    }

    /// The lowest raw delays, by whatever drift of the clocks.
    pub(crate) fn lowest(&self) -> &Hull {
        &self.lowest
    }

    /// Says that a departure arrived.
    #[inline]
    pub(crate) fn settle(&mut self, index: usize, arrival: Arrival) {
        if let Some(departed) = self.sent.get_mut(index) {
            departed.fate.arrival = arrival;
            if let Some(delay_ns) = departed.fate.raw_delay_ns() {
                let at_ns = departed.fate.sent_ns;
                self.lowest.add(Point { at_ns, delay_ns });
            }
        }
        if let Some(print) = self.prints.arrived(index) {
            if self.matched.len() < REMEMBERED {
                self.matched.push(print);
            } else {
                self.matched[self.matches % REMEMBERED] = print;
                self.matches = self.matches.wrapping_add(1);
            }
        }
    }

    /// Whether the next packet in the order of sending arrived, or was sent before `given_up_ns`.
    #[inline]
    pub(crate) fn has_fate(&self, given_up_ns: i64) -> bool {
        self.sent.front().is_some_and(|Departed { fate, .. }| {
            fate.arrival != Arrival::Unknown || fate.sent_ns < given_up_ns
        })
    }

    /// Whether nothing shows that the next packet in the order of sending arrived.
    #[inline]
    pub(crate) fn gives_up(&self) -> bool {
        let first = self.sent.front();
        first.is_some_and(|first| first.fate.arrival == Arrival::Unknown)
    }

    /// The payload of the next packet in the order of sending.
    pub(crate) fn next_payload(&self) -> (i64, i64) {
        let first = self.sent.front();
        first.map_or((0, 0), |first| (first.fate.begin, first.fate.end))
    }

    /// Says that it was lost, if the other trace was on when it was sent, if it travelled as it is,
    /// which segments above the limit do not, and if it cannot have arrived unseen.
    pub(crate) fn give_up(&mut self, covered: (i64, i64), segment_limit: u32) {
        let Some(Departed { fate, doubtful }) = self.sent.front_mut() else {
            return;
        };
        let on = (covered.0..=covered.1).contains(&fate.sent_ns);
        let len = fate.begin.abs_diff(fate.end);
        let whole = len == 0 || !self.regrouped && len <= u64::from(segment_limit);
        if fate.arrival == Arrival::Unknown && on && whole && !*doubtful {
            fate.arrival = Arrival::Lost;
        }
    }

    /// Takes the next packet in the order of sending.
    #[inline]
    pub(crate) fn take_fate(&mut self) -> Option<Fate> {
        self.prints.pop();
        Some(self.sent.pop_front()?.fate)
    }
}
