//! Conversations of the host at the sender's trace with several others.

use super::{MS, Script, endpoint};
use crate::Direction::{Backward, Forward};
use crate::packet::Packet;

/// A connection of the host at the sender's trace with another one, which that host opened or the
/// other: 20 messages of the host's, each 20 ms, acknowledged 40 ms later.
pub(crate) fn with(port: u16, other: &str, opened_by_other: bool) -> Script {
    let (host, other) = ("192.0.2.1", format!("{other}:{port}"));
    let mut script = Script::new();
    script.initial = [10_000 * u32::from(port), 7_000 * u32::from(port)];
    (script.client, script.server) = match opened_by_other {
        true => (endpoint(&other), endpoint(&format!("{host}:80"))),
        false => (endpoint(&format!("{host}:80")), endpoint(&other)),
    };
    script.at(10).syn();
    script.at(50).syn_ack();
    script.packet(Forward, 1, 0);
    for message in 0..20 {
        let (at, position) = (100 + message * 20, message * 100 + 1);
        if opened_by_other {
            script.at(at).packet(Backward, position, 100);
            script.at(at + 40).packet(Forward, 1, 0).ack =
                Some(script.initial[1].wrapping_add(position as u32 + 100));
        } else {
            script.at(at).data(position, position + 100);
            script.at(at + 40).ack(position + 100);
        }
    }
    script.packets.sort_by_key(|packet| packet.at_ns);
    script
}

/// Both traces of these conversations, of which the receiver's shows what `shows` takes, later or
/// earlier by 20 ms as the host at the sender's trace sends it or not.
pub(crate) fn traces(scripts: &[Script], shows: impl Fn(&Packet) -> bool) -> [Vec<Packet>; 2] {
    let mut here: Vec<Packet> = (scripts.iter())
        .flat_map(|script| script.packets.clone())
        .collect();
    here.sort_by_key(|packet| packet.at_ns);
    for (number, packet) in (1..).zip(&mut here) {
        packet.number = number;
    }
    let mut there: Vec<Packet> = here.iter().filter(|it| shows(it)).copied().collect();
    for packet in &mut there {
        let way_ns = if packet.from.port == 80 { 20 } else { -20 } * MS;
        packet.at_ns += way_ns;
    }
    there.sort_by_key(|packet| packet.at_ns);
    [here, there]
}

/// A host near the receiver's trace.
pub(crate) const SHOWN: &str = "198.51.100.1";
/// A host whose packets that trace does not show.
pub(crate) const NOT_SHOWN: &str = "203.0.113.1";

/// Whether a packet is of a connection with the host that is shown.
pub(crate) fn is_shown(packet: &Packet) -> bool {
    let shown = endpoint(&format!("{SHOWN}:1")).address;
    [packet.from, packet.to]
        .iter()
        .any(|end| end.address == shown)
}
