//! The analysis held against the reference.

use std::collections::BTreeMap;

use pillion_trace::pair::{self, Options};
use pillion_trace::{
    Acked, Arrival, Class, Connection, Counts, Direction, Fate, Observer, Range, Readable, Sent,
};

use super::reference::{Copy, Stream};
use super::world::World;

/// All that differs, in words.
pub fn differences(world: &World) -> Vec<String> {
    let [here, there] = [0, 1].map(|side| world.packets(side).into_iter());
    let (told, _) = pair::analyse(here, there, &Options::default(), Told::default());
    let mut found = Vec::new();
    let mut connections: Vec<usize> = (world.traces.iter().flatten())
        .map(|record| record.connection)
        .collect();
    connections.sort_unstable();
    connections.dedup();
    if world.plan.uses > 1 || connections.len() != told.connections.len() {
        let missing = world.plan.taps.missing != [0.0; 2];
        let opened = !missing
            && connections.iter().all(|&connection| {
                world.traces.iter().all(|trace| {
                    let mut of = trace
                        .iter()
                        .filter(|record| record.connection == connection);
                    of.next().is_some_and(|first| first.packet.flags.syn)
                })
            });
        if !opened {
            // Without SYN nothing tells two uses of the same ports apart.
            return found;
        }
        let (all, expected) = (told.connections.len(), connections.len());
        if all != expected {
            return vec![format!("{all} connections instead of {expected}")];
        }
    }
    for (&connection, both) in connections.iter().zip(told.connections.values()) {
        if !(0..2).all(|way| world.shows_at_both_ends(connection, way)) {
            // Nothing tells which end is which.
            continue;
        }
        for way in 0..2 {
            let mut held = Held {
                world,
                one: &both.ways[way],
                stream: Stream::of(world, connection, way),
                first: 1,
                found: Vec::new(),
            };
            held.compare(world.initial[connection][way], way);
            found.extend(
                held.found
                    .into_iter()
                    .map(|it| format!("connection {connection}, way {way}: {it}")),
            );
        }
    }
    found
}

struct Held<'a> {
    world: &'a World,
    one: &'a One,
    stream: Stream,
    /// The position of what the analysis takes for the first byte.
    first: i64,
    found: Vec<String>,
}

