//! The numbers that the programs count, of one connection and of all.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use pillion_stats::measure::share;
use serde::{Deserialize, Serialize};

use crate::contract::types;
use crate::quota::Kept;
use crate::{Companion, Error, Namespace, Outcome};

/// How a number that is kept changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The number only grows.
    Counter,
    /// The number may fall as well.
    Gauge,
}

/// A number that is kept, and all that those who show it have to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistic {
    /// The number's name; it ends in the unit where there is one: `_bytes`, or `_us` for
    /// microseconds.
    pub name: &'static str,
    /// How the number changes.
    pub kind: Kind,
    /// What the number is, in sentences.
    pub meaning: &'static str,
}

/// The statistic of a field that is documented as `meaning`, line by line.
macro_rules! statistic {
    ($name:ident: $kind:ident, $($meaning:literal)+) => {
        $crate::Statistic {
            name: stringify!($name),
            kind: $crate::Kind::$kind,
            meaning: concat!($($meaning),+).trim_ascii_start(),
        }
    };
}

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

/// What TFRC-SP compared when it was last asked about a reaction (RFC 4828).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Decision {
    /// Bytes of payload per second that the stream might send; headers are taken off.
    pub rate_allowed: u32,
    /// Bytes of payload per second that the stream did send, redundant bytes and retransmissions
    /// included, in the last second, or the last RTT if that is longer.
    pub rate_sent: u32,
}

impl Decision {
    /// `None` before the first one.
    pub(crate) fn from_raw(raw: &types::decision) -> Option<Self> {
        (raw.at > 0).then_some(Self {
            rate_allowed: raw.rate_allowed,
            rate_sent: raw.rate_sent,
        })
    }
}

/// All that follows from the list of totals; each has the name that it has in `bpf/bundler/maps.h`.
macro_rules! totals {
    ($($(#[doc = $meaning:literal])+ $name:ident: $kind:ident,)+) => {
        /// All that one pillion did, connections that ended included.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Totals {
            /// What became of all connections' segments.
            #[serde(flatten)]
            pub counters: Counters,
            $($(#[doc = $meaning])+ pub $name: u64,)+
            /// How often each companion was set on a connection, bundled or not; companions that
            /// never were are left out. A change of the rules sets them anew.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub companions_set: BTreeMap<Companion, u64>,
            /// How often the kernel refused each companion; companions never refused are left out.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub companions_refused: BTreeMap<Companion, u64>,
            /// The last decision of TFRC-SP about any connection, if there was one.
            #[serde(flatten)]
            pub decision: Option<Decision>,
        }

        impl Totals {
            /// All single numbers, each with what it is.
            pub fn statistics(&self) -> impl Iterator<Item = (Statistic, u64)> {
                let own = [$((statistic!($name: $kind, $($meaning)+), self.$name)),+];
                let counters = Counters::STATISTICS.iter().copied();
                own.into_iter().chain(counters.zip(self.counters.values()))
            }

            fn add(&mut self, raw: &types::totals) {
                // One processor may take back what another one counted.
                $(self.$name = self.$name.wrapping_add(raw.$name);)+
            }
        }
    };
}

totals! {
    /// Connections that were taken in.
    connections: Counter,
    /// Connections that were not taken in, for want of kernel memory.
    connections_refused: Counter,
    /// Times that a connection, or what its application asked for, found no place among as many
    /// as `--max-connections` allows.
    over_limit: Counter,
    /// Connections that found no place to be observed, and were therefore not bundled; 0 where
    /// nothing is observed.
    unobserved: Gauge,
}

impl Totals {
    /// Adds up what each processor counted.
    pub(crate) fn read(map: &MapHandle) -> Result<Self, Error> {
        let failed = |why: String| Error::system("read the totals", io::Error::other(why));
        let values = map
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed("the map is empty".to_owned()))?;
        let raws: Option<Vec<_>> = values.iter().map(|value| raw(value)).collect();
        let raws = raws.ok_or_else(|| failed("the map holds something else".to_owned()))?;
        Ok(Self::of(&raws))
    }

    fn of(processors: &[types::totals]) -> Self {
        let mut totals = Self::default();
        let mut last = (0, None);
        for raw in processors {
            totals.counters += &Counters::from(&raw.counters);
            for outcome in Outcome::ALL {
                let count = raw.outcomes[*outcome as usize];
                if count > 0 {
                    *totals.counters.outcomes.entry(*outcome).or_default() += count;
                }
            }
            totals.add(raw);
            add(&mut totals.companions_set, &raw.companions_set);
            add(&mut totals.companions_refused, &raw.companions_refused);
            last = last.max((raw.decision.at, Decision::from_raw(&raw.decision)));
        }
        totals.decision = last.1;
        // They are not read all at once: one may have taken back what was not yet read of another.
        let saved_us = totals.counters.saved_us.cast_signed();
        totals.counters.saved_us = saved_us.max(0).cast_unsigned();
        totals
    }
}

/// What one processor counted; `None` if it is something else.
fn raw(value: &[u8]) -> Option<types::totals> {
    let is_whole = value.len() >= size_of::<types::totals>();
    // SAFETY: plain integers, of which any bits are valid, and enough of them.
    is_whole.then(|| unsafe { value.as_ptr().cast::<types::totals>().read_unaligned() })
}

fn add(sums: &mut BTreeMap<Companion, u64>, raw: &[u64]) {
    for (companion, count) in Companion::counts(raw) {
        *sums.entry(companion).or_default() += count;
    }
}

/// What the programs of one pillion tell at any moment, from any thread.
#[derive(Debug)]
pub struct Readings {
    pub(crate) totals: MapHandle,
    pub(crate) connections: Kept,
}

impl Readings {
    /// What the programs did so far, on all connections.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to read the map.
    pub fn totals(&self) -> Result<Totals, Error> {
        Totals::read(&self.totals)
    }

    /// How many connections are covered at this moment.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to go through them.
    pub fn connections(&self) -> Result<u64, Error> {
        let kept = self.connections.read(&[Namespace::default()])?;
        // An application may keep a socket whose connection has ended.
        Ok(kept.iter().filter(|it| it.is_over == 0).count() as u64)
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

    #[test]
    fn time_that_is_taken_back_before_it_is_read_is_none() {
        let counted = |saved_us: i64| {
            let mut raw = types::totals::default();
            raw.counters.saved_us = saved_us.cast_unsigned();
            raw
        };
        for (processors, saved_us) in [([5000, -7000], 0), ([-2000, 5000], 3000)] {
            let totals = Totals::of(&processors.map(counted));
            assert_eq!(totals.counters.saved_us, saved_us);
        }
    }
}
