use std::net::SocketAddr;

use serde::Serialize;

use crate::{Fate, Packet, Reasons};

/// A packet as a row of a table: its fields are the columns; what is not known is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PacketRow {
    arrived_ns: Option<u64>,
    left_ns: Option<u64>,
    fate: Fate,
    reason: Option<String>,
    protocol: Option<u8>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    seq: u32,
    payload_bytes: u32,
    tcp_flags: u8,
    size_bytes: u32,
    counted_bytes: u32,
    segments: u16,
    queue: u16,
    found_packets: Option<u32>,
    found_bytes: Option<u32>,
    behind_packets: Option<u32>,
    behind_bytes: Option<u32>,
}

impl PacketRow {
    /// The row of a packet; drops have the kernel's reasons by name.
    #[must_use]
    pub fn new(packet: &Packet, reasons: &Reasons) -> Self {
        let ends = packet.ends;
        let (found, behind) = (packet.found, packet.behind);
        Self {
            arrived_ns: packet.arrived_ns,
            left_ns: packet.left_ns,
            fate: packet.fate,
            reason: packet.is_dropped().then(|| reasons.name(packet.reason)),
            protocol: ends.map(|ends| ends.protocol),
            source: ends.map(|ends| ends.source),
            destination: ends.map(|ends| ends.destination),
            seq: packet.seq,
            payload_bytes: packet.payload,
            tcp_flags: packet.flags,
            size_bytes: packet.size,
            counted_bytes: packet.counted,
            segments: packet.segments,
            queue: packet.queue,
            found_packets: found.map(|length| length.packets),
            found_bytes: found.map(|length| length.bytes),
            behind_packets: behind.map(|length| length.packets),
            behind_bytes: behind.map(|length| length.bytes),
        }
    }
}
