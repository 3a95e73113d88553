//! Link layers, IP, TCP.

use pillion_trace::{Flags, Packet, Timestamps, input::InputCounts};

use crate::common::{ETHERNET, Order, Pcap, one, packets, read};
use crate::common::{IPV4, IPV6, TCP, ethernet, ipv4, ipv4_with, ipv6, ipv6_with};
use crate::common::{segment, tcp, tcp_with};

fn only(link: u16, frame: &[u8]) -> Packet {
    let [packet] = packets(&one(link, frame))[..] else {
        panic!("one packet is TCP");
    };
    packet
}

fn counts(link: u16, captured: &[u8], len: usize) -> InputCounts {
    let file = Pcap::microseconds(Order::Little, link).cut(0, captured, len);
    let (packets, input) = read(&file.bytes);
    assert_eq!(packets.len() as u64, input.counts().tcp);
    *input.counts()
}

const ONE: InputCounts = InputCounts {
    packets: 1,
    tcp: 0,
    other_link: 0,
    not_ip: 0,
    not_tcp: 0,
    fragments: 0,
    cut: 0,
    damaged: 0,
    filtered: 0,
    time_out_of_range: 0,
    before_1970: 0,
    options_cut: 0,
    first_fragments: 0,
};

#[test]
fn all_segment_fields_are_read() {
    let packet = only(ETHERNET, &segment(b"hello"));
    assert_eq!(packet.from.to_string(), "192.0.2.1:4000");
    assert_eq!(packet.to.to_string(), "192.0.2.2:80");
    assert_eq!((packet.number, packet.at_ns), (1, 1000));
    assert_eq!(packet.frame_len, 59);
    assert_eq!((packet.header_len, packet.payload_len), (40, 5));
    assert_eq!((packet.seq, packet.ack), (1000, Some(2000)));
    assert_eq!((packet.window, packet.ip_id), (500, Some(0x1234)));
    let psh = Flags {
        psh: true,
        ..Flags::default()
    };
    assert_eq!(packet.flags, psh);
}

#[test]
fn ipv6_is_read_without_ip_id() {
    let packet = only(ETHERNET, &ethernet(IPV6, &ipv6(&tcp(b"hello"))));
    assert_eq!(packet.from.to_string(), "[2001:db8::1]:4000");
    assert_eq!(packet.to.to_string(), "[2001:db8::2]:80");
    assert_eq!((packet.header_len, packet.payload_len), (60, 5));
    assert_eq!(packet.ip_id, None);
}

/// Such addresses on the wire are another connection than the IPv4 addresses in them.
#[test]
fn mapped_ipv6_addresses_are_not_ipv4() {
    let mut frame = ethernet(IPV6, &ipv6(&tcp(b"hello")));
    for (end, host) in [(14 + 8, 1), (14 + 24, 2)] {
        frame[end..end + 16]
            .copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, host]);
    }
    let packet = only(ETHERNET, &frame);
    assert_eq!(packet.from.to_string(), "[::ffff:192.0.2.1]:4000");
    assert_eq!(packet.to.to_string(), "[::ffff:192.0.2.2]:80");
    let v4 = only(ETHERNET, &segment(b"hello"));
    assert_eq!(v4.from.to_string(), "192.0.2.1:4000");
    assert_ne!(packet.from, v4.from);
}

