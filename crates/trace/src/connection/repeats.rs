use std::iter;

use crate::packet::Packet;

/// The last packets of one direction, to tell when a trace shows one of them twice: captures on
/// all devices see a packet on each device that it passes.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    prints: [u64; 8],
    at_ns: [i64; 8],
    next: usize,
}

/// Two devices of one host show a packet within this time. A sender takes longer to send
/// anything again, and gives it another IP identification when it does.
const SAME_PACKET_NS: u64 = 1_000_000;

/// Where there is no IP identification, no time-out and no thin stream is this quick.
const SAME_PACKET_WITHOUT_ID_NS: u64 = 100_000;

impl Repeats {
    /// Whether the trace shows this packet, which has that fingerprint, a second time.
    #[inline]
    pub(crate) fn is_repeat(&mut self, packet: &Packet, print: u64) -> bool {
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
        // Mostly there is none, which is found faster without a branch for each.
        let known = |found, &other| found | (other == print);
        let seen = self.prints.iter().fold(false, known)
            && iter::zip(&self.prints, self.at_ns)
                .any(|(&other, at_ns)| other == print && packet.at_ns.abs_diff(at_ns) <= limit);
        if !seen {
            let place = self.next % self.prints.len();
            (self.prints[place], self.at_ns[place]) = (print, packet.at_ns);
            self.next = place + 1;
        }
        seen
    }
}
