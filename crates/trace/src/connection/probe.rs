//! Packets that only ask for an answer, and what becomes of the byte that one carries.

use super::half::HalfConnection;
use crate::event::{Class, Sent};
use crate::packet::Packet;

/// Keep-alives with a byte of garbage are told from a byte sent again by the silence before
/// them; no kernel probes an idle connection more often than this.
const IDLE_NS: i64 = 1_000_000_000;

/// A probe of a closed window with a byte that was never sent before: it is payload once the peer has
/// taken it.
#[derive(Debug)]
pub(crate) struct Probe {
    begin: i64,
    at_ns: i64,
    packet: u64,
}

impl HalfConnection {
    /// Whether a packet only asks for an answer. Counts it if it does, and if it is a mere ACK.
    #[inline]
    pub(super) fn probe(
        &mut self,
        packet: &Packet,
        sent: &Sent,
        peer_closed: bool,
    ) -> Option<Class> {
        if packet.flags.syn || packet.flags.fin || packet.payload_len > 1 {
            return None;
        }
        let tracker = self.tracker.as_ref()?;
        let (acked, next) = (tracker.acked(), tracker.next());
        let empty = packet.payload_len == 0;
        let idle = self
            .last_data_ns
            .is_none_or(|last| packet.at_ns.saturating_sub(last) >= IDLE_NS);
        let before_all = sent.begin == acked - 1;
        let tests_window = before_all || !empty && (sent.begin == acked || sent.begin == next);
        if peer_closed && tests_window {
            self.counts.window_probes += 1;
            let is_new = !empty && sent.begin == next;
            self.probed = is_new.then_some(Probe {
                begin: sent.begin,
                at_ns: packet.at_ns,
                packet: packet.number,
            });
            Some(Class::WindowProbe)
        } else if before_all && (empty || acked == next && idle) {
            self.counts.keep_alives += 1;
            Some(Class::KeepAlive)
        } else {
            self.counts.pure_acks += u64::from(empty);
            None
        }
    }

    /// Forgets a probe whose byte is sent as payload.
    #[inline]
    pub(super) fn forget_probe(&mut self, begin: i64, end: i64) {
        self.probed
            .take_if(|probe| (begin..end).contains(&probe.begin));
    }

    /// Counts and places the byte of a probe, if it is one of those that the peer has acknowledged,
    /// which are all before this position.
    #[inline]
    pub(super) fn place_probe(&mut self, acked: i64) {
        if let Some(probe) = self.probed.take_if(|probe| probe.begin < acked)
            && let Some(tracker) = self.tracker.as_mut()
        {
            tracker.sent(probe.begin, probe.begin + 1, probe.at_ns, probe.packet);
            self.counts.payload_bytes += 1;
            self.counts.new_bytes += 1;
        }
    }
}
