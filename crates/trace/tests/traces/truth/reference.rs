//! The analysis from the definitions: all packets in memory, byte by byte, not optimised.
//!
//! Positions are those of the host: SYN at 0, payload from 1 on.

use std::collections::{BTreeMap, BTreeSet};

use pillion_trace::ReadTime;

use super::simulation::{Record, Simulation};

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Stream {
    /// By position.
    pub bytes: BTreeMap<i64, Byte>,
    /// By number in the trace at the sender.
    pub sent: BTreeMap<u64, SentPacket>,
    /// By number of the ACK in the trace at the sender, in nanoseconds (P. Karn, C. Partridge,
    /// 1987).
    pub rtts: BTreeMap<u64, i64>,
    /// Numbers of duplicate ACKs in the trace at the sender: RFC 5681, section 2; with SACK blocks
    /// RFC 6675, section 2.
    pub duplicate_acks: BTreeSet<u64>,
    /// Additional copies of packets that arrived.
    pub duplicated: u64,
    /// Wire bytes of packets with payload in the receiver's trace.
    pub arrived_wire_bytes: u64,
}

/// History of one byte.
#[derive(Debug, Clone)]
pub struct Byte {
    /// Transmissions in the sender's trace.
    pub copies: Vec<SentCopy>,
    pub acked_ns: Option<i64>,
    /// Arrival time by the receiver's clock, and index in that trace.
    pub arrived: Option<(i64, usize)>,
    /// Arrival time by true time.
    pub arrived_true_ns: Option<i64>,
    pub readable: ReadTime,
    /// Read time if the sender's trace shows that earlier bytes had arrived: an ACK reached the
    /// sender, but none left the receiver.
    pub possible_read_ns: Option<i64>,
    /// Index in the receiver's trace of the first ACK that covers it.
    pub acked_at_receiver: Option<usize>,
}

impl Default for Byte {
    fn default() -> Self {
        Self {
            copies: Vec::new(),
            acked_ns: None,
            arrived: None,
            arrived_true_ns: None,
            readable: ReadTime::Never,
            acked_at_receiver: None,
            possible_read_ns: None,
        }
    }
}

/// A packet that carried a byte.
#[derive(Debug, Clone)]
pub struct SentCopy {
    /// Time by the clock of the trace.
    pub at_ns: i64,
    pub true_ns: i64,
    pub packet: u64,
}

impl Byte {
    /// Whether the packet that delivered it is missing in the sender's trace, while others are
    /// there.
    pub fn arrived_before_sent(&self) -> bool {
        let first = self.copies.first().map(|copy| copy.true_ns);
        self.arrived_true_ns
            .zip(first)
            .is_some_and(|(arrived, sent)| arrived < sent)
    }
}

/// A packet in the trace at its sender.
#[derive(Debug)]
pub struct SentPacket {
    pub new_bytes: i64,
    pub old_bytes: i64,
    /// Ends above all earlier packets.
    pub advances: bool,
    /// Its records in the receiver's trace.
    pub arrivals: Vec<u64>,
    /// The packet's bytes were acknowledged, and no other packet carried them.
    pub must_have_arrived: bool,
    /// Whether the path lost it.
    pub really_lost: bool,
}

impl Stream {
    pub fn new(simulation: &Simulation, connection: usize, way: usize) -> Self {
        let initial = simulation.initial[connection];
        let of_connection = |side: usize| {
            let records = simulation.traces[side].iter().enumerate();
            records.filter(move |(_, record)| record.connection == connection)
        };
        let seq = |record: &Record| i64::from(record.packet.seq.wrapping_sub(initial[way]) as i32);
        let start = |record: &Record| seq(record) + i64::from(record.packet.flags.syn);
        let end = |record: &Record| start(record) + i64::from(record.packet.payload_len);
        let ack = |record: &Record| {
            let ack = record.packet.ack?;
            Some(i64::from(ack.wrapping_sub(initial[way]) as i32))
        };
        let mut stream = Self::default();
        let here: Vec<(usize, &Record)> = of_connection(way).collect();
        let there: Vec<(usize, &Record)> = of_connection(1 - way).collect();
        let fin = here.iter().chain(&there).find_map(|(_, record)| {
            (record.way == way && record.packet.flags.fin).then(|| end(record))
        });
        let payload = |position: i64| fin.map_or(position, |fin| position.min(fin));

        // Processes the sender's trace packet by packet.
        let (mut next, mut acked) = (i64::MIN, None::<i64>);
        let mut window = None;
        let mut sacked: BTreeSet<i64> = BTreeSet::new();
        let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
        let mut retransmitted: BTreeSet<i64> = BTreeSet::new();
        let mut fin_seen = None;
        for (_, record) in &here {
            let packet = &record.packet;
            if record.way == way {
                let (start, end) = (start(record), end(record));
                if packet.flags.fin {
                    fin_seen = Some(end);
                }
                let new = (start..end).filter(|at| {
                    stream
                        .bytes
                        .get(at)
                        .is_none_or(|byte| byte.copies.is_empty())
                });
                let new_bytes = new.count() as i64;
                let advances = end > next;
                if end > start && (advances || new_bytes == end - start) {
                    ends.insert(end, packet.at_ns);
                }
                for at in start..end {
                    let byte = stream.bytes.entry(at).or_default();
                    byte.copies.push(SentCopy {
                        at_ns: packet.at_ns,
                        true_ns: record.true_ns,
                        packet: packet.number,
                    });
                    if !advances && new_bytes < end - start {
                        retransmitted.insert(at);
                    }
                }
                if packet.payload_len > 0 {
                    next = next.max(end);
                }
                let sent = SentPacket {
                    new_bytes,
                    old_bytes: end - start - new_bytes,
                    advances,
                    arrivals: Vec::new(),
                    must_have_arrived: false,
                    really_lost: record
                        .sent
                        .iter()
                        .all(|&sent| !simulation.arrived[sent as usize]),
                };
                stream.sent.insert(packet.number, sent);
            } else if let Some(position) = ack(record) {
                let bare = packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin;
                let same_window = window.replace(packet.window) == Some(packet.window);
                let to = fin_seen.map_or(position, |fin| position.min(fin));
                let before = acked.unwrap_or(1);
                let outstanding = next > before;
                let mut first_reported = 0;
                let blocks = packet.sack.as_slice();
                for &(left, right) in blocks {
                    let edge = |edge: u32| i64::from(edge.wrapping_sub(initial[way]) as i32);
                    let known = fin_seen.map_or(edge(right), |fin| edge(right).min(fin + 1));
                    for at in edge(left).max(position)..known {
                        first_reported += u64::from(sacked.insert(at));
                    }
                }
                let news = match blocks {
                    [] => same_window,
                    _ => first_reported > 0,
                };
                if bare && outstanding && acked == Some(position) && news {
                    stream.duplicate_acks.insert(packet.number);
                }
                if to > before || acked.is_none() {
                    let clean = !(before..to).any(|at| retransmitted.contains(&at));
                    if clean
                        && before < to
                        && !sacked.contains(&(to - 1))
                        && let Some(sent_ns) = ends.get(&to)
                    {
                        stream.rtts.insert(packet.number, packet.at_ns - sent_ns);
                    }
                    for at in before..to {
                        stream.bytes.entry(at).or_default().acked_ns = Some(packet.at_ns);
                    }
                    acked = Some(to.max(before));
                }
            }
        }
        stream.arrive(way, &there, &start, &end, &ack, &payload);
        stream.identify(simulation, connection, way);
        stream
    }

