use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::queue::{Endpoints, Event, Fate, Length, Packet, Reasons};

/// A packet as a row of a table: its fields are the columns; what is not known is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Row {
    /// [`Packet::arrived_ns`].
    pub arrived_ns: Option<u64>,
    /// [`Packet::left_ns`].
    pub left_ns: Option<u64>,
    /// [`Packet::fate`]; `None` stands for a packet, or the end of one, that could not be noted,
    /// and of which nothing else is known.
    pub fate: Option<Fate>,
    /// Why the packet was dropped, by the kernel's name; `None` if it was not.
    pub reason: Option<String>,
    /// [`Endpoints::protocol`].
    pub protocol: Option<u8>,
    /// [`Endpoints::source`].
    pub source: Option<SocketAddr>,
    /// [`Endpoints::destination`].
    pub destination: Option<SocketAddr>,
    /// [`Packet::seq`].
    pub seq: u32,
    /// [`Packet::payload`].
    pub payload_bytes: u32,
    /// [`Packet::flags`].
    pub tcp_flags: u8,
    /// [`Packet::size`].
    pub size_bytes: u32,
    /// [`Packet::counted`].
    pub counted_bytes: u32,
    /// [`Packet::segments`].
    pub segments: u16,
    /// [`Packet::queue`].
    pub queue: u16,
    /// [`Packet::found`], in packets.
    pub found_packets: Option<u32>,
    /// [`Packet::found`], in bytes.
    pub found_bytes: Option<u32>,
    /// [`Packet::behind`], in packets.
    pub behind_packets: Option<u32>,
    /// [`Packet::behind`], in bytes.
    pub behind_bytes: Option<u32>,
}

impl Row {
    /// The rows of an event: one of a packet, as many as packets that could not be noted.
    pub fn of(event: &Event, reasons: &Reasons) -> impl Iterator<Item = Self> + use<> {
        let (row, times) = match event {
            Event::Packet(packet) => (Self::of_packet(packet, reasons), 1),
            Event::Missed(number) => (Self::default(), *number),
        };
        (0..times).map(move |_| row.clone())
    }

    fn of_packet(packet: &Packet, reasons: &Reasons) -> Self {
        let (ends, found, behind) = (packet.ends, packet.found, packet.behind);
        Self {
            arrived_ns: packet.arrived_ns,
            left_ns: packet.left_ns,
            fate: Some(packet.fate),
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

    /// What the row tells of. Reasons that are not among those known so far are added to them.
    #[must_use]
    pub fn event(&self, reasons: &mut Reasons) -> Event {
        let Some(fate) = self.fate else {
            return Event::Missed(1);
        };
        let length = |packets: Option<u32>, bytes: Option<u32>| {
            let (packets, bytes) = packets.zip(bytes)?;
            Some(Length { packets, bytes })
        };
        let ends = self.protocol.zip(self.source).zip(self.destination);
        let ends = ends.map(|((protocol, source), destination)| Endpoints {
            protocol,
            source,
            destination,
        });
        Event::Packet(Packet {
            arrived_ns: self.arrived_ns,
            left_ns: self.left_ns,
            fate,
            reason: self.reason.as_ref().map_or(0, |name| reasons.number(name)),
            ends,
            seq: self.seq,
            payload: self.payload_bytes,
            flags: self.tcp_flags,
            size: self.size_bytes,
            counted: self.counted_bytes,
            segments: self.segments,
            queue: self.queue,
            found: length(self.found_packets, self.found_bytes),
            behind: length(self.behind_packets, self.behind_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_survive_a_table() {
        let mut known = Reasons::default();
        let reason = known.number("QDISC_OVERLIMIT");
        let dropped = Packet {
            arrived_ns: Some(1_000),
            left_ns: Some(2_000),
            fate: Fate::Refused,
            reason,
            ends: Some(Endpoints {
                protocol: 6,
                source: "10.0.0.1:1234".parse().unwrap(),
                destination: "[fd00::2]:80".parse().unwrap(),
            }),
            seq: u32::MAX,
            payload: 120,
            flags: 24,
            size: 186,
            counted: 190,
            segments: 1,
            queue: 3,
            found: Some(Length {
                packets: 20,
                bytes: 20_000,
            }),
            behind: None,
        };
        let nothing_known = Packet {
            arrived_ns: None,
            ends: None,
            found: None,
            fate: Fate::Sent,
            reason: 0,
            ..dropped
        };
        let events = [
            Event::Packet(dropped),
            Event::Missed(2),
            Event::Packet(nothing_known),
        ];
        let rows: Vec<Row> = events.iter().flat_map(|it| Row::of(it, &known)).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(rows[0].reason.as_deref(), Some("QDISC_OVERLIMIT"));
        let mut found = Reasons::default();
        let read: Vec<Event> = rows.iter().map(|row| row.event(&mut found)).collect();
        let missed = Event::Missed(1);
        assert_eq!(read, [events[0], missed, missed, events[2]]);
        assert_eq!(found.name(reason), "QDISC_OVERLIMIT");
    }
}
