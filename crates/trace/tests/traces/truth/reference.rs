//! The analysis from the definitions: all packets in memory, byte by byte, without any haste.
//!
//! Positions are those of the host: SYN at 0, payload from 1 on.

use std::collections::{BTreeMap, BTreeSet};

use pillion_trace::Readable;

use super::world::{Record, World};

/// One direction of a connection.
#[derive(Debug, Default)]
pub struct Stream {
    /// By position.
    pub bytes: BTreeMap<i64, Byte>,
    /// By number in the trace at the sender.
    pub sent: BTreeMap<u64, Sent>,
    /// By number of the ACK in the trace at the sender, in nanoseconds (P. Karn, C. Partridge,
    /// 1987).
    pub rtts: BTreeMap<u64, i64>,
    /// Numbers of duplicate ACKs in the trace at the sender (RFC 5681, section 2; RFC 6675,
    /// section 2, where they have SACK blocks).
    pub duplicate_acks: BTreeSet<u64>,
    /// Packets that arrived once more than they were sent.
    pub duplicated: u64,
    /// Bytes of packets with payload that the trace at the receiver shows.
    pub arrived_wire_bytes: u64,
}

/// What became of one byte.
#[derive(Debug, Clone)]
pub struct Byte {
    /// In the trace at the sender.
    pub copies: Vec<Copy>,
    pub acked_ns: Option<i64>,
    /// By the clock of the trace at the receiver, and when in the order of that trace.
    pub arrived: Option<(i64, usize)>,
    /// When it arrived, by true time.
    pub arrived_true_ns: Option<i64>,
    pub readable: Readable,
    /// When it could be read, if the trace at the sender tells of the bytes before it that they
    /// had arrived: an ACK came, and none left the receiver.
    pub perhaps_ns: Option<i64>,
    /// Where in the order of the trace at the receiver an ACK left that covers it.
    pub acked_there: Option<usize>,
}

impl Default for Byte {
    fn default() -> Self {
        Self {
            copies: Vec::new(),
            acked_ns: None,
            arrived: None,
            arrived_true_ns: None,
            readable: Readable::Never,
            acked_there: None,
            perhaps_ns: None,
        }
    }
}

/// A packet that carried a byte.
#[derive(Debug, Clone)]
pub struct Copy {
    /// By the clock of the trace.
    pub at_ns: i64,
    pub true_ns: i64,
    pub packet: u64,
}

impl Byte {
    /// Whether the trace at the sender misses the packet that brought it, and shows others.
    pub fn arrived_before_sent(&self) -> bool {
        let first = self.copies.first().map(|copy| copy.true_ns);
        self.arrived_true_ns
            .zip(first)
            .is_some_and(|(arrived, sent)| arrived < sent)
    }
}

/// A packet as its sender's trace shows it.
#[derive(Debug)]
pub struct Sent {
    pub new_bytes: i64,
    pub old_bytes: i64,
    /// Above all that was sent before it.
    pub advances: bool,
    /// Records of it in the trace at the receiver.
    pub arrivals: Vec<u64>,
    /// The packet's bytes were acknowledged, and nothing else had brought or carried them.
    pub must_have_arrived: bool,
    /// Whether the path lost it.
    pub really_lost: bool,
}

