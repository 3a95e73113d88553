//! Compares the analysis with the reference.

use std::collections::BTreeMap;

use pillion_trace::pair::{self, PairOptions};
use pillion_trace::{
    Arrival, Class, Connection, Direction, DirectionCounts, Disposition, Observer, Range, ReadTime,
    ReceivedAck, SentPacket,
};

use super::reference::{SentCopy, Stream};
use super::simulation::Simulation;

/// All differences, as text.
pub fn differences(simulation: &Simulation) -> Vec<String> {
    let [here, there] = [0, 1].map(|side| simulation.packets(side).into_iter());
    let (reported, _) = pair::analyse(
        here,
        there,
        &PairOptions::default(),
        ObservedEvents::default(),
    );
    let mut found = Vec::new();
    let mut connections: Vec<usize> = (simulation.traces.iter().flatten())
        .map(|record| record.connection)
        .collect();
    connections.sort_unstable();
    connections.dedup();
    if simulation.plan.port_uses > 1 || connections.len() != reported.connections.len() {
        let missing = simulation.plan.captures.missing != [0.0; 2];
        let opened = !missing
            && connections.iter().all(|&connection| {
                simulation.traces.iter().all(|trace| {
                    let mut of = trace
                        .iter()
                        .filter(|record| record.connection == connection);
                    of.next().is_some_and(|first| first.packet.flags.syn)
                })
            });
        if !opened {
            // Without a SYN, two uses of the same ports cannot be distinguished.
            return found;
        }
        let (all, expected) = (reported.connections.len(), connections.len());
        if all != expected {
            return vec![format!("{all} connections instead of {expected}")];
        }
    }
    for (&connection, observed) in connections.iter().zip(reported.connections.values()) {
        if !(0..2).all(|way| simulation.shows_at_both_ends(connection, way)) {
            // The ends cannot be distinguished.
            continue;
        }
        for way in 0..2 {
            let mut comparison = Comparison {
                simulation,
                observed: &observed.ways[way],
                stream: Stream::new(simulation, connection, way),
                first: 1,
                found: Vec::new(),
            };
            comparison.compare(simulation.initial[connection][way], way);
            found.extend(
                comparison
                    .found
                    .into_iter()
                    .map(|it| format!("connection {connection}, way {way}: {it}")),
            );
        }
    }
    found
}

struct Comparison<'a> {
    simulation: &'a Simulation,
    observed: &'a ObservedDirection,
    stream: Stream,
    /// The position of the byte that the analysis treats as the first.
    first: i64,
    found: Vec<String>,
}

