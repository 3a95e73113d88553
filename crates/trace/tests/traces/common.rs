//! Handmade traces.
#![allow(dead_code)]

use std::io::Cursor;

use pillion_trace::{
    Packet,
    input::{Input, InputError},
};

pub const ETHERNET: u16 = 1;

/// Byte order of a file's own fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Big,
    Little,
}

pub const ORDERS: [Order; 2] = [Order::Big, Order::Little];

impl Order {
    pub fn u16(self, value: u16) -> [u8; 2] {
        match self {
            Self::Big => value.to_be_bytes(),
            Self::Little => value.to_le_bytes(),
        }
    }

    pub fn u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Big => value.to_be_bytes(),
            Self::Little => value.to_le_bytes(),
        }
    }

    pub fn u64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Big => value.to_be_bytes(),
            Self::Little => value.to_le_bytes(),
        }
    }
}

/// A pcap file under construction.
pub struct Pcap {
    order: Order,
    ns_per_tick: u64,
    pub bytes: Vec<u8>,
}

impl Pcap {
    pub fn microseconds(order: Order, link: u16) -> Self {
        Self::new(order, 0xa1b2_c3d4, 1000, link.into())
    }

    pub fn nanoseconds(order: Order, link: u16) -> Self {
        Self::new(order, 0xa1b2_3c4d, 1, link.into())
    }

    pub fn new(order: Order, magic: u32, ns_per_tick: u64, link: u32) -> Self {
        let bytes = [
            &order.u32(magic)[..],
            &order.u16(2),
            &order.u16(4),
            &[0; 8],
            &order.u32(262_144),
            &order.u32(link),
        ]
        .concat();
        Self {
            order,
            ns_per_tick,
            bytes,
        }
    }

    /// Appends a completely captured frame.
    pub fn frame(self, at_ns: u64, frame: &[u8]) -> Self {
        self.cut(at_ns, frame, frame.len())
    }

    /// Appends the captured part of a frame of `len` bytes.
    pub fn cut(mut self, at_ns: u64, captured: &[u8], len: usize) -> Self {
        let ticks = at_ns % 1_000_000_000 / self.ns_per_tick;
        for field in [
            (at_ns / 1_000_000_000) as u32,
            ticks as u32,
            captured.len() as u32,
            len as u32,
        ] {
            self.bytes.extend(self.order.u32(field));
        }
        self.bytes.extend(captured);
        self
    }
}

/// One frame of this link type, as a trace.
pub fn one(link: u16, frame: &[u8]) -> Vec<u8> {
    Pcap::microseconds(Order::Little, link)
        .frame(1_000, frame)
        .bytes
}

pub fn open(bytes: &[u8]) -> Result<Input, InputError> {
    Input::new("test", Cursor::new(bytes.to_vec()))
}

/// All packets of a trace, and the input at its end.
pub fn read(bytes: &[u8]) -> (Vec<Packet>, Input) {
    let mut input = open(bytes).expect("a trace");
    (input.by_ref().collect(), input)
}

/// The packets of a trace without warnings.
pub fn packets(bytes: &[u8]) -> Vec<Packet> {
    let (packets, input) = read(bytes);
    assert_eq!(input.warnings(), []);
    packets
}

/// The texts of the warnings.
pub fn warnings(input: &Input) -> Vec<String> {
    input.warnings().iter().map(ToString::to_string).collect()
}

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const TCP: u8 = 6;

pub fn ethernet(ethertype: u16, packet: &[u8]) -> Vec<u8> {
    [&[2; 12][..], &ethertype.to_be_bytes(), packet].concat()
}

/// From 192.0.2.1 to 192.0.2.2.
pub fn ipv4(payload: &[u8]) -> Vec<u8> {
    ipv4_with(TCP, 0, &[], payload)
}

/// `fragment` is the field of flags and offset.
pub fn ipv4_with(protocol: u8, fragment: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let total = (header_len + payload.len()) as u16;
    [
        &[0x40 | (header_len / 4) as u8, 0][..],
        &total.to_be_bytes(),
        &0x1234_u16.to_be_bytes(),
        &fragment.to_be_bytes(),
        &[64, protocol, 0, 0],
        &[192, 0, 2, 1, 192, 0, 2, 2],
        options,
        payload,
    ]
    .concat()
}

/// From 2001:db8::1 to 2001:db8::2.
pub fn ipv6(payload: &[u8]) -> Vec<u8> {
    ipv6_with(TCP, payload)
}

