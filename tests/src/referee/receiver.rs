//! An honest TCP receiver that has a manner of its own of acknowledging.

use std::time::{Duration, Instant};

/// A range from its first byte to behind its last, as positions in the stream.
pub type Range = (u32, u32);

/// How a receiver acknowledges, as it likes.
#[derive(Debug, Clone)]
pub struct Manner {
    /// The receiver acknowledges what is behind a gap (RFC 2018).
    pub sack: bool,
    /// The receiver reports duplicates (RFC 2883).
    pub reports: bool,
    /// Number of segments after which the receiver acknowledges at once.
    pub every: u32,
    /// The longest that the receiver delays an ACK.
    pub delay: Duration,
    /// Probability per packet that the receiver discards what it has behind a gap, though it
    /// acknowledged it.
    pub reneges: f64,
}

/// A report of a duplicate, and the packet that it came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    pub range: Range,
    pub packet: usize,
}

impl Report {
    /// Whether it is a report of all of this.
    pub fn has(&self, (start, end): Range) -> bool {
        self.range.0 <= start && end <= self.range.1
    }
}

#[derive(Debug, Clone)]
pub struct Ack {
    pub number: u32,
    pub report: Option<Report>,
    /// Ranges behind a gap, the newest first.
    pub blocks: Vec<Range>,
    /// The sender's clock, as the ACK echoes it.
    pub echo: u32,
}

/// A packet at the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    pub range: Range,
    /// True if the stream ends with the packet.
    pub fin: bool,
    /// The sender's clock as the packet left.
    pub clock: u32,
}

pub struct Receiver {
    manner: Manner,
    /// Position of the next byte expected.
    next: u32,
    /// Ranges that are there behind a gap, the newest first.
    beyond: Vec<Range>,
    /// Position where the stream ends, once that is known.
    fin: Option<u32>,
    report: Option<Report>,
    echo: u32,
    /// Packets whose report another one took the place of before it was sent.
    unreported: Vec<usize>,
    /// Packets whose report has no room for all that came twice with them.
    reported_in_part: Vec<usize>,
    waiting: u32,
    due: Option<Instant>,
}

impl Receiver {
    pub fn new(manner: Manner) -> Self {
        Self {
            manner,
            next: 1,
            beyond: Vec::new(),
            fin: None,
            report: None,
            echo: 0,
            unreported: Vec::new(),
            reported_in_part: Vec::new(),
            waiting: 0,
            due: None,
        }
    }

    /// True if the stream has come to its end.
    pub fn is_complete(&self) -> bool {
        self.fin.is_some_and(|end| self.next > end)
    }

    /// When the receiver acknowledges what it has not so far.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The parts of a range that are not there.
    pub fn lacks(&self, (start, end): Range) -> Vec<Range> {
        let mut there = self.beyond.clone();
        there.sort_unstable();
        let mut at = start.max(self.next);
        let mut lacking = Vec::new();
        for (from, to) in there {
            if from > at && at < end {
                lacking.push((at, from.min(end)));
            }
            at = at.max(to);
        }
        if at < end {
            lacking.push((at, end));
        }
        lacking
    }

    /// Takes in a packet; returns the ACK, if one is sent at once.
    pub fn receive(&mut self, packet: usize, arrival: Arrival, now: Instant) -> Option<Ack> {
        let Arrival { range, fin, clock } = arrival;
        if fin {
            self.fin = Some(range.1);
        }
        if range.0 <= self.next {
            self.echo = clock;
        }
        let at_once = range.0 == range.1 || self.take(packet, range);
        if self.fin == Some(self.next) {
            self.next += 1;
        }
        self.waiting += 1;
        if at_once || self.is_complete() || self.waiting >= self.manner.every {
            return Some(self.acknowledge());
        }
        self.due = self.due.or(Some(now + self.manner.delay));
        None
    }

    /// Takes in a range; true if it is to be acknowledged at once: something is missing, or came
    /// twice.
    fn take(&mut self, packet: usize, (start, end): Range) -> bool {
        if end <= self.next {
            self.report_new(packet, (start, end));
            return true;
        }
        if start > self.next {
            self.keep(packet, (start, end));
            return true;
        }
        if start < self.next {
            self.report_new(packet, (start, self.next));
        }
        self.next = end;
        let gap_was = !self.beyond.is_empty();
        self.beyond.sort_unstable();
        while let Some((from, to)) = self.beyond.first().copied() {
            if from > self.next {
                break;
            }
            if from < end {
                self.report_more(packet, (from, to.min(end)));
            }
            self.next = self.next.max(to);
            self.beyond.remove(0);
        }
        gap_was
    }

    /// Keeps what is behind a gap, and reports what of it was there.
    fn keep(&mut self, packet: usize, (mut start, mut end): Range) {
        for (at, (from, to)) in self.beyond.clone().into_iter().enumerate() {
            if from <= start && end <= to {
                self.report_new(packet, (start, end));
                self.beyond[..=at].rotate_right(1);
                return;
            }
            if start < to && from < end {
                self.report_new(packet, (start.max(from), end.min(to)));
            }
        }
        self.beyond.retain(|(from, to)| {
            let apart = *to < start || *from > end;
            if !apart {
                start = start.min(*from);
                end = end.max(*to);
            }
            apart
        });
        self.beyond.insert(0, (start, end));
    }

    fn report_new(&mut self, packet: usize, range: Range) {
        let before = self.report.replace(Report { range, packet });
        self.unreported.extend(before.map(|report| report.packet));
    }

    /// Packets of which the receiver will not report that they brought what was there.
    pub fn unreported(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.unreported)
    }

    /// Packets of which the receiver will not report all that they brought twice.
    pub fn reported_in_part(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.reported_in_part)
    }

    /// Adds a range to the report, which has room for one: what does not adjoin is left out.
    fn report_more(&mut self, packet: usize, (start, end): Range) {
        match &mut self.report {
            None => self.report_new(packet, (start, end)),
            Some(report) if report.range.0 <= end && start <= report.range.1 => {
                report.range = (report.range.0.min(start), report.range.1.max(end));
            }
            Some(_) => self.reported_in_part.push(packet),
        }
    }

    /// The ACK that says what is there, and what came twice.
    pub fn acknowledge(&mut self) -> Ack {
        self.waiting = 0;
        self.due = None;
        let report = self.report.take();
        let can = self.manner.sack;
        Ack {
            number: self.next,
            report: report.filter(|_| can && self.manner.reports),
            blocks: self
                .beyond
                .iter()
                .copied()
                .filter(|_| can)
                .take(2)
                .collect(),
            echo: self.echo,
        }
    }

    /// Discards what is behind a gap, though it was acknowledged.
    pub fn renege(&mut self) {
        self.beyond.clear();
    }

    /// Probability per packet that the receiver discards what is behind a gap.
    pub fn reneges(&self) -> f64 {
        self.manner.reneges
    }
}
