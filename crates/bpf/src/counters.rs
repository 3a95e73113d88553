use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::AddAssign;

use pillion_stats::measure::share;
use serde::{Deserialize, Serialize};

use crate::contract::types;
use crate::statistic::statistic;
use crate::{Outcome, Statistic};

/// All that follows from the list of counters; each has the name that it has in `bpf/bundler/flow.h`.
macro_rules! counters {
    ($($(#[doc = $meaning:literal])+ $name:ident: $kind:ident,)+) => {
        /// What became of the data segments of one connection, or of many.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            /// Segments by outcome; outcomes that never happened are left out.
            pub outcomes: BTreeMap<Outcome, u64>,
            $($(#[doc = $meaning])+ pub $name: u64,)+
        }

        impl Counters {
            /// The names of all counters but the outcomes.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// What each counter but the outcomes is, in the same order.
            pub const STATISTICS: &[Statistic] = &[$(statistic!($name: $kind, $($meaning)+)),+];

            /// The values of all counters but the outcomes, in the order of [`Counters::NAMES`].
            #[must_use]
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                [$(self.$name),+]
            }
        }

        impl AddAssign<&Self> for Counters {
            fn add_assign(&mut self, other: &Self) {
                for (outcome, count) in &other.outcomes {
                    *self.outcomes.entry(*outcome).or_default() += count;
                }
                // One processor may take back what another one has counted.
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }

        impl From<&types::counters> for Counters {
            fn from(raw: &types::counters) -> Self {
                let count = |outcome: &Outcome| u64::from(raw.outcomes[*outcome as usize]);
                let outcomes = Outcome::ALL.iter().map(|outcome| (*outcome, count(outcome)));
                Self {
                    outcomes: outcomes.filter(|(_, count)| *count > 0).collect(),
                    $($name: raw.$name,)+
                }
            }
        }
    };
}

counters! {
    /// Bytes of payload sent for the first time.
    new_bytes: Counter,
    /// Bytes of payload that rode along with new data, or with a retransmission.
    redundant_bytes: Counter,
    /// Segments that were lost and that a bundle repaired, as far as ACKs tell.
    hidden_losses: Counter,
    /// Payload in bytes of the segments that were lost and that a bundle repaired.
    repaired_bytes: Counter,
    /// Segments that were lost and that rode along with the retransmission of another, as
    /// far as ACKs tell.
    repaired_along: Counter,
    /// Time by which bundles left sooner than retransmissions would have, all segments
    /// together: an estimate that is never too high for one that was lost
    /// (docs/bundling.md, "Time saved"). It falls where one deemed lost comes late.
    saved_us: Gauge,
    /// Window reductions that the kernel was asked for. One that it did not hear, for it refused the
    /// packet with an error, is asked for again and counts again.
    reactions: Counter,
    /// Window reductions that were not asked for, for TFRC-SP found no reason.
    reactions_spared: Counter,
    /// Segments deemed lost that came late.
    reordered: Counter,
    /// Reports of duplicates (DSACK) that bundles caused, taken out of ACKs.
    dsacks_hidden: Counter,
    /// ACKs dropped because taking out a report failed half-way.
    acks_dropped: Counter,
    /// ACKs of which it is not known what they report: their options make no sense, or
    /// another processor was at work on one for too long.
    acks_unread: Counter,
}

impl Counters {
    /// Segments with one outcome.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    /// Why segments were sent as they are, and how many for each reason: the most frequent first.
    #[must_use]
    pub fn not_bundled(&self) -> Vec<(Outcome, u64)> {
        let bundled = [Outcome::Bundled, Outcome::RetransmissionBundled];
        let all = self
            .outcomes
            .iter()
            .map(|(outcome, count)| (*outcome, *count));
        let mut others: Vec<_> = all.filter(|(it, _)| !bundled.contains(it)).collect();
        others.sort_by_key(|(_, count)| Reverse(*count));
        others
    }

    /// Segments with new data, as far as they could be read.
    #[must_use]
    pub fn segments(&self) -> u64 {
        let others = [
            Outcome::OldData,
            Outcome::RetransmissionBundled,
            Outcome::NotPlainIp,
        ];
        let others: u64 = others.map(|outcome| self.of(outcome)).iter().sum();
        self.outcomes.values().sum::<u64>() - others
    }

    /// Bytes that rode along as a share of new ones and these, 0 to 1. Retransmissions do not count, which
    /// the redundant share of a trace has.
    #[must_use]
    pub fn bundled_share(&self) -> f64 {
        let all = self.new_bytes + self.redundant_bytes;
        share(self.redundant_bytes, all).unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_are_not_new_segments() {
        let mut raw = types::counters {
            new_bytes: 300,
            redundant_bytes: 100,
            ..Default::default()
        };
        raw.outcomes[Outcome::Bundled as usize] = 3;
        raw.outcomes[Outcome::OldData as usize] = 2;
        raw.outcomes[Outcome::RetransmissionBundled as usize] = 1;
        let counters = Counters::from(&raw);
        assert_eq!(counters.segments(), 3);
        assert_eq!(counters.not_bundled(), [(Outcome::OldData, 2)]);
        assert!((counters.bundled_share() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn one_processor_may_take_back_what_another_counted() {
        let counted = |saved_us: u64| {
            Counters::from(&types::counters {
                saved_us,
                ..Default::default()
            })
        };
        let mut all = Counters::default();
        for saved_us in [2000_u64.wrapping_neg(), 5000] {
            all += &counted(saved_us);
        }
        assert_eq!(all.saved_us, 3000);
    }

    #[test]
    fn nothing_sent_means_nothing_redundant() {
        assert_eq!(
            Counters::default().bundled_share().to_bits(),
            0f64.to_bits()
        );
    }
}
