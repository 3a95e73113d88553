//! A minimal TCP that produces every kind of packet relevant to an analysis.

use std::collections::BTreeMap;

use pillion_trace::{Flags, SackBlocks};

use super::{MS, Plan};

/// Maximum payload of a segment.
pub const MSS: i64 = 1000;

/// A segment to be sent, by positions: SYN at 0, payload from 1 on.
#[derive(Debug, Clone)]
pub struct Segment {
    pub start: i64,
    pub end: i64,
    pub ack: Option<i64>,
    pub sack: Vec<(i64, i64)>,
    pub flags: Flags,
    pub window: u16,
    pub timestamps: Option<(u32, u32)>,
    pub id: u16,
}

/// One end of a connection.
#[derive(Debug, Default)]
pub struct Host {
    is_client: bool,
    sack: bool,
    timestamps: bool,
    bundles: bool,
    delays_acks: bool,
    repacketises: bool,
    /// Position after the last byte that the application wrote.
    written: i64,
    closed: bool,
    una: i64,
    nxt: i64,
    /// Unacknowledged segments: start, end.
    in_flight: Vec<(i64, i64)>,
    sacked: BTreeMap<i64, i64>,
    duplicate_acks: u32,
    pub timer_ns: Option<i64>,
    backoff: u32,
    /// All bytes before this position were received in order.
    received: i64,
    beyond: BTreeMap<i64, i64>,
    peer_fin: Option<i64>,
    last_block: Option<(i64, i64)>,
    pub ack_timer_ns: Option<i64>,
    waiting_acks: u32,
    echo: u32,
    id: u16,
    turns: u32,
}

impl Host {
    pub fn new(plan: &Plan, is_client: bool) -> Self {
        Self {
            is_client,
            sack: plan.sack,
            timestamps: plan.timestamps,
            bundles: plan.bundles && is_client,
            delays_acks: plan.delays_acks,
            repacketises: plan.repacketises,
            written: 1,
            id: if is_client { 100 } else { 30_000 },
            ..Self::default()
        }
    }

    /// Whether all was sent and acknowledged.
    pub fn is_done(&self) -> bool {
        self.closed && self.una > self.written
    }

    fn segment(&mut self, now_ns: i64, start: i64, end: i64) -> Segment {
        self.id = self.id.wrapping_add(1);
        self.ack_timer_ns = None;
        self.waiting_acks = 0;
        let opening = end == 0 && start == 0;
        let fin = self.closed && end == self.written + 1 && !opening;
        Segment {
            start,
            end: if fin { end - 1 } else { end },
            ack: (self.received > 0).then_some(self.received),
            sack: Vec::new(),
            flags: Flags {
                syn: opening,
                fin,
                ..Flags::default()
            },
            window: 500,
            timestamps: self.timestamps.then_some(((now_ns / MS) as u32, self.echo)),
            id: self.id,
        }
    }

    fn restart_timer(&mut self, now_ns: i64) {
        if self.timer_ns.is_none() {
            self.timer_ns = Some(now_ns + ((200 * MS) << self.backoff.min(5)));
        }
    }

    pub fn open(&mut self, now_ns: i64) -> Vec<Segment> {
        self.nxt = 1;
        self.in_flight.push((0, 0));
        self.restart_timer(now_ns);
        vec![self.segment(now_ns, 0, 0)]
    }

    pub fn write(&mut self, now_ns: i64, bytes: i64) -> Vec<Segment> {
        self.written += bytes;
        self.send(now_ns)
    }

    pub fn close(&mut self, now_ns: i64) -> Vec<Segment> {
        self.closed = true;
        self.send(now_ns)
    }

    /// Sends new data.
    fn send(&mut self, now_ns: i64) -> Vec<Segment> {
        let mut out = Vec::new();
        if self.una == 0 {
            return out;
        }
        let all = self.written + i64::from(self.closed);
        while self.nxt < all && self.in_flight.len() < 40 {
            let mut start = self.nxt;
            let end = (start + MSS).min(all);
            self.in_flight.push((start, end));
            if self.bundles
                && let [.., before, _] = self.in_flight[..]
                && before.1 == start
                && before.0 > 0
                && end - before.0 <= MSS
            {
                start = before.0;
            }
            self.nxt = end;
            out.push(self.segment(now_ns, start, end));
        }
        if !out.is_empty() {
            self.restart_timer(now_ns);
        }
        out
    }

    /// Retransmits the first unacknowledged segment, alone or bundled.
    fn retransmit(&mut self, now_ns: i64) -> Vec<Segment> {
        let missing = self
            .in_flight
            .iter()
            .find(|(start, end)| !self.sacked.iter().any(|(l, r)| l <= start && end <= r));
        let Some(&(start, end)) = missing else {
            return Vec::new();
        };
        let start = start.max(self.una);
        if start == 0 {
            return vec![self.segment(now_ns, 0, 0)];
        }
        self.turns += 1;
        let end = match self.turns % 3 {
            1 if self.repacketises => (start + 7).min(end),
            2 if self.repacketises => (start + MSS).min(self.nxt),
            _ => end,
        };
        vec![self.segment(now_ns, start, end)]
    }

