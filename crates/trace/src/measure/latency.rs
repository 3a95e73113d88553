use pillion_stats::measure::Distribution;

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
    /// ACK latency of byte ranges that were retransmitted once, twice and three times (2013
    /// poster, figure 2), no matter how often they rode along in bundles.
    pub ack_latency_retransmitted: [Distribution; 3],
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
            let place = range.retransmissions.wrapping_sub(1);
            if let Some(of_so_many) = self.ack_latency_retransmitted.get_mut(place) {
                of_so_many.record(latency_ns);
            }
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.ack_latency.add(&other.ack_latency);
        self.rtt.add(&other.rtt);
        let others = &other.ack_latency_retransmitted;
        for (own, other) in self.ack_latency_retransmitted.iter_mut().zip(others) {
            own.add(other);
        }
    }

    pub(super) fn settle(&mut self) {
        self.ack_latency.settle();
        self.rtt.settle();
        for of_so_many in &mut self.ack_latency_retransmitted {
            of_so_many.settle();
        }
    }
}
