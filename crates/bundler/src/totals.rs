use std::collections::BTreeMap;
use std::io;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::contract::types;
use crate::{Companion, Counters, Decision, Error};

/// All that one pillion did, connections that ended included.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// What became of all connections' segments.
    #[serde(flatten)]
    pub counters: Counters,
    /// Connections that were taken in.
    pub connections: u64,
    /// Connections that were not taken in, for want of kernel memory.
    pub connections_refused: u64,
    /// Times that a connection, or what its application asked for, found no place among as many
    /// as [`Policy::max_connections`](crate::Policy::max_connections) allows.
    pub over_limit: u64,
    /// Connections that found no place to be observed, and were therefore not bundled; 0 where
    /// nothing is observed ([`Policy::observing`](crate::Policy::observing)).
    #[serde(skip_serializing_if = "is_zero")]
    pub unobserved: u64,
    /// How often each companion was set on a connection, bundled or not; companions that never were
    /// are left out. A change of the rules sets them anew.
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
    /// Adds up what each processor counted.
    pub(crate) fn read(map: &MapHandle) -> Result<Self, Error> {
        let failed = |why: String| Error::system("read the totals", io::Error::other(why));
        let values = map
            .lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed("the map is empty".to_owned()))?;
        let mut totals = Self::default();
        let mut last = (0, None);
        for value in &values {
            if value.len() < size_of::<types::totals>() {
                return Err(failed("the map holds something else".to_owned()));
            }
            // SAFETY: plain integers, of which any bits are valid, and enough of them.
            let raw = unsafe { value.as_ptr().cast::<types::totals>().read_unaligned() };
            totals.counters += &Counters::from(&raw.counters);
            totals.connections += raw.connections;
            totals.connections_refused += raw.connections_refused;
            totals.over_limit += raw.over_limit;
            // One processor may take back what another counted.
            totals.unobserved = totals.unobserved.wrapping_add(raw.unobserved);
            add(&mut totals.companions_set, &raw.companions_set);
            add(&mut totals.companions_refused, &raw.companions_refused);
            last = last.max((raw.decision.at, Decision::of_totals(&raw.decision)));
        }
        totals.decision = last.1;
        Ok(totals)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn add(sums: &mut BTreeMap<Companion, u64>, raw: &[u64]) {
    for (companion, count) in Companion::counts(raw) {
        *sums.entry(companion).or_default() += count;
    }
}