    /// Handles a retransmission timeout.
    pub fn handle_timeout(&mut self, now_ns: i64) -> Vec<Segment> {
        self.timer_ns = None;
        self.backoff += 1;
        self.duplicate_acks = 0;
        self.sacked.clear();
        let out = self.retransmit(now_ns);
        self.restart_timer(now_ns);
        out
    }

    /// Sends the delayed ACK.
    pub fn acknowledge(&mut self, now_ns: i64) -> Vec<Segment> {
        vec![self.bare(now_ns, None)]
    }

    fn bare(&mut self, now_ns: i64, dsack: Option<(i64, i64)>) -> Segment {
        let at = self.nxt;
        let mut ack = self.segment(now_ns, at, at);
        ack.flags.fin = false;
        ack.end = ack.start;
        if self.sack {
            ack.sack.extend(dsack);
            let room = if self.timestamps { 3 } else { 4 };
            let recent = self.last_block.and_then(|(left, _)| {
                let (l, r) = self.beyond.range(..=left).next_back()?;
                (left < *r).then_some((*l, *r))
            });
            ack.sack.extend(recent);
            for (l, r) in &self.beyond {
                if ack.sack.len() < room && Some((*l, *r)) != recent {
                    ack.sack.push((*l, *r));
                }
            }
        }
        ack
    }

    /// Processes a segment and returns the response.
    pub fn receive(&mut self, now_ns: i64, segment: &Segment) -> Vec<Segment> {
        let mut out = Vec::new();
        if let Some((value, _)) = segment.timestamps
            && segment.start <= self.received
        {
            self.echo = self.echo.max(value);
        }
        if segment.flags.syn {
            if self.received == 0 {
                self.received = 1;
                if !self.is_client {
                    self.una = 0;
                    return self.open(now_ns);
                }
            } else if !self.is_client && self.una == 0 {
                return vec![self.segment(now_ns, 0, 0)];
            } else {
                return vec![self.bare(now_ns, None)];
            }
        }
        if self.received == 0 {
            return out;
        }
        if let Some(ack) = segment.ack {
            out.extend(self.acked(now_ns, ack, segment));
        }
        let fin_at = segment.flags.fin.then_some(segment.end);
        let (start, end) = (segment.start, segment.end + i64::from(segment.flags.fin));
        self.peer_fin = self.peer_fin.or(fin_at);
        if start < end || segment.flags.syn {
            out.extend(self.take(now_ns, start, end));
        }
        out
    }

    fn acked(&mut self, now_ns: i64, ack: i64, segment: &Segment) -> Vec<Segment> {
        let mut out = Vec::new();
        for &(left, right) in &segment.sack {
            if left >= ack {
                self.sacked.insert(left, right);
            }
        }
        if ack > self.una && ack <= self.nxt {
            self.una = ack;
            self.in_flight
                .retain(|(start, end)| (*end).max(start + 1) > ack);
            self.backoff = 0;
            self.duplicate_acks = 0;
            self.timer_ns = None;
            if !self.in_flight.is_empty() {
                self.restart_timer(now_ns);
            }
            out.extend(self.send(now_ns));
        } else if ack == self.una && segment.start == segment.end && !self.in_flight.is_empty() {
            self.duplicate_acks += 1;
            if self.duplicate_acks == 3 {
                out.extend(self.retransmit(now_ns));
            }
        }
        out
    }

    fn take(&mut self, now_ns: i64, start: i64, end: i64) -> Vec<Segment> {
        let had_gap = !self.beyond.is_empty();
        let old = (start < self.received).then(|| (start, end.min(self.received)));
        let covered = self.beyond.iter().find(|(l, r)| **l <= start && end <= **r);
        let old = old.or(covered.map(|_| (start, end)));
        let in_order = start <= self.received && end > self.received;
        if end > self.received && start < end {
            self.put(start.max(self.received), end);
            self.last_block = Some((start.max(self.received), end));
        }
        let usual = in_order && !had_gap && start == self.received;
        while let Some((&left, &right)) = self.beyond.first_key_value()
            && left <= self.received
        {
            self.received = self.received.max(right);
            self.beyond.pop_first();
        }
        self.waiting_acks += 1;
        if self.delays_acks && usual && self.waiting_acks < 2 && self.peer_fin.is_none() {
            self.ack_timer_ns.get_or_insert(now_ns + 40 * MS);
            return Vec::new();
        }
        vec![self.bare(now_ns, old)]
    }

    fn put(&mut self, mut start: i64, mut end: i64) {
        let touching: Vec<i64> = self
            .beyond
            .range(..=end)
            .filter(|(_, r)| **r >= start)
            .map(|(l, _)| *l)
            .collect();
        for left in touching {
            let right = self.beyond.remove(&left).unwrap_or(left);
            (start, end) = (start.min(left), end.max(right));
        }
        self.beyond.insert(start, end);
    }
}

impl Segment {
    /// The SACK option on the wire.
    pub fn blocks(&self, initial: u32) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for &(left, right) in &self.sack {
            let edge = |position: i64| initial.wrapping_add(position as u32);
            blocks.push(edge(left), edge(right));
        }
        blocks
    }
}
