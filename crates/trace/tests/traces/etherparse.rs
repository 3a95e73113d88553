//! Cross-check: etherparse reads the same from any valid packet.

use std::net::{IpAddr, SocketAddr};

use etherparse::{NetSlice, SlicedPacket, TcpOptionElement, TcpSlice, TransportSlice};
use pillion_trace::{Flags, Packet, SackBlocks, Timestamps};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::common::{ETHERNET, one, packets};
use crate::common::{IPV4, IPV6, TCP, ethernet, ipv4_with, ipv6_with, tcp_with};

#[test]
fn random_packets_read_as_by_etherparse() {
    let mut random = Pcg64::seed_from_u64(1);
    for _ in 0..3_000 {
        let frame = random_frame(&mut random);
        let [packet] = packets(&one(ETHERNET, &frame))[..] else {
            panic!("one packet is TCP: {frame:02x?}");
        };
        assert_eq!(packet, by_etherparse(&frame), "{frame:02x?}");
    }
}

fn random_frame(random: &mut Pcg64) -> Vec<u8> {
    let payload = vec![0; random.random_range(0..300)];
    let options = random_options(random);
    let mut segment = tcp_with(random.random(), &options, &payload);
    random.fill(&mut segment[..12]);
    random.fill(&mut segment[14..20]);
    let (ethertype, packet) = if random.random() {
        let ip_options = vec![1; random.random_range(0..=10) * 4];
        let mut packet = ipv4_with(TCP, 0x4000, &ip_options, &segment);
        random.fill(&mut packet[4..6]);
        random.fill(&mut packet[12..20]);
        (IPV4, packet)
    } else {
        let mut packet = random_ipv6(&segment, random);
        random.fill(&mut packet[8..40]);
        (IPV6, packet)
    };
    let tag = |outer, inner: u16| (outer, [[0, 7], inner.to_be_bytes()].concat());
    let (ethertype, tags) = match random.random_range(0..4) {
        0 => tag(0x8100, ethertype),
        1 => {
            let (middle, inner) = tag(0x8100, ethertype);
            let (outer, tags) = tag(0x88a8, middle);
            (outer, [tags, inner].concat())
        }
        _ => (ethertype, Vec::new()),
    };
    let padding = vec![0; random.random_range(0..8)];
    ethernet(ethertype, &[tags, packet, padding].concat())
}

/// Any of hop-by-hop, destination options and routing header, in this order.
fn random_ipv6(segment: &[u8], random: &mut Pcg64) -> Vec<u8> {
    let mut next = TCP;
    let mut payload = segment.to_vec();
    for kind in [43, 60, 0] {
        if random.random_range(0..3) == 0 {
            let units = random.random_range(0..4);
            let mut header = vec![0; (usize::from(units) + 1) * 8];
            header[..2].copy_from_slice(&[next, units]);
            payload = [header, payload].concat();
            next = kind;
        }
    }
    ipv6_with(next, &payload)
}

fn random_options(random: &mut Pcg64) -> Vec<u8> {
    let mut options = Vec::new();
    for _ in 0..random.random_range(0..6) {
        let [kind, len] = match random.random_range(0..6) {
            0 => [2, 4],
            1 => [3, 3],
            2 => [4, 2],
            3 => [8, 10],
            4 => [5, 2 + 8 * random.random_range(1..=4)],
            _ => [1, 1],
        };
        let mut option = vec![0; usize::from(len)];
        random.fill(&mut option[..]);
        option[0] = kind;
        if let Some(field) = option.get_mut(1) {
            *field = len;
        }
        if options.len() + option.len() <= 40 {
            options.extend(option);
        }
    }
    options.resize(options.len().next_multiple_of(4), 1);
    options
}

fn by_etherparse(frame: &[u8]) -> Packet {
    let sliced = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else {
        panic!("not TCP by etherparse: {frame:02x?}");
    };
    let (from, to, ip_id): (IpAddr, IpAddr, _) = match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let ends = (header.source_addr(), header.destination_addr());
            (ends.0.into(), ends.1.into(), Some(header.identification()))
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let ends = (header.source_addr(), header.destination_addr());
            (ends.0.into(), ends.1.into(), None)
        }
        other => panic!("neither IPv4 nor IPv6 by etherparse: {other:?}"),
    };
    let ip_start = ip_start(frame);
    let payload_start = tcp.payload().as_ptr() as usize - frame.as_ptr() as usize;
    let mut packet = Packet {
        number: 1,
        at_ns: 1000,
        interface: 0,
        from: SocketAddr::new(from, tcp.source_port()).into(),
        to: SocketAddr::new(to, tcp.destination_port()).into(),
        frame_len: frame.len() as u32,
        header_len: (payload_start - ip_start) as u16,
        payload_len: tcp.payload().len() as u32,
        seq: tcp.sequence_number(),
        ack: tcp.ack().then(|| tcp.acknowledgment_number()),
        flags: Flags {
            syn: tcp.syn(),
            fin: tcp.fin(),
            rst: tcp.rst(),
            psh: tcp.psh(),
        },
        window: tcp.window_size(),
        ip_id,
        timestamps: None,
        sack: SackBlocks::default(),
        mss: None,
        window_scale: None,
    };
    add_options(&mut packet, tcp);
    packet
}

/// The offset after the link addresses and any number of tags.
fn ip_start(frame: &[u8]) -> usize {
    let ethertype = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let mut at = 12;
    while [0x8100, 0x88a8].contains(&ethertype(at)) {
        at += 4;
    }
    at + 2
}

fn add_options(packet: &mut Packet, tcp: &TcpSlice) {
    for option in tcp.options_iterator() {
        match option.unwrap() {
            TcpOptionElement::MaximumSegmentSize(mss) if tcp.syn() => packet.mss = Some(mss),
            TcpOptionElement::WindowScale(scale) if tcp.syn() => {
                packet.window_scale = Some(scale.min(14));
            }
            TcpOptionElement::Timestamp(value, echo) => {
                packet.timestamps = Some(Timestamps { value, echo });
            }
            TcpOptionElement::SelectiveAcknowledgement(first, more) => {
                packet.sack = SackBlocks::default();
                packet.sack.push(first.0, first.1);
                for (left, right) in more.into_iter().flatten() {
                    packet.sack.push(left, right);
                }
            }
            _ => {}
        }
    }
}
