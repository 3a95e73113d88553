//! Invariants of the trace reader for arbitrary input: `cargo +nightly fuzz run TARGET`.
//!
//! The trace crate's tests include this file, replay the corpus and mutate it. They find failures
//! without nightly Rust and cargo-fuzz.

use std::collections::HashMap;
use std::io::Cursor;
use std::net::SocketAddr;

use pillion_trace::input::{self, Input};
use pillion_trace::pair;
use pillion_trace::{
    Analysis, Connection, DeliveryStats, Direction, DirectionCounts, Endpoint, Flags, Observer,
    Packet, Range, SackBlocks, Timestamps,
};

/// Maximum packets to read from an input; only a compressed input can have more.
const MAX_PACKETS: usize = 1 << 20;
/// Every supported link type, and one unsupported.
const LINK_TYPES: [u16; 12] = [0, 1, 12, 14, 101, 108, 113, 228, 229, 276, 127, 65535];

/// Checks a whole file: the container, its compression and all packets in it.
pub fn container(data: &[u8]) {
    let Ok(mut input) = Input::new("fuzz", Cursor::new(data.to_vec())) else {
        return;
    };
    let mut last = 0;
    let mut count = 0;
    for packet in input.by_ref().take(MAX_PACKETS) {
        count += 1;
        assert!(packet.number > last, "packet numbers increase");
        last = packet.number;
        assert!(
            packet.header_len >= 40,
            "IP and TCP headers have at least 40 bytes"
        );
        assert!(packet.window_scale.is_none_or(|scale| scale <= 14));
    }
    if count == MAX_PACKETS {
        assert!(
            input.format().compression().is_some(),
            "an uncompressed input has fewer packets"
        );
        return;
    }
    assert!(input.next().is_none(), "no packet follows the end");
    assert_eq!(input.counts().tcp, count as u64);
    assert_eq!(sum(input.counts()), input.counts().packets);
    assert!(input.progress().read() <= data.len() as u64);
    if input.format().compression().is_none() {
        for warning in input.warnings() {
            assert!(warning.offset <= data.len() as u64, "{warning}");
        }
        assert!(input.counts().packets <= data.len() as u64 / 12);
    }
}

/// Checks one frame: its link type, the bytes that were not captured, and the captured bytes.
pub fn headers(data: &[u8]) {
    let [link, more, frame @ ..] = data else {
        return;
    };
    let link = LINK_TYPES[usize::from(*link) % LINK_TYPES.len()];
    let captured = frame.len() as u32;
    let fields = [
        0xa1b2_c3d4,
        0x0004_0002,
        0,
        0,
        0,
        u32::from(link),
        0,
        0,
        captured,
        captured + u32::from(*more),
    ];
    let header = fields.map(u32::to_le_bytes).concat();
    container(&[&header, frame].concat());
}

fn sum(counts: &input::InputCounts) -> u64 {
    counts.tcp
        + counts.other_link
        + counts.not_ip
        + counts.not_tcp
        + counts.fragments
        + counts.cut
        + counts.damaged
        + counts.filtered
        + counts.time_out_of_range
}

/// Bytes that make one packet.
const PACKET: usize = 16;
const MS: i64 = 1_000_000;

/// What must hold of any two traces, and of each by itself.
pub fn flows(data: &[u8]) {
    let (mut here, mut there) = (Vec::new(), Vec::new());
    let mut at_ns = 0;
    for (number, bytes) in (1..).zip(data.chunks_exact(PACKET)) {
        let Ok(bytes) = bytes.try_into() else { return };
        let (packet, place, transit_ns) = packet(number, &mut at_ns, bytes);
        let mut arriving = packet;
        arriving.at_ns = packet.at_ns.saturating_add(transit_ns);
        match place {
            0 => here.push(packet),
            1 => there.push(arriving),
            2 => there.extend([arriving; 2]),
            3 => {
                there.push(arriving);
                arriving.at_ns += 20 * MS;
                there.push(arriving);
                here.push(packet);
            }
            _ => {
                here.push(packet);
                there.push(arriving);
            }
        }
    }
    for trace in [&here, &there] {
        let mut analysis = Analysis::new(Sums::default());
        trace.iter().for_each(|packet| analysis.packet(packet));
        assert_eq!(analysis.finish().packets, trace.len() as u64);
    }
    let total = (here.len() + there.len()) as u64;
    let (here, there) = (here.into_iter(), there.into_iter());
    let (sums, _) = pair::analyse(here, there, &pair::PairOptions::default(), Sums::default());
    assert_eq!(
        sums.packets + sums.arrived,
        total,
        "every packet is counted once"
    );
}