impl Comparison<'_> {
    fn compare(&mut self, initial: u32, way: usize) {
        let Some(first) = self.observed.first else {
            return;
        };
        self.first = i64::from(first.wrapping_sub(initial) as i32);
        self.stream.read_from(self.first.max(1));
        let captures = &self.simulation.plan.captures;
        let whole = captures.missing[way] == 0.0 && captures.start_ns == [0; 2];
        self.bytes();
        if whole {
            self.packets();
            self.acks();
        }
        let starts_complete = captures.start_ns == [0; 2];
        if starts_complete && self.simulation.plan.ids && !captures.joined[0] && !captures.joined[1]
        {
            self.dispositions(way);
        }
    }

    fn differ(&mut self, message: impl FnOnce() -> String) {
        if self.found.len() < 5 {
            self.found.push(message());
        }
    }

    fn bytes(&mut self) {
        let mut reported = 0;
        for range in &self.observed.ranges.clone() {
            for at in range.start..range.end {
                reported += 1;
                self.byte(at + self.first - 1, range);
            }
        }
        let sent = self.stream.bytes.range(self.first.max(1)..);
        let sent = sent.filter(|(_, byte)| {
            let before_ack = |copy: &SentCopy| byte.acked_ns.is_none_or(|acked| copy.at_ns < acked);
            byte.copies.first().is_some_and(before_ack)
        });
        let sent = sent.count();
        if reported < sent {
            self.differ(|| format!("{reported} bytes told of {sent}"));
        }
        let unseen = |range: &&Range| {
            let byte = self.stream.bytes.get(&(range.start + self.first - 1));
            let acked = byte.is_some_and(|byte| byte.acked_at_receiver.is_some());
            range.delivery.is_none() && (acked || range.acked_ns.is_some())
        };
        let unseen: u64 = self
            .observed
            .ranges
            .iter()
            .filter(unseen)
            .map(Range::len)
            .sum();
        if unseen != self.observed.unseen_bytes {
            let reported = self.observed.unseen_bytes;
            self.differ(|| format!("{reported} bytes unseen instead of {unseen}"));
        }
    }

    fn byte(&mut self, at: i64, range: &Range) {
        let Some(byte) = self.stream.bytes.get(&at).cloned() else {
            return self.differ(|| format!("byte {at}: in no packet"));
        };
        // Then it was sent before the trace shows it, whether or not the analysis detects this.
        let is_late = byte.arrived_before_sent() && range.first_sent_ns().is_none();
        if !byte.copies.is_empty() && !is_late && range.acked_ns != byte.acked_ns {
            let reported = range.acked_ns;
            self.differ(|| {
                format!(
                    "byte {at}: acked {reported:?} instead of {:?}",
                    byte.acked_ns
                )
            });
        }
        let first_sent = byte.copies.first().map(|copy| copy.at_ns);
        let before_ack = first_sent.is_none_or(|ns| byte.acked_ns.is_none_or(|acked| ns < acked));
        if before_ack && !is_late && range.first_sent_ns() != first_sent {
            let reported = range.first_sent_ns();
            self.differ(|| format!("byte {at}: sent {reported:?} instead of {first_sent:?}"));
        }
        let arrived = range.delivery.map(|delivery| delivery.at_ns);
        let expected = byte.arrived.map(|arrived| arrived.0);
        if arrived != expected {
            self.differ(|| format!("byte {at}: arrived {arrived:?} instead of {expected:?}"));
        }
        let expected = byte.arrived.map(|_| byte.readable);
        let readable = range.delivery.map(|delivery| delivery.readable);
        let reported = matches!(expected, Some(ReadTime::At(_)));
        let is_also_possible = byte
            .possible_read_ns
            .filter(|_| !reported)
            .is_some_and(|ns| {
                let possible = [ReadTime::Never, ReadTime::Unknown, ReadTime::At(ns)];
                readable.is_some_and(|readable| possible.contains(&readable))
            });
        if readable != expected && !is_also_possible {
            self.differ(|| format!("byte {at}: readable {readable:?} instead of {expected:?}"));
        }
    }

    fn packets(&mut self) {
        for sent in &self.observed.sent {
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
            let reported = match sent.class {
                Class::New => "new",
                Class::Bundled => "bundled",
                Class::Retransmission { .. } => "retransmission",
                Class::Control => "control",
                Class::KeepAlive | Class::WindowProbe => "probe",
            };
            if class != reported {
                let number = sent.packet;
                return self.differ(|| format!("packet {number}: {reported} instead of {class}"));
            }
        }
        let sent = self.observed.sent.len();
        if sent != self.stream.sent.len() {
            let expected = self.stream.sent.len();
            self.differ(|| format!("{sent} packets sent instead of {expected}"));
        }
    }

    fn acks(&mut self) {
        let acked = self.observed.acked.iter();
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
        let acked = self.observed.acked.iter();
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

    fn dispositions(&mut self, way: usize) {
        let captures = &self.simulation.plan.captures;
        let whole = captures.missing[1 - way] == 0.0;
        let uncut = captures.end_ns == [i64::MAX; 2];
        let mut delivered = self.observed.dispositions.iter().filter_map(|disposition| {
            matches!(disposition.arrival, Arrival::Delivered { .. }).then_some(disposition.packet)
        });
        let first = delivered.next().unwrap_or(u64::MAX);
        let last = delivered.next_back().unwrap_or(0);
        let between = |disposition: &Disposition| (first..last).contains(&disposition.packet);
        for disposition in &self.observed.dispositions {
            let Some(sent) = self.stream.sent.get(&disposition.packet) else {
                continue;
            };
            let number = disposition.packet;
            let wrong = match disposition.arrival {
                Arrival::Delivered { packet, .. } => (!sent.arrivals.contains(&packet))
                    .then(|| format!("arrived as {packet} instead of {:?}", sent.arrivals)),
                // The record of its first arrival may be missing while another exists.
                Arrival::Unseen if !whole => None,
                _ if !sent.arrivals.is_empty() => Some(format!(
                    "{:?}, and arrived as {:?}",
                    disposition.arrival, sent.arrivals
                )),
                Arrival::Lost if sent.must_have_arrived => {
                    Some("lost, and was acknowledged".to_owned())
                }
                Arrival::Lost if whole && !sent.really_lost && uncut => {
                    Some("lost, and arrived".to_owned())
                }
                Arrival::Unknown if whole && uncut && sent.really_lost && between(disposition) => {
                    Some("unknown, and lost".to_owned())
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                return self.differ(|| format!("packet {number}: {wrong}"));
            }
        }
        if self.observed.duplicated != self.stream.duplicated
            && captures.missing == [0.0; 2]
            && uncut
        {
            let (reported, expected) = (self.observed.duplicated, self.stream.duplicated);
            self.differ(|| format!("{reported} packets duplicated instead of {expected}"));
        }
    }
}

/// All events by connection number.
#[derive(Debug, Default)]
pub struct ObservedEvents {
    pub connections: BTreeMap<u64, ObservedConnection>,
}

/// Events of one connection.
#[derive(Debug, Default)]
pub struct ObservedConnection {
    /// From the client, from the server; the client has the higher port.
    pub ways: [ObservedDirection; 2],
}

/// Events of one direction.
#[derive(Debug, Default)]
pub struct ObservedDirection {
    /// The sequence number of its first byte.
    pub first: Option<u32>,
    pub sent: Vec<SentPacket>,
    pub acked: Vec<ReceivedAck>,
    pub ranges: Vec<Range>,
    pub dispositions: Vec<Disposition>,
    pub counts: DirectionCounts,
    pub duplicated: u64,
    pub unseen_bytes: u64,
    pub delivered_bytes: u64,
}

impl ObservedEvents {
    fn observed(
        &mut self,
        connection: &Connection,
        direction: Direction,
    ) -> &mut ObservedDirection {
        let sender = match direction {
            Direction::Forward => connection.originator,
            Direction::Backward => connection.responder,
        };
        let way = usize::from(sender.port < 1024);
        let observed = self.connections.entry(connection.number).or_default();
        let observed = &mut observed.ways[way];
        observed.first = connection.half_connection(direction).sequence_number(1);
        observed
    }
}

impl Observer for ObservedEvents {
    fn sent(&mut self, connection: &Connection, sent: &SentPacket) {
        self.observed(connection, sent.direction).sent.push(*sent);
    }

    fn acked(&mut self, connection: &Connection, acked: &ReceivedAck) {
        self.observed(connection, acked.direction)
            .acked
            .push(*acked);
    }

    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        self.observed(connection, direction)
            .ranges
            .push(range.clone());
    }

    fn disposition(&mut self, connection: &Connection, disposition: &Disposition) {
        self.observed(connection, disposition.direction)
            .dispositions
            .push(*disposition);
    }

    fn finished(&mut self, connection: &Connection) {
        for direction in Direction::BOTH {
            let half = connection.half_connection(direction);
            let observed = self.observed(connection, direction);
            observed.counts = half.counts;
            if let Some(delivery_stats) = half.delivery_stats() {
                observed.duplicated = delivery_stats.duplicated_packets;
                observed.unseen_bytes = delivery_stats.unseen_bytes;
                observed.delivered_bytes = delivery_stats.delivered_bytes;
            }
        }
    }
}