#[test]
fn all_link_layers_give_the_same_segment() {
    let (v4, v6) = (ipv4(&tcp(b"hello")), ipv6(&tcp(b"hello")));
    let tag = |kind: u16, inner: u16| [kind.to_be_bytes(), [0, 7], inner.to_be_bytes()].concat();
    let sll = |protocol: u16| [&[0; 14][..], &protocol.to_be_bytes()].concat();
    let pppoe = |protocol: u8, packet: &[u8]| {
        let len = packet.len() as u16 + 2;
        [&[0x11, 0, 0, 7][..], &len.to_be_bytes(), &[0, protocol]].concat()
    };
    let sll2 = |protocol: u16| [&protocol.to_be_bytes()[..], &[0; 18]].concat();
    for (link, header, packet) in [
        (ETHERNET, ethernet(IPV4, &[]), &v4),
        (ETHERNET, [&[2; 12][..], &tag(0x8100, IPV4)].concat(), &v4),
        (
            ETHERNET,
            [&[2; 12][..], &tag(0x88a8, 0x8100)[..4], &tag(0x8100, IPV6)].concat(),
            &v6,
        ),
        (
            ETHERNET,
            [&[2; 12][..], &tag(0x9100, 0x8100)[..4], &tag(0x8100, IPV4)].concat(),
            &v4,
        ),
        (113, sll(IPV4), &v4),
        (113, sll(IPV6), &v6),
        (113, [&[0; 14][..], &tag(0x8100, IPV4)].concat(), &v4),
        (276, sll2(IPV4), &v4),
        (276, sll2(IPV6), &v6),
        (0, vec![2, 0, 0, 0], &v4),
        (0, vec![0, 0, 0, 2], &v4),
        (0, vec![30, 0, 0, 0], &v6),
        (0, vec![0, 0, 0, 28], &v6),
        (108, vec![0, 0, 0, 2], &v4),
        (108, vec![0, 0, 0, 24], &v6),
        (101, vec![], &v4),
        (101, vec![], &v6),
        (12, vec![], &v4),
        (14, vec![], &v6),
        (9, vec![0, 0x21], &v4),
        (9, vec![0, 0x57], &v6),
        (9, vec![0x21], &v4),
        (9, vec![0xff, 3, 0, 0x21], &v4),
        (50, vec![0xff, 3, 0x57], &v6),
        (50, vec![0x0f, 0, 8, 0], &v4),
        (104, vec![0x8f, 0, 8, 0], &v4),
        (51, pppoe(0x57, &v6), &v6),
        (204, vec![0, 0xff, 3, 0, 0x21], &v4),
        (166, vec![1, 0x21], &v4),
        (ETHERNET, ethernet(0x8864, &pppoe(0x21, &v4)), &v4),
        (
            ETHERNET,
            [&[2; 12][..], &tag(0x8100, 0x8864), &pppoe(0x57, &v6)].concat(),
            &v6,
        ),
        (228, vec![], &v4),
        (229, vec![], &v6),
    ] {
        let packet = only(link, &[&header[..], packet].concat());
        assert_eq!(packet.payload_len, 5, "link type {link}, {header:x?}");
        assert_eq!(packet.seq, 1000, "link type {link}, {header:x?}");
    }
}

#[test]
fn ip_options_and_extensions_count_as_headers() {
    let packet = only(228, &ipv4_with(TCP, 0, &[1; 8], &tcp(b"hello")));
    assert_eq!((packet.header_len, packet.payload_len), (48, 5));

    let next = |kind, units, len| {
        let mut header = vec![0; len];
        header[..2].copy_from_slice(&[kind, units]);
        header
    };
    let chain = [
        next(43, 1, 16), // hop-by-hop
        next(60, 0, 8),  // routing
        next(51, 0, 8),  // destination options
        next(44, 4, 24), // authentication
        next(TCP, 0, 8), // a fragment that is the whole packet
        tcp(b"hello"),
    ]
    .concat();
    let packet = only(229, &ipv6_with(0, &chain));
    assert_eq!((packet.header_len, packet.payload_len), (60 + 64, 5));
}

/// RFC 791, section 3.1: the route ends at its last address, or at the header's once travelled.
#[test]
fn last_address_of_source_route_is_destination() {
    let hop = [203, 0, 113, 1];
    let last = [203, 0, 113, 9];
    for (kind, pointer, padded, to) in [
        (131, 4, false, "203.0.113.9:80"),
        (137, 8, true, "203.0.113.9:80"),
        (137, 12, false, "192.0.2.2:80"),
        (7, 4, false, "192.0.2.2:80"),
    ] {
        let route = [&[kind, 11, pointer][..], &hop, &last].concat();
        let options = match padded {
            // No operation, and a record of the route without room.
            true => [&[1, 7, 3, 4, 1][..], &route].concat(),
            false => [&route[..], &[0]].concat(),
        };
        let packet = only(228, &ipv4_with(TCP, 0, &options, &tcp(b"hello")));
        assert_eq!(packet.to.to_string(), to, "{kind} {pointer}");
        assert_eq!(packet.payload_len, 5);
    }
    let truncated = [131, 11, 4, 203, 0, 113, 1, 0];
    let packet = only(228, &ipv4_with(TCP, 0, &truncated, &tcp(b"hello")));
    assert_eq!(packet.to.to_string(), "192.0.2.2:80");
}

