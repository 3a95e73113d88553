use pillion_stats::measure::Distribution;

use super::batch::{Departure, End, Transit};
use super::finished::Total;

/// How long it took a connection, a short flow above all, to have all delivered that the end sent
/// which opened it: from the first SYN to the ACK of the last byte, one value for each connection of
/// which all was acknowledged.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    /// Of each connection.
    pub time: Distribution,
    /// Of those of which one of the last three segments was lost, or a copy of one (2013 poster,
    /// figure 1); empty without a trace at the receiver.
    pub with_a_tail_loss: Distribution,
    /// Where the last packets with new bytes ended, the last at the end.
    ends: [i64; TAIL + 1],
    /// Where the lost packet ended that ended last.
    lost_end: i64,
    acked_since_ns: i64,
}

/// The segments that are a flow's tail: a loss among them leaves too few duplicate ACKs behind it for
/// a fast retransmit.
const TAIL: usize = 3;

impl Completion {
    #[inline]
    pub(super) fn sent(&mut self, sent: &Departure) {
        if sent.end > self.ends[TAIL] {
            self.ends.rotate_left(1);
            self.ends[TAIL] = sent.end;
        }
    }

    /// New bytes were acknowledged.
    #[inline]
    pub(super) fn acked(&mut self, since_ns: i64) {
        self.acked_since_ns = since_ns;
    }

    #[inline]
    pub(super) fn fate(&mut self, fate: &Transit) {
        if fate.outcome == End::Lost {
            self.lost_end = self.lost_end.max(fate.end);
        }
    }

    pub(super) fn finished(&mut self, total: &Total) {
        let Some(opened_since_ns) = total.opened_since_ns.filter(|_| total.all_acked) else {
            return;
        };
        let time_ns = self.acked_since_ns.saturating_sub(opened_since_ns);
        self.time.record(time_ns);
        if self.lost_end > self.ends[0] {
            self.with_a_tail_loss.record(time_ns);
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.time.add(&other.time);
        self.with_a_tail_loss.add(&other.with_a_tail_loss);
    }

    pub(super) fn settle(&mut self) {
        self.time.settle();
        self.with_a_tail_loss.settle();
    }
}
