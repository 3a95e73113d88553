use pillion_measure::Distribution;

use super::batch::{Acknowledgement, Extent};

/// Times that the trace at the sender shows alone.
#[derive(Debug, Clone, Default)]
pub struct Latency {
    /// ACK latency of each byte range: from the first time that it was sent to the ACK that
    /// covers it (LCN 2015 paper, section IV.A; the thesis' ALD, section 3.4.3). A SACK block
    /// is no ACK.
    pub ack_latency: Distribution,
    /// Round-trip time: from sending to the ACK, where the last packet that the ACK covers was
    /// sent once and in no bundle.
    pub rtt: Distribution,
}

impl Latency {
    #[inline]
    pub(super) fn acked(&mut self, acked: &Acknowledgement) {
        if let Some(rtt_ns) = acked.rtt_ns {
            self.rtt.record(rtt_ns);
        }
    }

    #[inline]
    pub(super) fn range(&mut self, range: &Extent) {
        if let Some(latency_ns) = range.ack_latency_ns {
            self.ack_latency.record(latency_ns);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ack_latency.add(&other.ack_latency);
        self.rtt.add(&other.rtt);
    }

    pub(super) fn settle(&mut self) {
        self.ack_latency.settle();
        self.rtt.settle();
    }
}
