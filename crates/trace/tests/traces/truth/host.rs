//! A TCP of few rules, enough to make every kind of packet that an analysis meets.

use std::collections::BTreeMap;

use pillion_trace::{Flags, SackBlocks};

use super::{MS, Plan};

/// Payload that a segment carries at most.
pub const MSS: i64 = 1000;

/// A segment about to leave, by positions: SYN at 0, payload from 1 on.
#[derive(Debug, Clone)]
pub struct Segment {
    pub begin: i64,
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
    /// Behind what the application wrote.
    written: i64,
    closed: bool,
    una: i64,
    nxt: i64,
    /// Segments that are not acknowledged: begin, end.
    flying: Vec<(i64, i64)>,
    sacked: BTreeMap<i64, i64>,
    duplicate_acks: u32,
    pub timer_ns: Option<i64>,
    backoff: u32,
    /// All before this was received in order.
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

    fn segment(&mut self, now_ns: i64, begin: i64, end: i64) -> Segment {
        self.id = self.id.wrapping_add(1);
        self.ack_timer_ns = None;
        self.waiting_acks = 0;
        let opening = end == 0 && begin == 0;
        let fin = self.closed && end == self.written + 1 && !opening;
        Segment {
            begin,
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

    fn fly(&mut self, now_ns: i64) {
        if self.timer_ns.is_none() {
            self.timer_ns = Some(now_ns + ((200 * MS) << self.backoff.min(5)));
        }
    }

    pub fn open(&mut self, now_ns: i64) -> Vec<Segment> {
        self.nxt = 1;
        self.flying.push((0, 0));
        self.fly(now_ns);
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

    /// Sends what is new.
    fn send(&mut self, now_ns: i64) -> Vec<Segment> {
        let mut out = Vec::new();
        if self.una == 0 {
            return out;
        }
        let all = self.written + i64::from(self.closed);
        while self.nxt < all && self.flying.len() < 40 {
            let mut begin = self.nxt;
            let end = (begin + MSS).min(all);
            self.flying.push((begin, end));
            if self.bundles
                && let [.., before, _] = self.flying[..]
                && before.1 == begin
                && before.0 > 0
                && end - before.0 <= MSS
            {
                begin = before.0;
            }
            self.nxt = end;
            out.push(self.segment(now_ns, begin, end));
        }
        if !out.is_empty() {
            self.fly(now_ns);
        }
        out
    }

    /// Sends the first segment again that is not acknowledged, one way or other.
    fn again(&mut self, now_ns: i64) -> Vec<Segment> {
        let missing = self
            .flying
            .iter()
            .find(|(begin, end)| !self.sacked.iter().any(|(l, r)| l <= begin && end <= r));
        let Some(&(begin, end)) = missing else {
            return Vec::new();
        };
        let begin = begin.max(self.una);
        if begin == 0 {
            return vec![self.segment(now_ns, 0, 0)];
        }
        self.turns += 1;
        let end = match self.turns % 3 {
            1 if self.repacketises => (begin + 7).min(end),
            2 if self.repacketises => (begin + MSS).min(self.nxt),
            _ => end,
        };
        vec![self.segment(now_ns, begin, end)]
    }

    /// A time-out.
    pub fn fire(&mut self, now_ns: i64) -> Vec<Segment> {
        self.timer_ns = None;
        self.backoff += 1;
        self.duplicate_acks = 0;
        self.sacked.clear();
        let out = self.again(now_ns);
        self.fly(now_ns);
        out
    }

    /// The delayed ACK.
    pub fn acknowledge(&mut self, now_ns: i64) -> Vec<Segment> {
        vec![self.bare(now_ns, None)]
    }

    fn bare(&mut self, now_ns: i64, dsack: Option<(i64, i64)>) -> Segment {
        let at = self.nxt;
        let mut ack = self.segment(now_ns, at, at);
        ack.flags.fin = false;
        ack.end = ack.begin;
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

    /// Takes a segment, and answers.
    pub fn receive(&mut self, now_ns: i64, segment: &Segment) -> Vec<Segment> {
        let mut out = Vec::new();
        if let Some((value, _)) = segment.timestamps
            && segment.begin <= self.received
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
        let (begin, end) = (segment.begin, segment.end + i64::from(segment.flags.fin));
        self.peer_fin = self.peer_fin.or(fin_at);
        if begin < end || segment.flags.syn {
            out.extend(self.take(now_ns, begin, end));
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
            self.flying
                .retain(|(begin, end)| (*end).max(begin + 1) > ack);
            self.backoff = 0;
            self.duplicate_acks = 0;
            self.timer_ns = None;
            if !self.flying.is_empty() {
                self.fly(now_ns);
            }
            out.extend(self.send(now_ns));
        } else if ack == self.una && segment.begin == segment.end && !self.flying.is_empty() {
            self.duplicate_acks += 1;
            if self.duplicate_acks == 3 {
                out.extend(self.again(now_ns));
            }
        }
        out
    }

    fn take(&mut self, now_ns: i64, begin: i64, end: i64) -> Vec<Segment> {
        let had_gap = !self.beyond.is_empty();
        let old = (begin < self.received).then(|| (begin, end.min(self.received)));
        let covered = self.beyond.iter().find(|(l, r)| **l <= begin && end <= **r);
        let old = old.or(covered.map(|_| (begin, end)));
        let in_order = begin <= self.received && end > self.received;
        if end > self.received && begin < end {
            self.put(begin.max(self.received), end);
            self.last_block = Some((begin.max(self.received), end));
        }
        let usual = in_order && !had_gap && begin == self.received;
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

    fn put(&mut self, mut begin: i64, mut end: i64) {
        let touching: Vec<i64> = self
            .beyond
            .range(..=end)
            .filter(|(_, r)| **r >= begin)
            .map(|(l, _)| *l)
            .collect();
        for left in touching {
            let right = self.beyond.remove(&left).unwrap_or(left);
            (begin, end) = (begin.min(left), end.max(right));
        }
        self.beyond.insert(begin, end);
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
