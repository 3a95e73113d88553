//! Correct TCP receiver with configurable acknowledgement behaviour.

use std::time::{Duration, Instant};

/// Range from the first byte to the position after the last, as positions in the stream.
pub type Range = (u32, u32);

/// Acknowledgement behaviour of a receiver.
#[derive(Debug, Clone)]
pub struct AckBehaviour {
    /// Acknowledges data received out of order (RFC 2018).
    pub sack: bool,
    /// Reports duplicates (RFC 2883).
    pub dsacks: bool,
    /// Number of segments after which the receiver acknowledges immediately.
    pub every: u32,
    /// Maximum delay of an ACK.
    pub delay: Duration,
    /// Probability per packet that the receiver discards its out-of-order data after acknowledging
    /// it.
    pub reneges: f64,
}

/// DSACK, and the packet that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dsack {
    pub range: Range,
    pub packet: usize,
}

impl Dsack {
    /// Returns whether the DSACK covers this range.
    pub fn has(&self, (start, end): Range) -> bool {
        self.range.0 <= start && end <= self.range.1
    }
}

#[derive(Debug, Clone)]
pub struct Ack {
    pub number: u32,
    pub dsack: Option<Dsack>,
    /// SACK blocks, newest first.
    pub blocks: Vec<Range>,
    /// Echoed timestamp of the sender.
    pub echo: u32,
}

/// Packet at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    pub range: Range,
    /// True if the stream ends with the packet.
    pub fin: bool,
    /// The sender's timestamp when the packet left.
    pub clock: u32,
}

pub struct Receiver {
    ack_behaviour: AckBehaviour,
    /// Position of the next expected byte.
    next: u32,
    /// Ranges received out of order, newest first.
    out_of_order: Vec<Range>,
    /// Position of the stream's end, once known.
    fin: Option<u32>,
    dsack: Option<Dsack>,
    echo: u32,
    /// Packets whose DSACK was replaced before it was sent.
    unreported: Vec<usize>,
    /// Packets whose DSACK has no room for all their duplicate ranges.
    partly_reported: Vec<usize>,
    waiting: u32,
    due: Option<Instant>,
}

impl Receiver {
    pub fn new(ack_behaviour: AckBehaviour) -> Self {
        Self {
            ack_behaviour,
            next: 1,
            out_of_order: Vec::new(),
            fin: None,
            dsack: None,
            echo: 0,
            unreported: Vec::new(),
            partly_reported: Vec::new(),
            waiting: 0,
            due: None,
        }
    }

    /// Returns true if the whole stream has arrived.
    pub fn is_complete(&self) -> bool {
        self.fin.is_some_and(|end| self.next > end)
    }

    /// Returns when a delayed ACK is due.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the missing parts of a range.
    pub fn missing_in(&self, (start, end): Range) -> Vec<Range> {
        let mut there = self.out_of_order.clone();
        there.sort_unstable();
        let mut at = start.max(self.next);
        let mut missing = Vec::new();
        for (from, to) in there {
            if from > at && at < end {
                missing.push((at, from.min(end)));
            }
            at = at.max(to);
        }
        if at < end {
            missing.push((at, end));
        }
        missing
    }

    /// Receives a packet. Returns an ACK if it is sent immediately.
    pub fn receive(&mut self, packet: usize, arrival: Arrival, now: Instant) -> Option<Ack> {
        let Arrival { range, fin, clock } = arrival;
        if fin {
            self.fin = Some(range.1);
        }
        if range.0 <= self.next {
            self.echo = clock;
        }
        let immediately = range.0 == range.1 || self.take(packet, range);
        if self.fin == Some(self.next) {
            self.next += 1;
        }
        self.waiting += 1;
        if immediately || self.is_complete() || self.waiting >= self.ack_behaviour.every {
            return Some(self.acknowledge());
        }
        self.due = self.due.or(Some(now + self.ack_behaviour.delay));
        None
    }

    /// Receives a range. Returns true if it requires an immediate ACK: after a gap, or for a
    /// duplicate.
    fn take(&mut self, packet: usize, (start, end): Range) -> bool {
        if end <= self.next {
            self.start_dsack(packet, (start, end));
            return true;
        }
        if start > self.next {
            self.store(packet, (start, end));
            return true;
        }
        if start < self.next {
            self.start_dsack(packet, (start, self.next));
        }
        self.next = end;
        let had_gap = !self.out_of_order.is_empty();
        self.out_of_order.sort_unstable();
        while let Some((from, to)) = self.out_of_order.first().copied() {
            if from > self.next {
                break;
            }
            if from < end {
                self.extend_dsack(packet, (from, to.min(end)));
            }
            self.next = self.next.max(to);
            self.out_of_order.remove(0);
        }
        had_gap
    }

    /// Stores out-of-order data, and reports the parts already received.
    fn store(&mut self, packet: usize, (mut start, mut end): Range) {
        for (at, (from, to)) in self.out_of_order.clone().into_iter().enumerate() {
            if from <= start && end <= to {
                self.start_dsack(packet, (start, end));
                self.out_of_order[..=at].rotate_right(1);
                return;
            }
            if start < to && from < end {
                self.start_dsack(packet, (start.max(from), end.min(to)));
            }
        }
        self.out_of_order.retain(|(from, to)| {
            let apart = *to < start || *from > end;
            if !apart {
                start = start.min(*from);
                end = end.max(*to);
            }
            apart
        });
        self.out_of_order.insert(0, (start, end));
    }

    fn start_dsack(&mut self, packet: usize, range: Range) {
        let before = self.dsack.replace(Dsack { range, packet });
        self.unreported.extend(before.map(|dsack| dsack.packet));
    }

    /// Returns packets whose duplicates will not be reported.
    pub fn take_unreported(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unreported)
    }

    /// Returns packets whose duplicates will be reported only in part.
    pub fn partly_reported(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.partly_reported)
    }

    /// Adds a range to the DSACK, which holds one range: a range that does not adjoin is ignored.
    fn extend_dsack(&mut self, packet: usize, (start, end): Range) {
        match &mut self.dsack {
            None => self.start_dsack(packet, (start, end)),
            Some(dsack) if dsack.range.0 <= end && start <= dsack.range.1 => {
                dsack.range = (dsack.range.0.min(start), dsack.range.1.max(end));
            }
            Some(_) => self.partly_reported.push(packet),
        }
    }

    /// Returns an ACK with the received ranges and the DSACK.
    pub fn acknowledge(&mut self) -> Ack {
        self.waiting = 0;
        self.due = None;
        let dsack = self.dsack.take();
        let can = self.ack_behaviour.sack;
        Ack {
            number: self.next,
            dsack: dsack.filter(|_| can && self.ack_behaviour.dsacks),
            blocks: self
                .out_of_order
                .iter()
                .copied()
                .filter(|_| can)
                .take(2)
                .collect(),
            echo: self.echo,
        }
    }

    /// Discards out-of-order data, although it was acknowledged.
    pub fn renege(&mut self) {
        self.out_of_order.clear();
    }

    /// Returns the probability per packet that out-of-order data is discarded.
    pub fn reneges(&self) -> f64 {
        self.ack_behaviour.reneges
    }
}
