use std::ops::AddAssign;

use pillion_bpf::{Observation, Outcome};
use serde::{Deserialize, Serialize};

use crate::trial::Latencies;

macro_rules! summary {
    ($($(#[$doc:meta])* $name:ident = $of:expr,)+) => {
        /// What was observed of connections, taken together.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct Summary {
            $($(#[$doc])* pub $name: u64,)+
            /// Segments by ACK latency.
            pub latencies: Latencies,
        }

        impl Summary {
            /// Adds another so many times.
            pub(crate) fn add(&mut self, other: &Self, times: u64) {
                $(self.$name = self.$name.saturating_add(other.$name.saturating_mul(times));)+
                self.latencies.add(&other.latencies, times);
            }
        }

        impl From<&Observation> for Summary {
            fn from(seen: &Observation) -> Self {
                $(let of: fn(&Observation) -> u64 = $of;
                let $name = of(seen);)+
                Self {
                    $($name,)+
                    latencies: (&seen.latencies).into(),
                }
            }
        }
    };
}

summary! {
    /// Connections.
    connections = |_| 1,
    /// New segments that were acknowledged and whose ACK latency is known.
    segments = |seen| seen.segments,
    /// Sum of ACK latencies, in microseconds.
    latency_us = |seen| seen.latency_us,
    /// Sum of what segments waited beyond the least RTT, in microseconds.
    waited_us = |seen| seen.waited_us,
    /// Sum of what segments waited beyond the least RTT and the grace, in microseconds.
    late_us = |seen| seen.late_us,
    /// Segments that waited beyond the least RTT and the grace.
    late = |seen| seen.late.into(),
    /// Segments that stalled.
    stalls = |seen| seen.stalls.into(),
    /// Time-outs of TCP's retransmission timer.
    timeouts = |seen| seen.timeouts.into(),
    /// Packets retransmitted after time-outs.
    after_timeout = |seen| seen.retransmitted.after_timeout.into(),
    /// Packets retransmitted by fast retransmit.
    fast = |seen| seen.retransmitted.fast.into(),
    /// Packets retransmitted as tail loss probes.
    probes = |seen| seen.retransmitted.probes.into(),
    /// Segments that TCP retransmitted.
    lost = |seen| seen.losses.segments.into(),
    /// Of these, those that the receiver reported to have had already.
    needless = |seen| seen.losses.needless.into(),
    /// Of the lost, less the needless, those that a bundle would have repaired, had it not been
    /// held back.
    repairable = |seen| seen.losses.repairable.into(),
    /// Of the lost, those that would have been in no bundle.
    unfollowed = |seen| seen.losses.unfollowed.into(),
    /// How much sooner bundles would have had segments acknowledged, in microseconds.
    saved_us = |seen| seen.losses.saved_us,
    /// How much sooner a copy of each segment would have, had none been lost, in microseconds.
    /// An older record of a trial is without it.
    #[serde(default)]
    copies_saved_us = |seen| seen.losses.copies_saved_us,
    /// Segments that would have had a bundle.
    held_back = |seen| seen.held_back.into(),
    /// Bytes that would have ridden along.
    held_back_bytes = |seen| seen.held_back_bytes,
    /// Bytes of payload sent for the first time.
    new_bytes = |seen| seen.counters.new_bytes,
    /// Bytes that rode along.
    redundant_bytes = |seen| seen.counters.redundant_bytes,
    /// Connections that an error has cut short, with data on its way or still to be sent.
    cut = |seen| seen.is_cut.into(),
    /// Segments lost and repaired by a bundle.
    hidden_losses = |seen| seen.counters.hidden_losses,
    /// Segments with new data, whatever became of them.
    sent = |seen| seen.counters.segments(),
    /// Of these, those sent while the stream was not thin.
    not_thin = |seen| seen.counters.of(Outcome::NotThin),
    /// Of these, those that came with nothing outstanding: no bundle could have helped.
    alone = |seen| seen.counters.of(Outcome::NothingOutstanding),
    /// Of these, those beside which no segment before had room.
    no_room = |seen| seen.counters.of(Outcome::NoRoom) + seen.counters.of(Outcome::FullSize),
    /// Of these, those to peers that offer no SACK, by which losses could be told.
    no_sack = |seen| seen.counters.of(Outcome::NoSack),
}

impl Summary {
    /// Connections that were cut short, of the number of segments that were sent.
    pub(crate) fn cut_share(&self) -> Option<f64> {
        let any = self.sent > 0 || self.cut > 0;
        any.then(|| self.cut as f64 / self.sent.max(1) as f64)
    }
}

impl AddAssign<&Summary> for Summary {
    fn add_assign(&mut self, other: &Summary) {
        self.add(other, 1);
    }
}
