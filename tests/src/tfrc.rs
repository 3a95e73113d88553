//! TFRC-SP as the kernel computes it (`bpf/bundler/loss/tfrc.h`, `bpf/bundler/tx/sending_rate.h`), compiled for this
//! machine. Times are in microseconds, on any clock.

/// Packets and their bytes; `struct sent`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    /// Number of packets sent.
    pub packets: u32,
    /// Bytes of payload sent.
    pub payload: u32,
    /// Bytes of payload and headers sent.
    pub wire: u32,
}

/// The sending rate's state; `struct sending`.
#[repr(C)]
#[derive(Debug, Clone, Default)]
pub struct Sending {
    since: u64,
    packets: u32,
    current: Sent,
    before: Sent,
}

/// The loss event rate's state; `struct loss_events`.
#[repr(C)]
#[derive(Debug, Clone, Default)]
pub struct LossEvents {
    start: u64,
    packets: u32,
    losses: u32,
    known: u32,
    closed: u32,
    intervals: [u32; 8],
}

mod c {
    use super::{LossEvents, Sending, Sent};

    // SAFETY: the signatures and types are those of tfrc.c, which keeps no pointer.
    unsafe extern "C" {
        pub safe fn pillion_tfrc_rate(p: u64, rtt: u64) -> u64;
        pub safe fn pillion_less_headers(rate: u64, sent: &Sent) -> u64;
        pub safe fn pillion_note_losses(
            events: &mut LossEvents,
            known: u32,
            packets: u32,
            now: u64,
            rtt: u64,
        );
        pub safe fn pillion_loss_event_rate(
            events: &LossEvents,
            packets: u32,
            now: u64,
            rtt: u64,
        ) -> u64;
        pub safe fn pillion_note_sent(sending: &mut Sending, now: u64, rtt: u64, sent: &Sent);
        pub safe fn pillion_sending_rate(sending: &Sending, now: u64, rtt: u64) -> Sent;
        pub safe fn pillion_exceeds_rate(sending: &Sending, now: u64, rtt: u64, limit: u64)
        -> bool;
    }
}

/// A loss event rate of 1.
pub const EVERY_PACKET: u64 = 1 << 31;

/// The throughput equation in bytes/s; `p` in units of 1 / [`EVERY_PACKET`].
#[must_use]
pub fn rate(p: u64, rtt: u64) -> u64 {
    c::pillion_tfrc_rate(p, rtt)
}

/// A rate less what headers take of it, in bytes/s; `sent` says how much that is.
#[must_use]
pub fn less_headers(rate: u64, sent: Sent) -> u64 {
    c::pillion_less_headers(rate, &sent)
}

impl LossEvents {
    /// Takes note that so many losses are known by now, of so many packets ever sent.
    pub fn note(&mut self, known: u32, packets: u32, now: u64, rtt: u64) {
        c::pillion_note_losses(self, known, packets, now, rtt);
    }

    /// The loss event rate, in units of 1 / [`EVERY_PACKET`], after so many packets.
    #[must_use]
    pub fn rate(&self, packets: u32, now: u64, rtt: u64) -> u64 {
        c::pillion_loss_event_rate(self, packets, now, rtt)
    }
}

impl Sending {
    /// Takes note of something that leaves.
    pub fn note(&mut self, now: u64, rtt: u64, sent: Sent) {
        c::pillion_note_sent(self, now, rtt, &sent);
    }

    /// What left in the last second, or the last RTT if that is longer, by the second.
    #[must_use]
    pub fn rate(&self, now: u64, rtt: u64) -> Sent {
        c::pillion_sending_rate(self, now, rtt)
    }

    /// True if more than `limit` bytes a second are sent, with headers.
    #[must_use]
    pub fn exceeds(&self, now: u64, rtt: u64, limit: u64) -> bool {
        c::pillion_exceeds_rate(self, now, rtt, limit)
    }
}
