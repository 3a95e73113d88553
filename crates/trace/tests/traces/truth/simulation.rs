//! Simulated conversations over a path, with the true history of each packet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use pillion_trace::{Endpoint, Packet, Timestamps};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::host::{Host, MSS, Segment};
use super::{CaptureParameters, MS, Plan};

/// A packet in a trace, and its true identity.
#[derive(Debug, Clone)]
pub struct Record {
    pub packet: Packet,
    /// True time.
    pub true_ns: i64,
    pub connection: usize,
    /// 0 from the client, 1 from the server.
    pub way: usize,
    /// The transmissions that it contains; several if segments were joined.
    pub sent: Vec<u64>,
}

/// Both traces, and the truth.
#[derive(Debug)]
pub struct Simulation {
    pub plan: Plan,
    pub traces: [Vec<Record>; 2],
    /// Whether each transmission arrived.
    pub arrived: Vec<bool>,
    /// Initial sequence numbers of each connection.
    pub initial: Vec<[u32; 2]>,
}

enum Event {
    Open,
    Write(usize, i64),
    Close,
    Arrive {
        way: usize,
        segment: Segment,
        sent: u64,
    },
    Timer(usize),
    AckTimer(usize),
}

struct Run<'a> {
    plan: &'a Plan,
    random: &'a mut Pcg64Mcg,
    connection: usize,
    initial: [u32; 2],
    hosts: [Host; 2],
    events: BinaryHeap<(Reverse<(i64, u64)>, usize)>,
    made: Vec<Option<Event>>,
    /// Pending timer events per host.
    timers: [[Option<i64>; 2]; 2],
    in_loss: [bool; 2],
    last_arrival_ns: [i64; 2],
    /// Client's side, server's side.
    seen: [Vec<Record>; 2],
    arrived: Vec<bool>,
}

impl Simulation {
    pub fn run(plan: Plan) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed ^ 0x5eed);
        let (mut seen, mut arrived, mut all) = ([Vec::new(), Vec::new()], Vec::new(), Vec::new());
        let mut start_ns = 0;
        for connection in 0..plan.port_uses as usize {
            let step = 0x0123_4567_u32.wrapping_mul(connection as u32);
            let initial = plan.initial.map(|initial| initial.wrapping_add(step));
            all.push(initial);
            let mut run = Run {
                plan: &plan,
                random: &mut random,
                connection,
                initial,
                hosts: [Host::new(&plan, true), Host::new(&plan, false)],
                events: BinaryHeap::new(),
                made: Vec::new(),
                timers: [[None; 2]; 2],
                in_loss: [false; 2],
                last_arrival_ns: [0; 2],
                seen,
                arrived,
            };
            let end_ns = run.play(start_ns);
            (seen, arrived) = (run.seen, run.arrived);
            start_ns = end_ns + 700 * MS;
        }
        let traces = [0, 1].map(|side| plan.captures.show(side, &seen[side], &mut random));
        Self {
            plan,
            traces,
            arrived,
            initial: all,
        }
    }

    /// Both traces as text, one line per packet.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (side, trace) in ["client", "server"].iter().zip(&self.traces) {
            for record in trace {
                let Record {
                    packet,
                    way,
                    connection,
                    sent,
                    ..
                } = record;
                let initial = self.initial[*connection];
                let seq = packet.seq.wrapping_sub(initial[*way]) as i32;
                let edge = |edge: u32| edge.wrapping_sub(initial[1 - way]) as i32;
                let sack = packet.sack.as_slice().iter();
                let sack: Vec<_> = sack
                    .map(|(left, right)| (edge(*left), edge(*right)))
                    .collect();
                let flags = [(packet.flags.syn, "SYN"), (packet.flags.fin, "FIN")];
                let flags: Vec<_> = flags.iter().filter(|it| it.0).map(|it| it.1).collect();
                text += &format!(
                    "{side} {} {:.3} ms, {connection}.{way} {seq}+{} ack {:?} {sack:?} {flags:?} \
                     {sent:?}\n",
                    packet.number,
                    record.true_ns as f64 / MS as f64,
                    packet.payload_len,
                    packet.ack.map(edge),
                );
            }
        }
        text
    }

    /// Whether both traces have enough packets of one direction of a connection to identify the
    /// ends. One is enough if they show the handshake.
    pub fn shows_at_both_ends(&self, connection: usize, way: usize) -> bool {
        let of = |side: usize| {
            let records = self.traces[side].iter();
            let records = records.filter(|it| it.connection == connection && it.way == way);
            records.flat_map(|it| &it.sent).collect::<Vec<_>>()
        };
        let there = of(1);
        let both = of(0).iter().filter(|sent| there.contains(sent)).count();
        both >= if self.plan.captures.start_ns == [0; 2] {
            1
        } else {
            10
        }
    }

    pub fn packets(&self, side: usize) -> Vec<Packet> {
        self.traces[side]
            .iter()
            .map(|record| record.packet)
            .collect()
    }
}

