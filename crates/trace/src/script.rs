//! Handwritten conversations for tests.

use crate::Direction::{Backward, Forward};
use crate::event::{DeliveryStats, Disposition};
use crate::packet::{Endpoint, Flags, Packet, SackBlocks};
use crate::pair::{self, PairOptions, PairSummary};
use crate::{
    Connection, ConnectionOutcome, Direction, DirectionCounts, Handshake, Observer, Range,
    ReceivedAck, SentPacket, Side, Start,
};

/// The packets of a conversation between client and server, in the order written.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) packets: Vec<Packet>,
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    /// Initial sequence numbers, of the client and of the server.
    pub(crate) initial: [u32; 2],
    now_ns: i64,
    ids: [u16; 2],
    acks: [i64; 2],
}

pub(crate) const MS: i64 = 1_000_000;

pub(crate) fn endpoint(text: &str) -> Endpoint {
    text.parse::<std::net::SocketAddr>().unwrap().into()
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            packets: Vec::new(),
            client: endpoint("192.0.2.1:40000"),
            server: endpoint("198.51.100.1:80"),
            initial: [1000, 77_000],
            now_ns: 0,
            ids: [100, 30_000],
            acks: [1, 1],
        }
    }

    /// Sets the current time, in milliseconds since the start.
    pub(crate) fn at(&mut self, ms: i64) -> &mut Self {
        self.now_ns = ms * MS;
        self
    }

    /// Adds a packet with payload at a position, and returns it for changes.
    pub(crate) fn packet(&mut self, direction: Direction, position: i64, len: u32) -> &mut Packet {
        let way = direction as usize;
        let (from, to) = match direction {
            Forward => (self.client, self.server),
            Backward => (self.server, self.client),
        };
        self.ids[way] = self.ids[way].wrapping_add(1);
        self.packets.push(Packet {
            number: self.packets.len() as u64 + 1,
            at_ns: self.now_ns,
            interface: 0,
            from,
            to,
            frame_len: 14 + 52 + len,
            header_len: 52,
            payload_len: len,
            seq: self.initial[way].wrapping_add(position as u32),
            ack: Some(self.initial[1 - way].wrapping_add(self.acks[way] as u32)),
            flags: Flags::default(),
            window: 500,
            ip_id: Some(self.ids[way]),
            timestamps: None,
            sack: SackBlocks::default(),
            mss: None,
            window_scale: None,
        });
        self.last()
    }

    pub(crate) fn last(&mut self) -> &mut Packet {
        self.packets.last_mut().unwrap()
    }

    pub(crate) fn syn(&mut self) -> &mut Packet {
        let packet = self.packet(Forward, 0, 0);
        packet.flags.syn = true;
        packet.ack = None;
        packet.mss = Some(1460);
        packet
    }

    pub(crate) fn syn_ack(&mut self) -> &mut Packet {
        let packet = self.packet(Backward, 0, 0);
        packet.flags.syn = true;
        packet.mss = Some(1460);
        packet
    }

    /// Adds a handshake at 0 ms.
    pub(crate) fn handshake(&mut self) -> &mut Self {
        self.syn();
        self.syn_ack();
        self.packet(Forward, 1, 0);
        self
    }

    /// Adds payload from the client.
    pub(crate) fn data(&mut self, start: i64, end: i64) -> &mut Self {
        self.packet(Forward, start, (end - start) as u32);
        self
    }

    /// Adds an ACK from the server.
    pub(crate) fn ack(&mut self, position: i64) -> &mut Self {
        self.acks[1] = position;
        self.packet(Backward, 1, 0);
        self
    }

    /// Adds messages of 100 bytes from a position on, each acknowledged after `ack_ms`, and sorts
    /// the packets.
    pub(crate) fn messages(&mut self, count: i64, ms: (i64, i64), ack_ms: i64, position: i64) {
        for message in 0..count {
            let (at, start) = (ms.0 + message * ms.1, position + message * 100);
            self.at(at).data(start, start + 100);
            self.at(at + ack_ms).ack(start + 100);
        }
        self.packets.sort_by_key(|packet| packet.at_ns);
    }

    /// Adds an ACK from the server with SACK blocks, as positions.
    pub(crate) fn sack(&mut self, position: i64, blocks: &[(i64, i64)]) -> &mut Self {
        let initial = self.initial[0];
        self.ack(position);
        for &(left, right) in blocks {
            let edge = |position| initial.wrapping_add(position as u32);
            self.last().sack.push(edge(left), edge(right));
        }
        self
    }

    /// Adds acknowledged FINs of both ends, the client's at a position.
    pub(crate) fn close(&mut self, position: i64) -> &mut Self {
        self.packet(Forward, position, 0).flags.fin = true;
        self.acks[1] = position + 1;
        self.packet(Backward, 1, 0).flags.fin = true;
        self.acks[0] = 2;
        self.packet(Forward, position + 1, 0);
        self
    }

    pub(crate) fn analyse(&self) -> Record {
        let mut analysis = crate::Analysis::new(Record::default());
        for packet in &self.packets {
            analysis.packet(packet);
        }
        analysis.finish()
    }
}