impl Held<'_> {
    fn compare(&mut self, initial: u32, way: usize) {
        let Some(first) = self.one.first else { return };
        self.first = i64::from(first.wrapping_sub(initial) as i32);
        self.stream.read_from(self.first.max(1));
        let taps = &self.world.plan.taps;
        let whole = taps.missing[way] == 0.0 && taps.begin_ns == [0; 2];
        self.bytes();
        if whole {
            self.packets();
            self.acks();
        }
        let begun = taps.begin_ns == [0; 2];
        if begun && self.world.plan.ids && !taps.joined[0] && !taps.joined[1] {
            self.fates(way);
        }
    }

    fn differ(&mut self, what: impl FnOnce() -> String) {
        if self.found.len() < 5 {
            self.found.push(what());
        }
    }

    fn bytes(&mut self) {
        let mut told = 0;
        for range in &self.one.ranges.clone() {
            for at in range.begin..range.end {
                told += 1;
                self.byte(at + self.first - 1, range);
            }
        }
        let sent = self.stream.bytes.range(self.first.max(1)..);
        let sent = sent.filter(|(_, byte)| {
            let before_ack = |copy: &Copy| byte.acked_ns.is_none_or(|acked| copy.at_ns < acked);
            byte.copies.first().is_some_and(before_ack)
        });
        let sent = sent.count();
        if told < sent {
            self.differ(|| format!("{told} bytes told of {sent}"));
        }
        let unseen = |range: &&Range| {
            let byte = self.stream.bytes.get(&(range.begin + self.first - 1));
            let acked = byte.is_some_and(|byte| byte.acked_there.is_some());
            range.delivery.is_none() && (acked || range.acked_ns.is_some())
        };
        let unseen: u64 = self.one.ranges.iter().filter(unseen).map(Range::len).sum();
        if unseen != self.one.unseen_bytes {
            let said = self.one.unseen_bytes;
            self.differ(|| format!("{said} bytes unseen instead of {unseen}"));
        }
    }

    fn byte(&mut self, at: i64, range: &Range) {
        let Some(byte) = self.stream.bytes.get(&at).cloned() else {
            return self.differ(|| format!("byte {at}: in no packet"));
        };
        // Then it was sent before the trace shows it, whether or not the analysis knows.
        let is_late = byte.arrived_before_sent() && range.first_sent_ns().is_none();
        if !byte.copies.is_empty() && !is_late && range.acked_ns != byte.acked_ns {
            let told = range.acked_ns;
            self.differ(|| format!("byte {at}: acked {told:?} instead of {:?}", byte.acked_ns));
        }
        let first_sent = byte.copies.first().map(|copy| copy.at_ns);
        let before_ack = first_sent.is_none_or(|ns| byte.acked_ns.is_none_or(|acked| ns < acked));
        if before_ack && !is_late && range.first_sent_ns() != first_sent {
            let told = range.first_sent_ns();
            self.differ(|| format!("byte {at}: sent {told:?} instead of {first_sent:?}"));
        }
        let arrived = range.delivery.map(|delivery| delivery.at_ns);
        let expected = byte.arrived.map(|arrived| arrived.0);
        if arrived != expected {
            self.differ(|| format!("byte {at}: arrived {arrived:?} instead of {expected:?}"));
        }
        let expected = byte.arrived.map(|_| byte.readable);
        let readable = range.delivery.map(|delivery| delivery.readable);
        let told = matches!(expected, Some(Readable::At(_)));
        let as_well = byte.perhaps_ns.filter(|_| !told).is_some_and(|ns| {
            let possible = [Readable::Never, Readable::Unknown, Readable::At(ns)];
            readable.is_some_and(|readable| possible.contains(&readable))
        });
        if readable != expected && !as_well {
            self.differ(|| format!("byte {at}: readable {readable:?} instead of {expected:?}"));
        }
    }

    fn packets(&mut self) {
        for sent in &self.one.sent {
            let Some(expected) = self.stream.sent.get(&sent.packet) else {
                let number = sent.packet;
                return self.differ(|| format!("packet {number}: not sent"));
            };
            let class = if expected.new_bytes + expected.old_bytes == 0 {
                "control"
            } else if expected.old_bytes == 0 {
                "new"
            } else if expected.advances {
                "bundled"
            } else {
                "retransmission"
            };
            let told = match sent.class {
                Class::New => "new",
                Class::Bundled => "bundled",
                Class::Retransmission { .. } => "retransmission",
                Class::Control => "control",
                Class::KeepAlive | Class::WindowProbe => "probe",
            };
            if class != told {
                let number = sent.packet;
                return self.differ(|| format!("packet {number}: {told} instead of {class}"));
            }
        }
        let sent = self.one.sent.len();
        if sent != self.stream.sent.len() {
            let expected = self.stream.sent.len();
            self.differ(|| format!("{sent} packets sent instead of {expected}"));
        }
    }

    fn acks(&mut self) {
        let acked = self.one.acked.iter();
        let rtts = acked
            .filter_map(|acked| Some((acked.packet, acked.rtt_ns?)))
            .collect();
        if self.stream.rtts != rtts {
            let expected = &self.stream.rtts;
            let false_ones = rtts
                .iter()
                .find(|(ack, rtt)| expected.get(ack) != Some(rtt));
            let missed = expected
                .iter()
                .find(|(ack, rtt)| rtts.get(ack) != Some(rtt));
            let text = format!("RTT samples: false {false_ones:?}, missed {missed:?}");
            self.differ(|| text);
        }
        let acked = self.one.acked.iter();
        let duplicates = acked.filter(|acked| acked.duplicate);
        let duplicates = duplicates.map(|acked| acked.packet).collect();
        if self.stream.duplicate_acks != duplicates {
            let expected = &self.stream.duplicate_acks;
            let text = format!(
                "{} duplicate ACKs instead of {}; {:?} differ",
                duplicates.len(),
                expected.len(),
                duplicates
                    .symmetric_difference(expected)
                    .take(3)
                    .collect::<Vec<_>>()
            );
            self.differ(|| text);
        }
    }

    fn fates(&mut self, way: usize) {
        let taps = &self.world.plan.taps;
        let whole = taps.missing[1 - way] == 0.0;
        let uncut = taps.end_ns == [i64::MAX; 2];
        let mut delivered = self.one.fates.iter().filter_map(|fate| {
            matches!(fate.arrival, Arrival::Delivered { .. }).then_some(fate.packet)
        });
        let first = delivered.next().unwrap_or(u64::MAX);
        let last = delivered.next_back().unwrap_or(0);
        let between = |fate: &Fate| (first..last).contains(&fate.packet);
        for fate in &self.one.fates {
            let Some(sent) = self.stream.sent.get(&fate.packet) else {
                continue;
            };
            let number = fate.packet;
            let wrong = match fate.arrival {
                Arrival::Delivered { packet, .. } => (!sent.arrivals.contains(&packet))
                    .then(|| format!("arrived as {packet} instead of {:?}", sent.arrivals)),
                // The record of its first arrival may be missing, and another one be there.
                Arrival::Unseen if !whole => None,
                _ if !sent.arrivals.is_empty() => Some(format!(
                    "{:?}, and arrived as {:?}",
                    fate.arrival, sent.arrivals
                )),
                Arrival::Lost if sent.must_have_arrived => {
                    Some("lost, and was acknowledged".to_owned())
                }
                Arrival::Lost if whole && !sent.really_lost && uncut => {
                    Some("lost, and arrived".to_owned())
                }
                Arrival::Unknown if whole && uncut && sent.really_lost && between(fate) => {
                    Some("unknown, and lost".to_owned())
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                return self.differ(|| format!("packet {number}: {wrong}"));
            }
        }
        if self.one.duplicated != self.stream.duplicated && taps.missing == [0.0; 2] && uncut {
            let (told, expected) = (self.one.duplicated, self.stream.duplicated);
            self.differ(|| format!("{told} packets duplicated instead of {expected}"));
        }
    }
}

