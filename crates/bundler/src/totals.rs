use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde::Serialize;

use crate::contract::{flow_types, types};
use crate::{Companion, Decision, Error, Verdict};

/// What became of the data segments of one connection, or of many.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Segments by verdict; those that never happened are left out.
    pub verdicts: BTreeMap<Verdict, u64>,
    /// Bytes of payload sent for the first time.
    pub new_bytes: u64,
    /// Bytes of payload that rode along with new data, or with a retransmission.
    pub redundant_bytes: u64,
    /// Segments that were lost and that a bundle repaired, as far as ACKs tell.
    pub hidden_losses: u64,
    /// Their payload in bytes.
    pub repaired_bytes: u64,
    /// Segments that were lost and that rode along with the retransmission of another, as
    /// far as ACKs tell.
    pub repaired_along: u64,
    /// Microseconds by which bundles left sooner than retransmissions would have, all
    /// segments together: an estimate that is never too high for one that was lost
    /// (docs/bundling.md, "Time saved"). It falls where one deemed lost comes late.
    pub saved_us: u64,
    /// Window reductions that the kernel was asked for.
    pub reactions: u64,
    /// Those that were not asked for, for TFRC-SP found no reason.
    pub reactions_spared: u64,
    /// Segments deemed lost that came late.
    pub reordered: u64,
    /// Reports of duplicates (DSACK) that bundles caused, taken out of ACKs.
    pub reports: u64,
    /// ACKs dropped because taking out a report failed half-way.
    pub acks_dropped: u64,
    /// ACKs of which it is not known what they report: their options make no sense, or
    /// another processor was at work on one for too long.
    pub acks_unread: u64,
}

impl Counters {
    /// Segments with one verdict.
    #[must_use]
    pub fn of(&self, verdict: Verdict) -> u64 {
        self.verdicts.get(&verdict).copied().unwrap_or(0)
    }

    /// Segments with new data, as far as they could be read.
    #[must_use]
    pub fn segments(&self) -> u64 {
        let others = [
            Verdict::OldData,
            Verdict::RetransmissionBundled,
            Verdict::NotPlainIp,
        ];
        let others: u64 = others.map(|verdict| self.of(verdict)).iter().sum();
        self.verdicts.values().sum::<u64>() - others
    }

    /// Redundant bytes as a share of new and redundant ones, 0 to 1.
    #[must_use]
    pub fn redundant_share(&self) -> f64 {
        match self.new_bytes + self.redundant_bytes {
            0 => 0.0,
            all => self.redundant_bytes as f64 / all as f64,
        }
    }
}

/// Each of the two skeletons has a type of its own for the one C struct.
macro_rules! from_raw {
    ($($raw:ty),*) => {
        $(impl From<&$raw> for Counters {
            fn from(raw: &$raw) -> Self {
                let count = |verdict: &Verdict| raw.verdicts[*verdict as usize];
                let verdicts = Verdict::ALL.iter().map(|verdict| (*verdict, count(verdict)));
                Self {
                    verdicts: verdicts.filter(|(_, count)| *count > 0).collect(),
                    new_bytes: raw.new_bytes,
                    redundant_bytes: raw.redundant_bytes,
                    hidden_losses: raw.hidden_losses,
                    repaired_bytes: raw.repaired_bytes,
                    repaired_along: raw.repaired_along,
                    saved_us: raw.saved_us,
                    reactions: raw.reactions,
                    reactions_spared: raw.reactions_spared,
                    reordered: raw.reordered,
                    reports: raw.reports,
                    acks_dropped: raw.acks_dropped,
                    acks_unread: raw.acks_unread,
                }
            }
        })*
    };
}

from_raw!(types::counters, flow_types::counters);

impl AddAssign<&Self> for Counters {
    fn add_assign(&mut self, other: &Self) {
        for (verdict, count) in &other.verdicts {
            *self.verdicts.entry(*verdict).or_default() += count;
        }
        self.new_bytes += other.new_bytes;
        self.redundant_bytes += other.redundant_bytes;
        self.hidden_losses += other.hidden_losses;
        self.repaired_bytes += other.repaired_bytes;
        self.repaired_along += other.repaired_along;
        // One processor may take back what another one has counted.
        self.saved_us = self.saved_us.wrapping_add(other.saved_us);
        self.reactions += other.reactions;
        self.reactions_spared += other.reactions_spared;
        self.reordered += other.reordered;
        self.reports += other.reports;
        self.acks_dropped += other.acks_dropped;
        self.acks_unread += other.acks_unread;
    }
}

/// All that one pillion did, connections that ended included.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Totals {
    /// The segments.
    #[serde(flatten)]
    pub counters: Counters,
    /// Connections that were taken in.
    pub connections: u64,
    /// Connections that should have been, but for want of kernel memory.
    pub connections_refused: u64,
    /// Times that a connection, or what its application asked for, found no place among as many
    /// as [`Policy::max_connections`](crate::Policy::max_connections) allows.
    pub over_limit: u64,
    /// How often companions were set on a connection, bundled or not; those that never were
    /// are left out. A change of the rules sets them anew.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub companions_set: BTreeMap<Companion, u64>,
    /// How often the kernel refused them.
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
            add(&mut totals.companions_set, &raw.companions_set);
            add(&mut totals.companions_refused, &raw.companions_refused);
            last = last.max((raw.decision.at, Decision::of_totals(&raw.decision)));
        }
        totals.decision = last.1;
        Ok(totals)
    }
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
    fn retransmissions_are_not_new_segments() {
        let mut raw = types::counters {
            new_bytes: 300,
            redundant_bytes: 100,
            ..Default::default()
        };
        raw.verdicts[Verdict::Bundled as usize] = 3;
        raw.verdicts[Verdict::OldData as usize] = 2;
        raw.verdicts[Verdict::RetransmissionBundled as usize] = 1;
        let counters = Counters::from(&raw);
        assert_eq!(counters.segments(), 3);
        assert!((counters.redundant_share() - 0.25).abs() < 1e-9);
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
            Counters::default().redundant_share().to_bits(),
            0f64.to_bits()
        );
    }
}