/// `next` is the kind of the first header in `payload`.
pub fn ipv6_with(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut ends = [0; 32];
    for (end, host) in ends.chunks_exact_mut(16).zip(1..) {
        end[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        end[15] = host;
    }
    [
        &[0x60, 0, 0, 0][..],
        &(payload.len() as u16).to_be_bytes(),
        &[next, 64],
        &ends,
        payload,
    ]
    .concat()
}

/// From port 4000 to 80, seq 1000, ACK 2000, window 500, PSH.
pub fn tcp(payload: &[u8]) -> Vec<u8> {
    tcp_with(0x18, &[], payload)
}

pub fn tcp_with(flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0, "TCP options come in fours");
    [
        &4000_u16.to_be_bytes()[..],
        &80_u16.to_be_bytes(),
        &1000_u32.to_be_bytes(),
        &2000_u32.to_be_bytes(),
        &[(((20 + options.len()) / 4) << 4) as u8, flags],
        &500_u16.to_be_bytes(),
        &[0; 4],
        options,
        payload,
    ]
    .concat()
}

/// A whole frame: Ethernet, IPv4, TCP with `payload`.
pub fn segment(payload: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &ipv4(&tcp(payload)))
}

pub struct PcapNg {
    order: Order,
    pub bytes: Vec<u8>,
}

impl PcapNg {
    /// Starts with a section.
    pub fn new(order: Order) -> Self {
        let bytes = Vec::new();
        Self { order, bytes }.section(order)
    }

    /// Appends a section with its own byte order.
    pub fn section(mut self, order: Order) -> Self {
        self.order = order;
        let body = [
            &order.u32(0x1a2b_3c4d)[..],
            &order.u16(1),
            &order.u16(0),
            &order.u64(u64::MAX),
        ]
        .concat();
        self.block(0x0a0d_0d0a, &body)
    }

    pub fn interface(self, link: u16, snaplen: u32) -> Self {
        self.interface_with(link, snaplen, &[])
    }

    /// With options as pairs of code and value.
    pub fn interface_with(self, link: u16, snaplen: u32, options: &[(u16, &[u8])]) -> Self {
        let order = self.order;
        let mut body = [&order.u16(link)[..], &[0; 2], &order.u32(snaplen)].concat();
        for (code, value) in options {
            body.extend(order.u16(*code));
            body.extend(order.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        self.block(1, &body)
    }

    /// if_tsoffset, in seconds, in this section's byte order.
    pub fn offset(&self, seconds: i64) -> [u8; 8] {
        self.order.u64(seconds.cast_unsigned())
    }

    /// An Enhanced Packet Block, with an option after the packet.
    pub fn enhanced(self, interface: u32, ticks: u64, captured: &[u8], len: usize) -> Self {
        let order = self.order;
        let mut body = order.u32(interface).to_vec();
        body.extend(self.timed(ticks, captured, len));
        body.extend([order.u16(2), order.u16(4), [0; 2], [1; 2]].concat());
        self.block(6, &body)
    }

    /// The Packet Block that the enhanced one replaced.
    pub fn obsolete(self, interface: u16, ticks: u64, captured: &[u8], len: usize) -> Self {
        let order = self.order;
        let mut body = [order.u16(interface), order.u16(7)].concat();
        body.extend(self.timed(ticks, captured, len));
        self.block(2, &body)
    }

    pub fn simple(self, captured: &[u8], len: usize) -> Self {
        let mut body = self.order.u32(len as u32).to_vec();
        body.extend(captured);
        self.block(3, &body)
    }

    fn timed(&self, ticks: u64, captured: &[u8], len: usize) -> Vec<u8> {
        let order = self.order;
        let mut body = [
            (ticks >> 32) as u32,
            ticks as u32,
            captured.len() as u32,
            len as u32,
        ]
        .map(|field| order.u32(field))
        .concat();
        body.extend(captured);
        body.resize(body.len().next_multiple_of(4), 0);
        body
    }

    /// A block of any kind.
    pub fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let padded = body.len().next_multiple_of(4);
        let len = self.order.u32(padded as u32 + 12);
        self.bytes.extend(self.order.u32(kind));
        self.bytes.extend(len);
        self.bytes.extend(body);
        self.bytes.extend(vec![0; padded - body.len()]);
        self.bytes.extend(len);
        self
    }
}