/// A connection whose SYN is answered after 150 ms.
pub(crate) fn established() -> Script {
    let mut script = Script::new();
    script.syn();
    script.at(150).syn_ack();
    script.packet(Forward, 1, 0);
    script
}

/// Messages of 100 bytes, each sent again at once. The receiver reports the copies of some as
/// duplicates.
pub(crate) fn copied_messages(count: i64, reports: impl Fn(i64) -> bool) -> Script {
    let mut script = established();
    for message in 0..count {
        let (at, start) = (200 + message * 200, message * 100 + 1);
        script.at(at).data(start, start + 100);
        let copy = *script.last();
        script.packets.push(Packet {
            number: copy.number + 1,
            at_ns: copy.at_ns + 20_000,
            ..copy
        });
        script.at(at + 151).ack(start + 100);
        if reports(message) {
            script.sack(start + 100, &[(start, start + 100)]);
        }
    }
    script
}

/// 100 bytes, acknowledged after 150 ms, then FIN.
pub(crate) fn one_message() -> Script {
    let mut script = established();
    script.at(200).data(1, 101).at(350).ack(101);
    script.at(400).close(101);
    script
}

/// Three messages; the second and third bundle the previous one. Packet 4, the first, is to be
/// lost.
pub(crate) fn repaired_by_a_bundle() -> Script {
    let mut script = established();
    script.at(200).data(1, 101).at(230).data(1, 201);
    script.at(260).data(101, 301).at(380).ack(201);
    script.at(410).ack(301).at(500).close(301);
    script
}

/// The traces at both ends of a conversation, whose times are those at the client. The server's
/// clock is ahead by `offset_ns`. Packets with numbers in `lost` do not arrive.
pub(crate) fn carry(
    script: &Script,
    one_way_ns: i64,
    offset_ns: i64,
    lost: &[u64],
) -> (Vec<Packet>, Vec<Packet>) {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    for packet in &script.packets {
        let arrives = !lost.contains(&packet.number);
        let from_client = packet.from == script.client;
        if from_client || arrives {
            here.push(*packet);
        }
        if !from_client || arrives {
            let way_ns = if from_client { one_way_ns } else { -one_way_ns };
            there.push(Packet {
                at_ns: packet.at_ns + way_ns + offset_ns,
                ..*packet
            });
        }
    }
    there.sort_by_key(|packet| packet.at_ns);
    (here, there)
}

pub(crate) fn analyse_both(here: &[Packet], there: &[Packet]) -> (Record, PairSummary) {
    let (here, there) = (here.iter().copied(), there.iter().copied());
    pair::analyse(here, there, &PairOptions::default(), Record::default())
}

/// All events of an analysis.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) sent: Vec<SentPacket>,
    pub(crate) acked: Vec<ReceivedAck>,
    pub(crate) ranges: Vec<(Direction, Range)>,
    pub(crate) dispositions: Vec<Disposition>,
    pub(crate) connections: Vec<ConnectionRecord>,
}

/// A connection at its end.
#[derive(Debug)]
pub(crate) struct ConnectionRecord {
    pub(crate) originator: Endpoint,
    pub(crate) main_sender: Endpoint,
    pub(crate) start: Start,
    pub(crate) outcome: ConnectionOutcome,
    pub(crate) handshake: Handshake,
    pub(crate) forward: DirectionCounts,
    pub(crate) backward: DirectionCounts,
    /// Forward and backward.
    pub(crate) delivery_stats: [DeliveryStats; 2],
    pub(crate) has_data: bool,
    pub(crate) only_at: Option<Side>,
}

impl Record {
    /// The only connection.
    pub(crate) fn only(&self) -> &ConnectionRecord {
        assert_eq!(self.connections.len(), 1, "{:?}", self.connections);
        &self.connections[0]
    }