impl Stream {
    pub fn of(world: &World, connection: usize, way: usize) -> Self {
        let initial = world.initial[connection];
        let of_connection = |side: usize| {
            let records = world.traces[side].iter().enumerate();
            records.filter(move |(_, record)| record.connection == connection)
        };
        let seq = |record: &Record| i64::from(record.packet.seq.wrapping_sub(initial[way]) as i32);
        let begin = |record: &Record| seq(record) + i64::from(record.packet.flags.syn);
        let end = |record: &Record| begin(record) + i64::from(record.packet.payload_len);
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

        // The trace at the sender, packet by packet.
        let (mut next, mut acked) = (i64::MIN, None::<i64>);
        let mut window = None;
        let mut sacked: BTreeSet<i64> = BTreeSet::new();
        let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
        let mut retransmitted: BTreeSet<i64> = BTreeSet::new();
        let mut fin_seen = None;
        for (_, record) in &here {
            let packet = &record.packet;
            if record.way == way {
                let (begin, end) = (begin(record), end(record));
                if packet.flags.fin {
                    fin_seen = Some(end);
                }
                let new = (begin..end).filter(|at| {
                    stream
                        .bytes
                        .get(at)
                        .is_none_or(|byte| byte.copies.is_empty())
                });
                let new_bytes = new.count() as i64;
                let advances = end > next;
                if end > begin && (advances || new_bytes == end - begin) {
                    ends.insert(end, packet.at_ns);
                }
                for at in begin..end {
                    let byte = stream.bytes.entry(at).or_default();
                    byte.copies.push(Copy {
                        at_ns: packet.at_ns,
                        true_ns: record.true_ns,
                        packet: packet.number,
                    });
                    if !advances && new_bytes < end - begin {
                        retransmitted.insert(at);
                    }
                }
                if packet.payload_len > 0 {
                    next = next.max(end);
                }
                let sent = Sent {
                    new_bytes,
                    old_bytes: end - begin - new_bytes,
                    advances,
                    arrivals: Vec::new(),
                    must_have_arrived: false,
                    really_lost: record
                        .sent
                        .iter()
                        .all(|&sent| !world.arrived[sent as usize]),
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
        stream.arrive(way, &there, &begin, &end, &ack, &payload);
        stream.identify(world, connection, way);
        stream
    }

    /// The trace at the receiver.
    fn arrive(
        &mut self,
        way: usize,
        there: &[(usize, &Record)],
        begin: &dyn Fn(&Record) -> i64,
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
                for at in begin(record)..end(record) {
                    let byte = self.bytes.entry(at).or_default();
                    if byte.acked_there.is_none() {
                        byte.arrived.get_or_insert((packet.at_ns, *index));
                        byte.arrived_true_ns.get_or_insert(record.true_ns);
                    }
                }
            } else if let Some(position) = ack(record) {
                let position = payload(position);
                for at in there_acked..position {
                    let byte = self.bytes.entry(at).or_default();
                    byte.acked_there.get_or_insert(*index);
                }
                there_acked = position.max(there_acked);
            }
        }
    }

    /// Says when each byte from `first` on could be read: nothing before it counts.
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
            match (byte.arrived, byte.acked_there) {
                (Some(arrived), _) => {
                    if latest.is_none_or(|latest| latest.1 < arrived.1) {
                        latest = Some(arrived);
                    }
                    byte.perhaps_ns = latest.filter(|_| doubtful).map(|latest| latest.0);
                    byte.readable = match latest {
                        _ if gone => Readable::Never,
                        Some((ns, index)) if unseen.is_none_or(|unseen| unseen < index) => {
                            Readable::At(ns)
                        }
                        _ => Readable::Unknown,
                    };
                }
                (None, Some(bound)) => {
                    unseen = unseen.max(Some(bound));
                    doubtful |= byte.acked_ns.is_some();
                    byte.readable = Readable::Unknown;
                }
                (None, None) => {
                    doubtful |= byte.acked_ns.is_some();
                    gone = true;
                }
            }
        }
    }

    /// Which packet of the one trace is which of the other: by what really happened.
    fn identify(&mut self, world: &World, connection: usize, way: usize) {
        let mut seen: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for record in &world.traces[1 - way] {
            if record.connection == connection && record.way == way {
                for sent in &record.sent {
                    seen.entry(*sent).or_default().push(record.packet.number);
                }
            }
        }
        self.duplicated = seen.values().map(|records| records.len() as u64 - 1).sum();
        for record in &world.traces[way] {
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
                && byte.acked_there.is_some()
                && let Some(sent) = self.sent.get_mut(&only.packet)
            {
                sent.must_have_arrived = true;
            }
        }
    }
}
