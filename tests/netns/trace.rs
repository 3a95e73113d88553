//! Hand-written traces of a conversation at both ends.

use std::path::{Path, PathBuf};

/// Client and server 50 ms apart, whose clocks differ by 7 s.
#[derive(Default)]
pub struct Conversation {
    packets: Vec<Packet>,
}

struct Packet {
    /// Time in the client's trace.
    at_ms: u64,
    from_client: bool,
    bytes: Vec<u8>,
    lost: bool,
}

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 40_000);
const SERVER: ([u8; 4], u16) = ([198, 51, 100, 1], 80);
const ONE_WAY_MS: u64 = 50;
const CLOCK_OFFSET_MS: u64 = 7000;
const SYN: u8 = 2;
const PUSH: u8 = 8;
const ACK: u8 = 16;

/// The client's initial sequence number.
pub const INITIAL: u32 = 4_294_967_000;
const SERVER_INITIAL: u32 = 500;

impl Conversation {
    /// Creates a conversation with its handshake, at 0 ms.
    pub fn start() -> Self {
        let mut conversation = Self::default();
        conversation.packet(0, true, SYN, (0, 0), 0);
        conversation.packet(100, false, SYN | ACK, (0, 0), 1);
        conversation.packet(100, true, ACK, (1, 1), 1);
        conversation
    }

    /// Adds a packet with the client's bytes from `start` up to `end`.
    pub fn data(&mut self, at_ms: u64, start: u32, end: u32) -> &mut Self {
        self.packet(at_ms, true, ACK, (start, end), 1)
    }

    /// Sets PSH in the last packet: the client's write ends there.
    pub fn pushed(&mut self) -> &mut Self {
        const FLAGS: usize = 20 + 13;
        self.packets.last_mut().unwrap().bytes[FLAGS] |= PUSH;
        self
    }

    /// Marks the last packet as lost.
    pub fn lost(&mut self) -> &mut Self {
        self.packets.last_mut().unwrap().lost = true;
        self
    }

    /// Adds an ACK of the server up to a position, as the client sees it.
    pub fn ack(&mut self, at_ms: u64, position: u32) -> &mut Self {
        self.packet(at_ms, false, ACK, (1, 1), position)
    }

    fn packet(
        &mut self,
        at_ms: u64,
        from_client: bool,
        flags: u8,
        (start, end): (u32, u32),
        ack: u32,
    ) -> &mut Self {
        let initials = [INITIAL, SERVER_INITIAL];
        let [(from, own), (to, peers)] = if from_client {
            [(CLIENT, initials[0]), (SERVER, initials[1])]
        } else {
            [(SERVER, initials[1]), (CLIENT, initials[0])]
        };
        let tcp = [
            &from.1.to_be_bytes()[..],
            &to.1.to_be_bytes(),
            &own.wrapping_add(start).to_be_bytes(),
            &peers.wrapping_add(ack).to_be_bytes(),
            &[5 << 4, flags, 1, 0, 0, 0, 0, 0],
            &vec![0; (end - start) as usize],
        ]
        .concat();
        let id = self.packets.len() as u16 + 1;
        let ip = [
            &[0x45, 0][..],
            &(20 + tcp.len() as u16).to_be_bytes(),
            &id.to_be_bytes(),
            &[0, 0, 64, 6, 0, 0],
            &from.0,
            &to.0,
        ];
        self.packets.push(Packet {
            at_ms,
            from_client,
            bytes: [&ip.concat()[..], &tcp].concat(),
            lost: false,
        });
        self
    }

    /// Returns the trace at the client.
    pub fn at_client(&self) -> Vec<u8> {
        let seen = self.packets.iter().map(|packet| (packet.at_ms, packet));
        pcap(seen.filter(|(_, packet)| packet.from_client || !packet.lost))
    }

    /// Returns the trace at the server, by the server's clock.
    pub fn at_server(&self) -> Vec<u8> {
        let server_time = |packet: &Packet| match packet.from_client {
            true => packet.at_ms + CLOCK_OFFSET_MS + ONE_WAY_MS,
            false => packet.at_ms + CLOCK_OFFSET_MS - ONE_WAY_MS,
        };
        let mut seen: Vec<_> = self
            .packets
            .iter()
            .filter(|packet| !packet.from_client || !packet.lost)
            .map(|packet| (server_time(packet), packet))
            .collect();
        seen.sort_by_key(|(at_ms, _)| *at_ms);
        pcap(seen.into_iter())
    }

    /// Writes both traces into a folder.
    pub fn write(&self, folder: &Path) -> [PathBuf; 2] {
        let files = [
            (folder.join("client.pcap"), self.at_client()),
            (folder.join("server.pcap"), self.at_server()),
        ];
        files.map(|(path, bytes)| {
            std::fs::write(&path, bytes).unwrap();
            path
        })
    }
}

fn pcap<'a>(packets: impl Iterator<Item = (u64, &'a Packet)>) -> Vec<u8> {
    const RAW_IP: u32 = 101;
    let words = |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, RAW_IP]);
    for (at_ms, packet) in packets {
        let len = packet.bytes.len() as u32;
        let (s, us) = (at_ms / 1000, at_ms % 1000 * 1000);
        file.extend(words(&[s as u32, us as u32, len, len]));
        file.extend(&packet.bytes);
    }
    file
}

/// Truncates each packet of a trace to `snaplen` bytes.
pub fn cut(trace: &[u8], snaplen: usize) -> Vec<u8> {
    let (header, mut rest) = trace.split_at(24);
    let mut cut = header.to_vec();
    while let Some((record, tail)) = rest.split_at_checked(16) {
        let captured = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let (packet, next) = tail.split_at(captured);
        let captured_bytes = &packet[..snaplen.min(captured)];
        cut.extend(&record[..8]);
        cut.extend((captured_bytes.len() as u32).to_le_bytes());
        cut.extend(&record[12..]);
        cut.extend(captured_bytes);
        rest = next;
    }
    cut
}