#[test]
fn last_address_of_routing_header_is_destination() {
    let address = |host| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host];
    for (kind, left, to) in [
        (0, 2, "[2001:db8::9]:80"),
        (2, 1, "[2001:db8::9]:80"),
        (4, 1, "[2001:db8::8]:80"),
        (4, 0, "[2001:db8::2]:80"),
        (3, 2, "[2001:db8::2]:80"),
    ] {
        let header = [
            &[TCP, 4, kind, left, 0, 0, 0, 0][..],
            &address(8),
            &address(9),
        ]
        .concat();
        let packet = only(229, &ipv6_with(43, &[header, tcp(b"hello")].concat()));
        assert_eq!(packet.to.to_string(), to, "{kind} {left}");
        assert_eq!((packet.header_len, packet.payload_len), (100, 5));
    }
}

#[test]
fn padding_and_check_sequences_are_not_payload() {
    let pppoe = |packet: &[u8]| {
        let session = [0x11, 0, 0, 7, 0, packet.len() as u8 + 2, 0, 0x21];
        ethernet(0x8864, &[&session, packet].concat())
    };
    // Some routers count the padding.
    let (mut no_length, mut padded_length) = (ipv4(&tcp(b"")), ipv4(&tcp(b"")));
    no_length[2..4].fill(0);
    padded_length[3] += 6;
    for packet in [
        ethernet(IPV4, &ipv4(&tcp(b""))),
        ethernet(IPV6, &ipv6(&tcp(b""))),
        pppoe(&ipv4(&tcp(b""))),
        pppoe(&no_length),
        pppoe(&padded_length),
    ] {
        let padded = [&packet[..], &[0; 6]].concat();
        let seen = only(ETHERNET, &padded);
        assert_eq!(seen.payload_len, 0);
        assert_eq!(seen.frame_len as usize, padded.len());
    }
}

#[test]
fn zero_ip_length_uses_frame_length() {
    let mut v4 = ipv4(&tcp(&[7; 3000]));
    v4[2..4].fill(0);
    let mut v6 = ipv6(&tcp(&[7; 3000]));
    v6[4..6].fill(0);
    for packet in [v4, v6] {
        let file = Pcap::microseconds(Order::Little, 101).cut(0, &packet[..64], packet.len());
        assert_eq!(packets(&file.bytes)[0].payload_len, 3000);
    }
}

#[test]
fn only_first_fragment_is_a_packet() {
    let first = counts(228, &ipv4_with(TCP, 0x2000, &[], &tcp(&[0; 4])), 44);
    assert_eq!(
        first,
        InputCounts {
            tcp: 1,
            first_fragments: 1,
            ..ONE
        }
    );
    let later = counts(228, &ipv4_with(TCP, 0x2003, &[], &[0; 40]), 60);
    assert_eq!(
        later,
        InputCounts {
            fragments: 1,
            ..ONE
        }
    );
    let fragment = |offset: u16| {
        let header = [&[TCP, 0][..], &offset.to_be_bytes(), &[0; 4]].concat();
        let packet = ipv6_with(44, &[header, tcp(&[0; 4])].concat());
        counts(229, &packet, packet.len())
    };
    assert_eq!(
        fragment(1),
        InputCounts {
            tcp: 1,
            first_fragments: 1,
            ..ONE
        }
    );
    assert_eq!(
        fragment(8),
        InputCounts {
            fragments: 1,
            ..ONE
        }
    );
}

