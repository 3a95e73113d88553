//! A pcapng file that grows block by block.

use super::Order;

pub struct PcapNg {
    order: Order,
    pub bytes: Vec<u8>,
}

impl PcapNg {
    /// Begins with a section.
    pub fn new(order: Order) -> Self {
        let bytes = Vec::new();
        Self { order, bytes }.section(order)
    }

    /// A section in a byte order of its own.
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

    /// With options, each a code and a value.
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

    /// An Enhanced Packet Block, with an option behind the packet.
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