/// A packet, in which trace it is, and how long it takes to the other.
///
/// Most numbers are small, so that packets have to do with each other; where the first byte says
/// so, they are far off.
fn packet(number: u64, at_ns: &mut i64, bytes: [u8; PACKET]) -> (Packet, u8, i64) {
    let [kind, place, time, ends, rest @ ..] = bytes;
    let [
        seq,
        len,
        ack,
        window,
        id,
        sack,
        left,
        right,
        value,
        echo,
        more,
        transit,
    ] = rest;
    let far = u32::from(kind >> 6) << 30;
    let sign = if time & 0x80 == 0 { 1 } else { -1 };
    let step_ns = sign * (i64::from(time & 0x1f) << ((time >> 5 & 3) * 5)) * MS / 8;
    *at_ns = at_ns.saturating_add(step_ns);
    let end = |number: u8| Endpoint::from(SocketAddr::from(([192, 0, 2, number], 80)));
    let (client, server) = (end(1 + (ends >> 1 & 3)), end(128));
    let (from, to) = if ends & 1 == 0 {
        (client, server)
    } else {
        (server, client)
    };
    let near = |byte: u8| far.wrapping_add(u32::from(byte)).wrapping_sub(8);
    let mut blocks = SackBlocks::default();
    for block in 0..u32::from(sack & 3) {
        let shift = block * u32::from(more & 7);
        blocks.push(
            near(left).wrapping_add(shift),
            near(right).wrapping_add(shift),
        );
    }
    let payload_len = match len {
        0..0xf0 => u32::from(len & 0x3f),
        _ => u32::from(len) << (more >> 4),
    };
    let packet = Packet {
        number,
        at_ns: *at_ns,
        interface: (id >> 6).into(),
        from,
        to,
        frame_len: payload_len.saturating_add(66),
        header_len: 52,
        payload_len,
        seq: near(seq),
        ack: (kind & 0x20 == 0).then(|| near(ack)),
        flags: Flags {
            syn: kind & 0x13 == 0x10,
            fin: kind & 0x13 == 0x11,
            rst: kind & 0x1f == 0x12,
            psh: kind & 4 != 0,
        },
        window: u16::from(window >> 4),
        ip_id: (id < 0xf0).then_some(u16::from(id)),
        timestamps: (sack & 0x80 == 0).then_some(Timestamps {
            value: value.into(),
            echo: echo.into(),
        }),
        sack: blocks,
        mss: (kind & 8 != 0).then_some(40),
        window_scale: None,
    };
    (packet, place & 7, i64::from(transit) * MS)
}

/// What an observer was shown.
#[derive(Default)]
struct Sums {
    packets: u64,
    arrived: u64,
    ends: HashMap<(u64, Direction), i64>,
}

impl Observer for Sums {
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        assert!(range.start < range.end, "{range:?}");
        let place = (connection.number, direction);
        let end = self.ends.insert(place, range.end);
        assert!(end.is_none_or(|end| end <= range.start), "{range:?}");
    }

    fn finished(&mut self, connection: &Connection) {
        for direction in Direction::BOTH {
            let half = connection.half_connection(direction);
            self.packets += half.counts.packets + half.counts.repeated_packets;
            bytes_add_up(&half.counts);
            if let Some(delivery_stats) = half.delivery_stats() {
                dispositions_add_up(&half.counts, delivery_stats);
                self.arrived += delivery_stats.delivered_packets
                    + delivery_stats.duplicated_packets
                    + delivery_stats.unmatched_packets;
            }
        }
    }
}

fn bytes_add_up(counts: &DirectionCounts) {
    let bytes = counts.new_bytes + counts.bundled_bytes + counts.retransmitted_bytes;
    assert_eq!(bytes, counts.payload_bytes);
    let packets = counts.new_packets + counts.bundled_packets + counts.retransmitted_packets;
    assert_eq!(packets, counts.data_packets);
}

fn dispositions_add_up(counts: &DirectionCounts, delivery_stats: &DeliveryStats) {
    let packets = delivery_stats.delivered_packets
        + delivery_stats.unseen_packets
        + delivery_stats.lost_packets
        + delivery_stats.unknown_packets;
    assert_eq!(packets + counts.stray_packets, counts.packets);
    assert!(delivery_stats.bundle_hits + delivery_stats.bundle_misses <= counts.bundled_packets);
    let runs: u64 = delivery_stats.loss_runs.iter().sum();
    assert!(runs <= delivery_stats.lost_packets);
    assert_eq!(runs == 0, delivery_stats.lost_packets == 0);
}
