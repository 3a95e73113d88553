//! TFRC-SP arithmetic of the kernel programs (`bpf/bundler/loss/tfrc.h`,
//! `bpf/bundler/tx/sending_rate.h`), compiled for this machine. Times are in microseconds of any
//! clock.

/// Packets and their bytes (`struct sent`).
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

/// State of the sending rate (`struct sending`).
#[repr(C)]
#[derive(Debug, Clone, Default)]
pub struct Sending {
    since: u64,
    packets: u32,
    current: Sent,
    before: Sent,
}

/// State of the loss event rate (`struct loss_events`).
#[repr(C)]
#[derive(Debug, Clone, Default)]
pub struct LossEvents {
    start: u64,
    packets: u32,
    losses: u32,
    total_losses: u32,
    closed: u32,
    intervals: [u32; 8],
}

mod c {
    use super::{LossEvents, Sending, Sent};

    // SAFETY: the signatures and types match tfrc.c, which stores no pointer.
    unsafe extern "C" {
        pub safe fn pillion_tfrc_rate(p: u64, rtt: u64) -> u64;
        pub safe fn pillion_subtract_headers(rate: u64, sent: &Sent) -> u64;
        pub safe fn pillion_note_losses(
            events: &mut LossEvents,
            total_losses: u32,
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
pub const LOSS_RATE_ONE: u64 = 1 << 31;

/// Computes the throughput equation in bytes/s; `p` is in units of 1 / [`LOSS_RATE_ONE`].
#[must_use]
pub fn rate(p: u64, rtt: u64) -> u64 {
    c::pillion_tfrc_rate(p, rtt)
}

/// Subtracts the share of headers in `sent` from a rate, in bytes/s.
#[must_use]
pub fn subtract_headers(rate: u64, sent: Sent) -> u64 {
    c::pillion_subtract_headers(rate, &sent)
}

impl LossEvents {
    /// Records `total_losses` losses so far, out of `packets` packets sent.
    pub fn note(&mut self, total_losses: u32, packets: u32, now: u64, rtt: u64) {
        c::pillion_note_losses(self, total_losses, packets, now, rtt);
    }

    /// Returns the loss event rate after `packets` packets, in units of 1 / [`LOSS_RATE_ONE`].
    #[must_use]
    pub fn rate(&self, packets: u32, now: u64, rtt: u64) -> u64 {
        c::pillion_loss_event_rate(self, packets, now, rtt)
    }
}

impl Sending {
    /// Records a packet that leaves.
    pub fn note(&mut self, now: u64, rtt: u64, sent: Sent) {
        c::pillion_note_sent(self, now, rtt, &sent);
    }

    /// Returns packets and bytes per second, over the last second or the last RTT if that is
    /// longer.
    #[must_use]
    pub fn rate(&self, now: u64, rtt: u64) -> Sent {
        c::pillion_sending_rate(self, now, rtt)
    }

    /// Returns true if more than `limit` bytes per second are sent, headers included.
    #[must_use]
    pub fn exceeds(&self, now: u64, rtt: u64, limit: u64) -> bool {
        c::pillion_exceeds_rate(self, now, rtt, limit)
    }
}