    /// Processes the receiver's trace.
    fn arrive(
        &mut self,
        way: usize,
        there: &[(usize, &Record)],
        start: &dyn Fn(&Record) -> i64,
        end: &dyn Fn(&Record) -> i64,
        ack: &dyn Fn(&Record) -> Option<i64>,
        payload: &dyn Fn(i64) -> i64,
    ) {
        let mut there_acked = 1;
        for (index, record) in there {
            let packet = &record.packet;
            if record.way == way {
                if packet.payload_len > 0 {
                    self.arrived_wire_bytes += u64::from(packet.frame_len);
                }
                for at in start(record)..end(record) {
                    let byte = self.bytes.entry(at).or_default();
                    if byte.acked_at_receiver.is_none() {
                        byte.arrived.get_or_insert((packet.at_ns, *index));
                        byte.arrived_true_ns.get_or_insert(record.true_ns);
                    }
                }
            } else if let Some(position) = ack(record) {
                let position = payload(position);
                for at in there_acked..position {
                    let byte = self.bytes.entry(at).or_default();
                    byte.acked_at_receiver.get_or_insert(*index);
                }
                there_acked = position.max(there_acked);
            }
        }
    }

    /// Sets the read time of each byte from `first` on; earlier bytes do not count.
    pub fn read_from(&mut self, first: i64) {
        let mut latest = None::<(i64, usize)>;
        let mut unseen = None::<usize>;
        let (mut gone, mut doubtful) = (false, false);
        let mut expected = first;
        for (at, byte) in self.bytes.range_mut(first..) {
            if *at != expected {
                (gone, doubtful) = (true, true);
            }
            expected = at + 1;
            match (byte.arrived, byte.acked_at_receiver) {
                (Some(arrived), _) => {
                    if latest.is_none_or(|latest| latest.1 < arrived.1) {
                        latest = Some(arrived);
                    }
                    byte.possible_read_ns = latest.filter(|_| doubtful).map(|latest| latest.0);
                    byte.readable = match latest {
                        _ if gone => ReadTime::Never,
                        Some((ns, index)) if unseen.is_none_or(|unseen| unseen < index) => {
                            ReadTime::At(ns)
                        }
                        _ => ReadTime::Unknown,
                    };
                }
                (None, Some(bound)) => {
                    unseen = unseen.max(Some(bound));
                    doubtful |= byte.acked_ns.is_some();
                    byte.readable = ReadTime::Unknown;
                }
                (None, None) => {
                    doubtful |= byte.acked_ns.is_some();
                    gone = true;
                }
            }
        }
    }

    /// Matches the packets of both traces by the truth.
    fn identify(&mut self, simulation: &Simulation, connection: usize, way: usize) {
        let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for record in &simulation.traces[1 - way] {
            if record.connection == connection && record.way == way {
                for sent in &record.sent {
                    seen.entry(*sent).or_default().push(record.packet.number);
                }
            }
        }
        self.duplicated = seen.values().map(|records| records.len() as u64 - 1).sum();
        for record in &simulation.traces[way] {
            if record.connection == connection && record.way == way {
                let sent = self.sent.get_mut(&record.packet.number);
                let arrivals = record.sent.iter().filter_map(|sent| seen.get(sent));
                if let Some(sent) = sent {
                    sent.arrivals = arrivals.flatten().copied().collect();
                }
            }
        }
        for byte in self.bytes.values() {
            if let [only] = &byte.copies[..]
                && byte.arrived.is_none()
                && byte.acked_at_receiver.is_some()
                && let Some(sent) = self.sent.get_mut(&only.packet)
            {
                sent.must_have_arrived = true;
            }
        }
    }
}
