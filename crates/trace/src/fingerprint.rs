use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::fast::FixedState;

use crate::packet::Packet;

/// Of all of a packet's header that the network leaves alone; addresses and ports are not part
/// of it, as a NAT changes them.
pub(crate) fn fingerprint(packet: &Packet) -> u64 {
    let flags = packet.flags;
    let flags = u64::from(flags.syn)
        | u64::from(flags.fin) << 1
        | u64::from(flags.rst) << 2
        | u64::from(flags.psh) << 3
        | u64::from(packet.ack.is_some()) << 4;
    let words = [
        u64::from(packet.seq) << 32 | u64::from(packet.ack.unwrap_or_default()),
        u64::from(packet.payload_len) << 32
            | u64::from(packet.window) << 16
            | u64::from(packet.ip_id.unwrap_or_default()),
        packet.timestamps.map_or(0, |timestamps| {
            u64::from(timestamps.value) << 32 | u64::from(timestamps.echo)
        }),
        flags,
    ];
    let mut hasher = FixedState::with_seed(1).build_hasher();
    for word in words {
        hasher.write_u64(word);
    }
    for block in packet.sack.as_slice() {
        block.hash(&mut hasher);
    }
    hasher.finish() | 1
}
