use std::iter;

use super::Direction;
use crate::fingerprint::fingerprint;
use crate::packet::Packet;

/// The last packets of a trace, to tell when it shows one of them twice: captures on all devices
/// see a packet on each device that it passes.
///
/// What comes twice on one interface is two packets, unless the whole trace shows everything
/// twice: a path that duplicates packets does so to some.
#[derive(Debug)]
pub(crate) struct Repeats {
    /// The last few of those that are alike. All together they are more than any link carries in
    /// the time that matters, and few enough for a cache.
    alike: Vec<Last>,
    /// Whether the trace has every packet twice, by [`doubled`].
    doubled: bool,
}

const ALIKE: usize = 128;

/// Some last packets.
#[derive(Debug, Clone, Default)]
struct Last {
    prints: [u64; 8],
    seen: [(i64, u32); 8],
    next: usize,
}

/// Two devices of one host show a packet within this time. A sender takes longer to send
/// anything again, and gives it another IP identification when it does.
const SAME_PACKET_NS: u64 = 1_000_000;

/// The time within which two devices show a packet without IP identification: no time-out and no
/// thin stream is this quick.
const SAME_PACKET_WITHOUT_ID_NS: u64 = 100_000;

/// So many packets of a trace show whether it has all of them twice.
pub(crate) const LEAD: usize = 1000;

impl Repeats {
    /// `doubled`: the trace has every packet twice, by [`doubled`].
    pub(crate) fn new(doubled: bool) -> Self {
        Self {
            alike: vec![Last::default(); ALIKE],
            doubled,
        }
    }

    /// Whether the trace shows this packet, which has that fingerprint, a second time. `number`:
    /// its connection's.
    #[inline]
    pub(crate) fn is_repeat(
        &mut self,
        (number, direction): (u64, Direction),
        packet: &Packet,
        print: u64,
    ) -> bool {
        let whose = 2 * number + direction as u64;
        let print = print ^ whose.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = (print >> 32) as usize % ALIKE;
        self.alike[place].is_repeat(packet, print, self.doubled)
    }
}

impl Last {
    #[inline]
    fn is_repeat(&mut self, packet: &Packet, print: u64, doubled: bool) -> bool {
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
        let here = |interface: u32| doubled || interface != packet.interface;
        // Mostly there is none, which is found faster without a branch for each.
        let known = |found, &other| found | (other == print);
        let seen = self.prints.iter().fold(false, known)
            && iter::zip(&self.prints, self.seen).any(|(&other, (at_ns, interface))| {
                other == print && packet.at_ns.abs_diff(at_ns) <= limit && here(interface)
            });
        if !seen {
            let place = self.next % self.prints.len();
            self.prints[place] = print;
            self.seen[place] = (packet.at_ns, packet.interface);
            self.next = place + 1;
        }
        seen
    }
}

/// Whether a trace that begins with these packets shows every packet twice.
pub(crate) fn doubled<'a>(lead: impl Iterator<Item = &'a Packet>) -> bool {
    let (mut last, mut packets, mut again) = (Last::default(), 0, 0);
    for packet in lead.take(LEAD) {
        packets += 1;
        again += u32::from(last.is_repeat(packet, fingerprint(packet), true));
    }
    // Half of them come again, but for those that the trace misses.
    packets >= 10 && again * 20 >= packets * 9
}
