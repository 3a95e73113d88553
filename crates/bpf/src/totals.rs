use std::collections::BTreeMap;
use std::io;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::{Deserialize, Serialize};

use crate::contract::types;
use crate::statistic::statistic;
use crate::{Companion, Counters, Decision, Error, Outcome, Statistic};

/// All that follows from the list of totals; each has the name that it has in `bpf/bundler/flow.h`.
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

#[cfg(test)]
mod tests {
    use super::*;

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
