use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use serde::{Deserialize, Serialize};

use crate::queue::contract::types;

/// A packet offered to a device's queue, and its disposition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Time of arrival, `CLOCK_MONOTONIC` in ns. `None` if it was not observed: the packet is older
    /// than the probe, or a queueing discipline created it (by splitting or copying an offered
    /// one).
    pub arrived_ns: Option<u64>,
    /// Time of transmission or drop, `CLOCK_MONOTONIC` in ns; `None` with [`Disposition::Unseen`]
    /// and [`Disposition::Replaced`].
    pub left_ns: Option<u64>,
    /// Disposition of the packet.
    pub disposition: Disposition,
    /// Reason of the drop, by the kernel's number (`enum skb_drop_reason`); 0 if the packet was not
    /// dropped.
    pub reason: u32,
    /// The endpoints of the packet's connection; `None` if it is not an IP packet.
    pub ends: Option<Endpoints>,
    /// TCP's sequence number of the first byte of payload; 0 for other protocols.
    pub seq: u32,
    /// Bytes of TCP payload; 0 for other protocols.
    pub payload: u32,
    /// TCP's flags, as in the header (FIN 1, SYN 2, RST 4, PSH 8, ACK 16).
    pub flags: u8,
    /// Bytes of the packet, headers included; the sum over all segments.
    pub size: u32,
    /// Bytes of the packet, as counted by the queueing disciplines.
    pub counted: u32,
    /// Segments in the packet; more than one only with segmentation offload.
    pub segments: u16,
    /// Number of the device's queue that contained the packet.
    pub queue: u16,
    /// Queue length on arrival, without the packet itself; `None` if unknown.
    pub found: Option<Length>,
    /// Queue length after the packet's transmission; `None` if it was not sent.
    pub behind: Option<Length>,
}

/// Disposition of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum Disposition {
    /// The end was not observed: the packet was still in the queue when the probe stopped.
    Unseen = types::disposition::DISPOSITION_UNSEEN.0,
    /// The packet was passed to the device.
    Sent = types::disposition::DISPOSITION_SENT.0,
    /// The packet was dropped on arrival: the queue was full, or the discipline decided so.
    Refused = types::disposition::DISPOSITION_REFUSED.0,
    /// The packet was dropped from the queue: by active queue management, in favour of another
    /// packet, or because the queue was flushed.
    Dropped = types::disposition::DISPOSITION_DROPPED.0,
    /// A queueing discipline split or copied the packet. The queue contains other packets instead,
    /// without an observed arrival.
    Replaced = types::disposition::DISPOSITION_REPLACED.0,
}

/// The endpoints of a packet's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Endpoints {
    /// IP's protocol number: 6 for TCP.
    pub protocol: u8,
    /// The sender's address and port (0 for protocols without ports).
    pub source: SocketAddr,
    /// The receiver's address and port (0 for protocols without ports).
    pub destination: SocketAddr,
}

/// The length of a queue, as counted by the queueing discipline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Length {
    /// Packets in the queue, including child disciplines.
    pub packets: u32,
    /// Bytes of the packets in the queue.
    pub bytes: u32,
}

impl Disposition {
    pub(crate) const ALL: [Self; 5] = [
        Self::Unseen,
        Self::Sent,
        Self::Refused,
        Self::Dropped,
        Self::Replaced,
    ];
}

impl Packet {
    /// Returns the packet's time in the queue in ns; `None` if it was not sent.
    #[must_use]
    pub fn delay_ns(&self) -> Option<u64> {
        let sent_ns = self
            .left_ns
            .filter(|_| self.disposition == Disposition::Sent)?;
        Some(sent_ns.saturating_sub(self.arrived_ns?))
    }

    /// Returns true if the packet was dropped, on arrival or later.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        matches!(
            self.disposition,
            Disposition::Refused | Disposition::Dropped
        )
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
        let disposition = Disposition::ALL
            .into_iter()
            .find(|it| *it as u8 == raw.disposition.0);
        Self {
            arrived_ns: time(raw.arrived),
            left_ns: time(raw.left),
            disposition: disposition.unwrap_or(Disposition::Unseen),
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