impl Run<'_> {
    fn at(&mut self, ns: i64, event: Event) {
        self.made.push(Some(event));
        let index = self.made.len() - 1;
        self.events.push((Reverse((ns, index as u64)), index));
    }

    fn play(&mut self, start_ns: i64) -> i64 {
        self.at(start_ns, Event::Open);
        let mut at_ns = start_ns + 300 * MS;
        for _ in 0..self.plan.messages {
            at_ns += self.plan.itt_ns;
            let bytes = self.random.random_range(1..=self.plan.largest);
            self.at(at_ns, Event::Write(0, bytes));
            if self.random.random_bool(self.plan.answers) {
                self.at(at_ns + self.plan.itt_ns / 2, Event::Write(1, bytes));
            }
        }
        self.at(at_ns + self.plan.itt_ns, Event::Close);
        let mut now_ns = start_ns;
        let most_ns = at_ns + 40_000 * MS;
        while let Some((Reverse((ns, _)), index)) = self.events.pop() {
            if ns > most_ns {
                break;
            }
            now_ns = ns;
            if let Some(event) = self.made[index].take() {
                self.happens(ns, event);
            }
        }
        now_ns
    }

    fn happens(&mut self, now_ns: i64, event: Event) {
        let (who, out) = match event {
            Event::Open => (0, self.hosts[0].open(now_ns)),
            Event::Write(who, bytes) => (who, self.hosts[who].write(now_ns, bytes)),
            Event::Close => {
                let out = self.hosts[1].close(now_ns);
                self.transmit(now_ns, 1, out);
                (0, self.hosts[0].close(now_ns))
            }
            Event::Arrive { way, segment, sent } => {
                self.arrived[sent as usize] = true;
                let record = self.record(now_ns, way, &segment, sent);
                self.seen[1 - way].push(record);
                (1 - way, self.hosts[1 - way].receive(now_ns, &segment))
            }
            Event::Timer(who) if self.hosts[who].timer_ns == Some(now_ns) => {
                (who, self.hosts[who].handle_timeout(now_ns))
            }
            Event::AckTimer(who) if self.hosts[who].ack_timer_ns == Some(now_ns) => {
                (who, self.hosts[who].acknowledge(now_ns))
            }
            Event::Timer(who) | Event::AckTimer(who) => (who, Vec::new()),
        };
        self.transmit(now_ns, who, out);
        for who in 0..2 {
            let host = &self.hosts[who];
            let timers = [host.timer_ns.filter(|_| !host.is_done()), host.ack_timer_ns];
            for (kind, timer) in timers.into_iter().enumerate() {
                if timer != self.timers[who][kind] {
                    self.timers[who][kind] = timer;
                    let event = [Event::Timer(who), Event::AckTimer(who)];
                    let event = event.into_iter().nth(kind);
                    if let (Some(ns), Some(event)) = (timer, event) {
                        self.at(ns, event);
                    }
                }
            }
        }
    }

    fn transmit(&mut self, now_ns: i64, way: usize, out: Vec<Segment>) {
        for segment in out {
            let sent = self.arrived.len() as u64;
            self.arrived.push(false);
            let record = self.record(now_ns, way, &segment, sent);
            self.seen[way].push(record);
            let loss = self.plan.loss[way];
            let lost = if self.in_loss[way] {
                self.random.random_bool(1.0 - 1.0 / self.plan.run)
            } else {
                self.random.random_bool(loss / self.plan.run)
            };
            self.in_loss[way] = lost;
            if lost {
                continue;
            }
            let copies = 1 + usize::from(self.random.random_bool(self.plan.duplication));
            for copy in 0..copies {
                let jitter_ns = match self.plan.jitter_ns {
                    0 => 0,
                    limit => self.random.random_range(0..limit),
                };
                let mut at_ns = now_ns + self.plan.one_way_ns[way] + jitter_ns;
                if self.plan.keeps_order {
                    at_ns = at_ns.max(self.last_arrival_ns[way]);
                }
                self.last_arrival_ns[way] = at_ns;
                let segment = segment.clone();
                let event = Event::Arrive { way, segment, sent };
                self.at(at_ns + 1000 * copy as i64, event);
            }
        }
    }

    fn record(&self, true_ns: i64, way: usize, segment: &Segment, sent: u64) -> Record {
        let ends = ["192.0.2.1:40000", "198.51.100.1:80"];
        let ends: [Endpoint; 2] =
            ends.map(|end| end.parse::<std::net::SocketAddr>().unwrap().into());
        let payload_len = (segment.end - segment.start) as u32;
        let packet = Packet {
            number: 0,
            at_ns: true_ns,
            interface: 0,
            from: ends[way],
            to: ends[1 - way],
            frame_len: 66 + payload_len,
            header_len: 52,
            payload_len,
            seq: self.initial[way].wrapping_add(segment.start as u32),
            ack: segment
                .ack
                .map(|ack| self.initial[1 - way].wrapping_add(ack as u32)),
            flags: segment.flags,
            window: segment.window,
            ip_id: self.plan.ids.then_some(segment.id),
            timestamps: segment
                .timestamps
                .map(|(value, echo)| Timestamps { value, echo }),
            sack: segment.blocks(self.initial[1 - way]),
            mss: segment.flags.syn.then_some(MSS as u16),
            window_scale: None,
        };
        Record {
            packet,
            true_ns,
            connection: self.connection,
            way,
            sent: vec![sent],
        }
    }
}

