//! Traces made by hand.
#![allow(dead_code)]

pub mod frame;
pub mod pcapng;

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

/// A pcap file that grows record by record.
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

    /// Appends a frame captured whole.
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

/// The packets of a trace that has nothing wrong with it.
pub fn packets(bytes: &[u8]) -> Vec<Packet> {
    let (packets, input) = read(bytes);
    assert_eq!(input.warnings(), []);
    packets
}

/// What the warnings say.
pub fn warnings(input: &Input) -> Vec<String> {
    input.warnings().iter().map(ToString::to_string).collect()
}