/// All of it, by the number of the connection.
#[derive(Debug, Default)]
pub struct Told {
    pub connections: BTreeMap<u64, Both>,
}

/// One connection.
#[derive(Debug, Default)]
pub struct Both {
    /// From the client, from the server; the client's port is the higher one.
    pub ways: [One; 2],
}

/// One direction.
#[derive(Debug, Default)]
pub struct One {
    /// The sequence number of its first byte.
    pub first: Option<u32>,
    pub sent: Vec<Sent>,
    pub acked: Vec<Acked>,
    pub ranges: Vec<Range>,
    pub fates: Vec<Fate>,
    pub counts: Counts,
    pub duplicated: u64,
    pub unseen_bytes: u64,
    pub delivered_bytes: u64,
}

impl Told {
    fn one(&mut self, connection: &Connection, direction: Direction) -> &mut One {
        let sender = match direction {
            Direction::Forward => connection.originator,
            Direction::Backward => connection.responder,
        };
        let way = usize::from(sender.port < 1024);
        let both = self.connections.entry(connection.number).or_default();
        let one = &mut both.ways[way];
        one.first = connection.half_connection(direction).sequence_number(1);
        one
    }
}

impl Observer for Told {
    fn sent(&mut self, connection: &Connection, sent: &Sent) {
        self.one(connection, sent.direction).sent.push(*sent);
    }

    fn acked(&mut self, connection: &Connection, acked: &Acked) {
        self.one(connection, acked.direction).acked.push(*acked);
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        self.one(connection, direction).ranges.push(range.clone());
    }

    fn fate(&mut self, connection: &Connection, fate: &Fate) {
        self.one(connection, fate.direction).fates.push(*fate);
    }

    fn finished(&mut self, connection: &Connection) {
        for direction in Direction::BOTH {
            let half = connection.half_connection(direction);
            let one = self.one(connection, direction);
            one.counts = half.counts;
            if let Some(passage) = half.passage() {
                one.duplicated = passage.duplicated_packets;
                one.unseen_bytes = passage.unseen_bytes;
                one.delivered_bytes = passage.delivered_bytes;
            }
        }
    }
}