impl CaptureParameters {
    fn clock_ns(&self, side: usize, true_ns: i64) -> i64 {
        let base_ns = 1_700_000_000_000_000_000;
        if side == 0 {
            return base_ns + true_ns;
        }
        base_ns + true_ns + self.ahead_ns + (true_ns as f64 * self.drift_ppm / 1e6) as i64
    }

    fn show(&self, side: usize, seen: &[Record], random: &mut Pcg64Mcg) -> Vec<Record> {
        let mut shown: Vec<Record> = Vec::new();
        for record in seen {
            let inside = (self.start_ns[side]..self.end_ns[side]).contains(&record.true_ns);
            if !inside || random.random_bool(self.missing[side]) {
                continue;
            }
            let joins = self.joined[usize::from(record.way != side)];
            if joins && shown.last_mut().is_some_and(|last| last.joins(record)) {
                continue;
            }
            let mut record = record.clone();
            record.packet.at_ns = self.clock_ns(side, record.true_ns);
            shown.push(record);
        }
        for (number, record) in (1..).zip(&mut shown) {
            record.packet.number = number;
        }
        shown
    }
}

impl Record {
    /// Joins a segment that continues where this one ends.
    fn joins(&mut self, next: &Self) -> bool {
        let (own, other) = (&mut self.packet, &next.packet);
        let continues = self.connection == next.connection
            && self.way == next.way
            && next.true_ns - self.true_ns < MS
            && own.payload_len > 0
            && other.payload_len > 0
            && !own.flags.fin
            && !own.flags.syn
            && own.ack == other.ack
            && own.sack == other.sack
            && own.timestamps == other.timestamps
            && own.seq.wrapping_add(own.payload_len) == other.seq;
        if continues {
            own.payload_len += other.payload_len;
            own.frame_len += other.payload_len;
            own.flags.fin |= other.flags.fin;
            self.sent.extend(&next.sent);
        }
        continues
    }
}