    /// Client's byte ranges: start, delivery in ms, copy, in-order delivery in ms, missing byte.
    #[expect(
        clippy::type_complexity,
        reason = "tuples are the shortest to compare with"
    )]
    pub(crate) fn deliveries(
        &self,
    ) -> Vec<(i64, Option<(i64, Option<usize>, Option<i64>, Option<i64>)>)> {
        let forward = self.ranges.iter().filter(|(way, _)| *way == Forward);
        forward
            .map(|(_, range)| {
                let delivery = range.delivery.map(|delivery| {
                    let in_order = delivery.in_order_ns().map(|at| at / MS);
                    (
                        delivery.at_ns / MS,
                        delivery.copy(),
                        in_order,
                        delivery.waited_for,
                    )
                });
                (range.start, delivery)
            })
            .collect()
    }

    /// Client's byte ranges: start, end, number of copies, ACK in ms.
    pub(crate) fn summary(&self) -> Vec<(i64, i64, usize, Option<i64>)> {
        let forward = self.ranges.iter().filter(|(way, _)| *way == Forward);
        forward
            .map(|(_, range)| {
                let acked = range.acked_ns.map(|at| at / MS);
                (range.start, range.end, range.copies.len(), acked)
            })
            .collect()
    }
}

impl Observer for Record {
    fn sent(&mut self, _: &Connection, sent: &SentPacket) {
        self.sent.push(*sent);
    }

    fn acked(&mut self, _: &Connection, acked: &ReceivedAck) {
        self.acked.push(*acked);
    }

    fn range(&mut self, _: &Connection, direction: Direction, range: &Range) {
        self.ranges.push((direction, range.clone()));
    }

    fn disposition(&mut self, _: &Connection, disposition: &Disposition) {
        self.dispositions.push(*disposition);
    }

    fn finished(&mut self, connection: &Connection) {
        self.connections.push(ConnectionRecord {
            originator: connection.originator,
            main_sender: match connection.main_direction() {
                Forward => connection.originator,
                Backward => connection.responder,
            },
            start: connection.start,
            outcome: connection.outcome(),
            handshake: connection.handshake,
            forward: connection.half_connection(Forward).counts,
            backward: connection.half_connection(Backward).counts,
            delivery_stats: Direction::BOTH.map(|way| {
                connection
                    .half_connection(way)
                    .delivery_stats()
                    .copied()
                    .unwrap_or_default()
            }),
            has_data: connection.has_data(),
            only_at: connection.only_at(),
        });
    }
}

/// A connection of the host at the sender's trace with another host, opened by either. The host
/// sends 20 messages, each 20 ms, acknowledged 40 ms later.
pub(crate) fn with(port: u16, other: &str, opened_by_other: bool) -> Script {
    let (host, other) = ("192.0.2.1", format!("{other}:{port}"));
    let mut script = Script::new();
    script.initial = [10_000 * u32::from(port), 7_000 * u32::from(port)];
    (script.client, script.server) = match opened_by_other {
        true => (endpoint(&other), endpoint(&format!("{host}:80"))),
        false => (endpoint(&format!("{host}:80")), endpoint(&other)),
    };
    script.at(10).syn();
    script.at(50).syn_ack();
    script.packet(Forward, 1, 0);
    for message in 0..20 {
        let (at, position) = (100 + message * 20, message * 100 + 1);
        if opened_by_other {
            script.at(at).packet(Backward, position, 100);
            script.at(at + 40).packet(Forward, 1, 0).ack =
                Some(script.initial[1].wrapping_add(position as u32 + 100));
        } else {
            script.at(at).data(position, position + 100);
            script.at(at + 40).ack(position + 100);
        }
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    script
}

/// Both traces of these conversations. The receiver's shows packets that `shows` accepts, shifted
/// by 20 ms of delay.
pub(crate) fn traces(scripts: &[Script], shows: impl Fn(&Packet) -> bool) -> [Vec<Packet>; 2] {
    let mut here: Vec<Packet> = (scripts.iter())
        .flat_map(|script| script.packets.clone())
        .collect();
    here.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut here) {
        packet.number = number;
    }
    let mut there: Vec<Packet> = here.iter().filter(|it| shows(it)).copied().collect();
    for packet in &mut there {
        let way_ns = if packet.from.port == 80 { 20 } else { -20 } * MS;
        packet.at_ns += way_ns;
    }
    there.sort_by_key(|packet| packet.at_ns);
    [here, there]
}

/// A host near the receiver's trace.
pub(crate) const SHOWN: &str = "198.51.100.1";
/// A host that the receiver's trace does not show.
pub(crate) const NOT_SHOWN: &str = "203.0.113.1";

/// Whether a packet belongs to a connection with the visible host.
pub(crate) fn is_shown(packet: &Packet) -> bool {
    let shown = endpoint(&format!("{SHOWN}:1")).address;
    [packet.from, packet.to]
        .iter()
        .any(|end| end.address == shown)
}
