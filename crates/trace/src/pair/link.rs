use std::collections::VecDeque;

use super::fate::{Arrival, Fate, Passage};

/// One direction between the two traces: what was sent and has no fate yet, and what arrived and
/// waits for the trace at the sender to show it.
#[derive(Debug, Default)]
pub(crate) struct Link {
    pub(crate) passage: Passage,
    sent: VecDeque<Departure>,
    /// The departure after the one that matched last: packets mostly keep their order.
    expected: usize,
    arrived: VecDeque<Waiting>,
    /// Of the packets that matched last, to know duplicates by.
    matched: [u64; 16],
    matches: usize,
    /// Whether a packet arrived that was cut or joined on the way.
    pub(crate) regrouped: bool,
}

#[derive(Debug)]
struct Departure {
    print: u64,
    fate: Fate,
    settled: bool,
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
    pub(crate) fn depart(&mut self, print: u64, fate: Fate) {
        self.sent.push_back(Departure {
            print,
            fate,
            settled: false,
        });
    }

    pub(crate) fn arrive(&mut self, waiting: Waiting) {
        self.arrived.push_back(waiting);
    }

    /// The next packet that arrived, if it is clear what it is. Arrivals keep their order. All
    /// is clear of those before `certain_ns`.
    pub(crate) fn next_arrival(&mut self, certain_ns: i64) -> Option<(Waiting, Identity)> {
        let waiting = *self.arrived.front()?;
        let identity = if let Some(index) = self.departure_of(waiting.print) {
            Identity::Sent(index)
        } else if self.matched.contains(&waiting.print) {
            Identity::Duplicate
        } else if waiting.at_ns < certain_ns {
            Identity::Unknown
        } else {
            return None;
        };
        self.arrived.pop_front();
        Some((waiting, identity))
    }

    fn departure_of(&mut self, print: u64) -> Option<usize> {
        let is_it = |departure: &Departure| departure.print == print && !departure.settled;
        let expected = self.expected.min(self.sent.len());
        let ahead = self.sent.range(expected..).position(is_it);
        ahead
            .map(|further| expected + further)
            .or_else(|| self.sent.range(..expected).position(is_it))
    }

    pub(crate) fn fate(&self, index: usize) -> Option<&Fate> {
        self.sent.get(index).map(|departure| &departure.fate)
    }

    /// Says that a departure arrived.
    pub(crate) fn settle(&mut self, index: usize, arrival: Arrival) {
        if let Some(departure) = self.sent.get_mut(index) {
            departure.fate.arrival = arrival;
            departure.settled = true;
            self.matched[self.matches % self.matched.len()] = departure.print;
            self.matches = self.matches.wrapping_add(1);
            self.expected = self.expected.max(index + 1);
        }
    }

    /// The next packet in the order of sending, counted, if its fate is known; one that was sent
    /// before `given_up_ns` and did not arrive is lost, if it was sent when the other trace was
    /// on and travelled as it is: segments above the limit do not.
    pub(crate) fn next_fate(
        &mut self,
        given_up_ns: i64,
        covered: (i64, i64),
        segment_limit: u32,
    ) -> Option<Fate> {
        let first = self.sent.front()?;
        if !first.settled && first.fate.sent_ns >= given_up_ns {
            return None;
        }
        let mut departure = self.sent.pop_front()?;
        self.expected = self.expected.saturating_sub(1);
        let fate = &mut departure.fate;
        if !departure.settled {
            let known = (covered.0..=covered.1).contains(&fate.sent_ns);
            let len = fate.begin.abs_diff(fate.end);
            let whole = len == 0 || !self.regrouped && len <= u64::from(segment_limit);
            fate.arrival = if known && whole {
                Arrival::Lost
            } else {
                Arrival::Unknown
            };
        }
        self.passage.count(fate);
        Some(*fate)
    }
}