#[test]
fn packets_without_tcp_are_counted_by_reason() {
    let arp = ethernet(0x0806, &[0; 46]);
    assert_eq!(counts(1, &arp, 60), InputCounts { not_ip: 1, ..ONE });
    let udp = ethernet(IPV4, &ipv4_with(17, 0, &[], &[0; 8]));
    assert_eq!(counts(1, &udp, 42), InputCounts { not_tcp: 1, ..ONE });
    let icmp = ipv6_with(58, &[0; 8]);
    assert_eq!(counts(229, &icmp, 48), InputCounts { not_tcp: 1, ..ONE });
}

#[test]
fn truncated_frame_is_read_as_far_as_possible() {
    let options = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let frame = ethernet(IPV4, &ipv4(&tcp_with(0x10, &options, &[7; 100])));
    for captured in 0..frame.len() {
        let expected = match captured {
            0..54 => InputCounts { cut: 1, ..ONE },
            54..66 => InputCounts {
                tcp: 1,
                options_cut: 1,
                ..ONE
            },
            _ => InputCounts { tcp: 1, ..ONE },
        };
        let seen = counts(ETHERNET, &frame[..captured], frame.len());
        assert_eq!(seen, expected, "{captured} bytes captured");
    }
}

#[test]
fn inconsistent_headers_are_damage() {
    let good = ipv4(&tcp(b"hello"));
    let with = |index: usize, byte| {
        let mut packet = good.clone();
        packet[index] = byte;
        counts(228, &packet, packet.len())
    };
    let damaged = InputCounts { damaged: 1, ..ONE };
    assert_eq!(with(0, 0x55), damaged, "IP version 5");
    assert_eq!(with(0, 0x44), damaged, "IP header of 16 bytes");
    assert_eq!(with(3, 19), damaged, "total length below the header's");
    assert_eq!(with(3, 30), damaged, "total length within the TCP header");
    assert_eq!(with(32, 0x40), damaged, "TCP header of 16 bytes");
    assert_eq!(with(32, 0x70), damaged, "TCP options beyond the packet");
    assert_eq!(counts(1, &good[..10], 10), damaged, "a frame too short");
}

#[test]
fn tcp_options_are_read_in_any_order() {
    let options = [
        &[1, 3, 3, 7][..],
        &[1, 5, 18, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4],
        &[254, 3, 9],
        &[8, 10, 1, 2, 3, 4, 5, 6, 7, 8],
        &[2, 4, 0x05, 0xb4],
    ]
    .concat();
    let packet = only(228, &ipv4(&tcp_with(0x02, &options, b"")));
    assert_eq!(packet.mss, Some(1460));
    assert_eq!(packet.window_scale, Some(7));
    assert_eq!(packet.sack.as_slice(), [(1, 2), (3, 4)]);
    let timestamps = Timestamps {
        value: 0x0102_0304,
        echo: 0x0506_0708,
    };
    assert_eq!(packet.timestamps, Some(timestamps));
    assert_eq!((packet.flags.syn, packet.ack), (true, None));
}

#[test]
fn mss_and_window_scale_are_read_only_from_syn() {
    let options = [2, 4, 0x05, 0xb4, 1, 3, 3, 15];
    let packet = only(228, &ipv4(&tcp_with(0x12, &options, b"")));
    assert_eq!((packet.mss, packet.window_scale), (Some(1460), Some(14)));
    let packet = only(228, &ipv4(&tcp_with(0x10, &options, b"")));
    assert_eq!((packet.mss, packet.window_scale), (None, None));
}

#[test]
fn malformed_option_ends_only_the_options() {
    let timestamps = [8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    for malformed in [[8, 0], [8, 1], [5, 40], [0, 0]] {
        let options = [&malformed[..], &timestamps].concat();
        let packet = only(228, &ipv4(&tcp_with(0x10, &options, b"hello")));
        assert_eq!(packet.timestamps, None, "{malformed:?}");
        assert_eq!(packet.payload_len, 5, "{malformed:?}");
    }
}
