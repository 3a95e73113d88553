use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::FixedState;

use crate::Packet;

/// The last packets of one direction, to tell when a trace shows one of them twice: captures on
/// all devices see a packet on each device that it passes.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    recent: [(u64, i64); 8],
    next: usize,
}

/// Two devices of one host show a packet within this time. A sender takes longer to send
/// anything again, and gives it another IP identification when it does.
const SAME_PACKET_NS: u64 = 1_000_000;

/// Where there is no IP identification, no time-out and no thin stream is this quick.
const SAME_PACKET_WITHOUT_ID_NS: u64 = 100_000;

impl Repeats {
    /// Whether the trace shows this packet a second time.
    pub(crate) fn is_repeat(&mut self, packet: &Packet) -> bool {
        let identified = packet.ip_id.is_some_and(|id| id != 0);
        if !identified && packet.payload_len == 0 && !packet.flags.syn && !packet.flags.fin {
            // Equal acknowledgements without identification are usual: duplicate ACKs.
            return false;
        }
        let limit = if identified {
            SAME_PACKET_NS
        } else {
            SAME_PACKET_WITHOUT_ID_NS
        };
        let print = fingerprint(packet);
        let seen = self
            .recent
            .iter()
            .any(|&(other, at_ns)| other == print && packet.at_ns.abs_diff(at_ns) <= limit);
        if !seen {
            self.recent[self.next % self.recent.len()] = (print, packet.at_ns);
            self.next = (self.next + 1) % self.recent.len();
        }
        seen
    }
}

/// Of all of the header that the network leaves alone.
fn fingerprint(packet: &Packet) -> u64 {
    let mut hasher = FixedState::with_seed(1).build_hasher();
    let words = (
        u64::from(packet.seq) << 32 | u64::from(packet.ack.unwrap_or_default()),
        u64::from(packet.payload_len) << 32
            | u64::from(packet.window) << 16
            | u64::from(packet.ip_id.unwrap_or_default()),
        packet.timestamps.map_or(0, |timestamps| {
            u64::from(timestamps.value) << 32 | u64::from(timestamps.echo)
        }),
    );
    words.hash(&mut hasher);
    let flags = packet.flags;
    hasher.write_u8(
        u8::from(flags.syn)
            | u8::from(flags.fin) << 1
            | u8::from(flags.rst) << 2
            | u8::from(flags.psh) << 3
            | u8::from(packet.ack.is_some()) << 4,
    );
    for &(left, right) in packet.sack.as_slice() {
        hasher.write_u64(u64::from(left) << 32 | u64::from(right));
    }
    hasher.finish()
}
