use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::queue::contract::types;

/// A packet that was offered to a device's queue, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// When the packet was offered to the queue, `CLOCK_MONOTONIC` in ns. `None` if that was not
    /// seen: it is older than the probe, or a queueing discipline made it (by splitting or copying
    /// one that was offered).
    pub arrived_ns: Option<u64>,
    /// When the packet was sent or dropped, `CLOCK_MONOTONIC` in ns; `None` with [`Fate::Unseen`]
    /// and [`Fate::Replaced`].
    pub left_ns: Option<u64>,
    /// What became of the packet.
    pub fate: Fate,
    /// Why the packet was dropped, by the kernel's number (`enum skb_drop_reason`); 0 if it was
    /// not.
    pub reason: u32,
    /// The ends of the packet's connection; `None` for what is no IP packet.
    pub ends: Option<Endpoints>,
    /// TCP's sequence number of the first byte of payload; 0 for other protocols.
    pub seq: u32,
    /// Bytes of payload, of TCP; 0 for other protocols.
    pub payload: u32,
    /// TCP's flags, as in the header (FIN 1, SYN 2, RST 4, PSH 8, ACK 16).
    pub flags: u8,
    /// Bytes of the packet, headers included; of all segments, if there are several.
    pub size: u32,
    /// Bytes of the packet, as the queueing disciplines count them.
    pub counted: u32,
    /// Segments in the packet: more than one only with segmentation offload.
    pub segments: u16,
    /// The number of the device's queue that the packet was in.
    pub queue: u16,
    /// How long the queue was when the packet was offered, without it; `None` if that is not known.
    pub found: Option<Length>,
    /// How long the queue was when the packet had been sent; `None` if it was not.
    pub behind: Option<Length>,
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Fate {
    /// The packet's end was not seen: it was still in the queue when the probe ended.
    Unseen = types::fate::FATE_UNSEEN.0,
    /// The packet went on to the device.
    Sent = types::fate::FATE_SENT.0,
    /// The packet was dropped as it arrived: the queue was full, or the discipline decided so.
    Refused = types::fate::FATE_REFUSED.0,
    /// The packet was in the queue, and dropped from there: by active queue management, for the
    /// sake of another packet, or because the queue was emptied.
    Dropped = types::fate::FATE_DROPPED.0,
    /// A queueing discipline split or copied the packet: others are in the queue in its place,
    /// which are not seen to arrive.
    Replaced = types::fate::FATE_REPLACED.0,
}

/// The ends of the connection that a packet belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Endpoints {
    /// IP's number of the protocol: 6 for TCP.
    pub protocol: u8,
    /// The sender's address, and port (0 where the protocol has none).
    pub source: SocketAddr,
    /// The receiver's address, and port (0 where the protocol has none).
    pub destination: SocketAddr,
}

/// The length of a queue, as the queueing discipline itself counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Length {
    /// Packets in the queue, those of child disciplines included.
    pub packets: u32,
    /// Bytes of the packets in the queue.
    pub bytes: u32,
}

impl Fate {
    pub(crate) const ALL: [Self; 5] = [
        Self::Unseen,
        Self::Sent,
        Self::Refused,
        Self::Dropped,
        Self::Replaced,
    ];
}

impl Packet {
    /// How long the packet waited in the queue, in ns; only of packets that were sent.
    #[must_use]
    pub fn delay_ns(&self) -> Option<u64> {
        let sent_ns = self.left_ns.filter(|_| self.fate == Fate::Sent)?;
        Some(sent_ns.saturating_sub(self.arrived_ns?))
    }

    /// True if the packet was dropped, as it arrived or later.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        matches!(self.fate, Fate::Refused | Fate::Dropped)
    }
}

impl Length {
    fn of(raw: &types::length) -> Option<Self> {
        (raw.packets != u32::MAX).then_some(Self {
            packets: raw.packets,
            bytes: raw.bytes,
        })
    }
}

impl From<&types::queued> for Packet {
    fn from(raw: &types::queued) -> Self {
        let end = |address: [u8; 16], port| {
            SocketAddr::new(IpAddr::V6(Ipv6Addr::from(address)).to_canonical(), port)
        };
        let time = |ns: u64| Some(ns).filter(|ns| *ns > 0);
        let fate = Fate::ALL.into_iter().find(|fate| *fate as u8 == raw.fate.0);
        Self {
            arrived_ns: time(raw.arrived),
            left_ns: time(raw.left),
            fate: fate.unwrap_or(Fate::Unseen),
            reason: raw.reason,
            ends: (raw.ip > 0).then(|| Endpoints {
                protocol: raw.protocol,
                source: end(raw.source, raw.source_port),
                destination: end(raw.destination, raw.destination_port),
            }),
            seq: raw.seq,
            payload: raw.payload,
            flags: raw.flags,
            size: raw.size,
            counted: raw.counted,
            segments: raw.segments.max(1),
            queue: raw.queue,
            found: Length::of(&raw.found),
            behind: Length::of(&raw.behind),
        }
    }
}
