//! The numbers that the programs count, of one connection and of all.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::ops::AddAssign;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use pillion_stats::measure::share;
use serde::{Deserialize, Serialize};

use crate::contract::types;
use crate::quota::SocketEntries;
use crate::{Error, Namespace, Outcome, TcpOption};

/// How a stored number changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticKind {
    /// The number only grows.
    Counter,
    /// The number may fall as well.
    Gauge,
}

/// A number with its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statistic {
    /// The number's name; it ends in the unit where there is one: `_bytes`, or `_us` for
    /// microseconds.
    pub name: &'static str,
    /// How the number changes.
    pub kind: StatisticKind,
    /// Description of the number, in sentences.
    pub description: &'static str,
}

/// The statistic of a field that is documented as `description`, line by line.
macro_rules! statistic {
    ($name:ident: $kind:ident, $($description:literal)+) => {
        $crate::Statistic {
            name: stringify!($name),
            kind: $crate::StatisticKind::$kind,
            description: concat!($($description),+).trim_ascii_start(),
        }
    };
}

/// All that follows from the list of counters; each has the name that it has in `bpf/bundler/flow.h`.
macro_rules! counters {
    ($($(#[doc = $description:literal])+ $name:ident: $kind:ident,)+) => {
        /// Outcomes and counters of the data segments of one connection, or of many.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Counters {
            /// Segments by outcome; outcomes that never happened are left out.
            pub outcomes: BTreeMap<Outcome, u64>,
            $($(#[doc = $description])+ pub $name: u64,)+
        }

        impl Counters {
            /// The names of all counters but the outcomes.
            pub const NAMES: &[&str] = &[$(stringify!($name)),+];

            /// The description of each counter except the outcomes, in the same order.
            pub const STATISTICS: &[Statistic] = &[$(statistic!($name: $kind, $($description)+)),+];

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
    /// Bytes of payload bundled with new data, or with a retransmission.
    redundant_bytes: Counter,
    /// Lost segments that a bundle repaired, as shown by ACKs.
    hidden_losses: Counter,
    /// Payload in bytes of the segments that were lost and that a bundle repaired.
    repaired_bytes: Counter,
    /// Lost segments that were bundled into the retransmission of another, as shown by ACKs.
    piggyback_repaired_segments: Counter,
    /// Time by which bundles left earlier than retransmissions would have, in total: a lower bound
    /// for each lost segment (docs/reference/bundling.md, "Time saved"). It falls when a segment counted as
    /// lost arrives late.
    time_saved_us: Gauge,
    /// Window reductions requested from the kernel. A request that is repeated because the kernel
    /// rejected its packet counts once.
    reactions: Counter,
    /// Window reductions that were not requested, because TFRC-SP found no reason.
    reactions_suppressed: Counter,
    /// Segments counted as lost that arrived later.
    reordered: Counter,
    /// Reports of duplicates (DSACK) that bundles caused, taken out of ACKs.
    dsacks_removed: Counter,
    /// ACKs dropped because taking out a report failed half-way.
    acks_dropped: Counter,
    /// ACKs whose reports are unknown: their options are invalid, or another processor held the
    /// connection's lock for too long.
    acks_unparsed: Counter,
    /// Packets that were sent again at once, as copies.
    copies: Counter,
    /// Packets that were lost while another copy of them arrived: an estimate from the reports of
    /// duplicates.
    copy_losses: Counter,
}

impl Counters {
    /// Segments with one outcome.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    /// Lowers the number of segments with one outcome to a maximum.
    pub(crate) fn limit(&mut self, outcome: Outcome, max: u64) {
        let count = self.of(outcome).min(max);
        self.outcomes.remove(&outcome);
        self.outcomes
            .extend((count > 0).then_some((outcome, count)));
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
            Outcome::Retransmission,
            Outcome::RetransmissionBundled,
            Outcome::UnparsedIp,
        ];
        let others: u64 = others.map(|outcome| self.of(outcome)).iter().sum();
        self.outcomes.values().sum::<u64>() - others
    }

    /// Redundant bytes as a share of new and redundant ones, 0 to 1. Retransmissions are not
    /// included, unlike in the redundant share of a trace.
    #[must_use]
    pub fn bundled_share(&self) -> f64 {
        let all = self.new_bytes + self.redundant_bytes;
        share(self.redundant_bytes, all).unwrap_or(0.0)
    }
}

/// The rates that TFRC-SP compared at the last decision about a reaction (RFC 4828).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TfrcDecision {
    /// Bytes of payload per second that the stream might send; headers are taken off.
    pub tfrc_allowed_bytes_per_s: u32,
    /// Bytes of payload per second that the stream did send, redundant bytes and retransmissions
    /// included, in the last second, or the last RTT if that is longer.
    pub tfrc_sent_bytes_per_s: u32,
}

impl TfrcDecision {
    /// `None` before the first one.
    pub(crate) fn from_raw(raw: &types::tfrc_decision) -> Option<Self> {
        (raw.at > 0).then_some(Self {
            tfrc_allowed_bytes_per_s: raw.tfrc_allowed_bytes_per_s,
            tfrc_sent_bytes_per_s: raw.tfrc_sent_bytes_per_s,
        })
    }
}

/// All that follows from the list of totals; each has the name that it has in `bpf/bundler/maps.h`.
macro_rules! totals {
    ($($(#[doc = $description:literal])+ $name:ident: $kind:ident,)+) => {
        /// All that one pillion did, connections that ended included.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Totals {
            /// Outcomes and counters of all connections' segments.
            #[serde(flatten)]
            pub counters: Counters,
            $($(#[doc = $description])+ pub $name: u64,)+
            /// Times that each TCP option was set on a connection, bundled or not, without zeros. A
            /// change of the rules sets them again.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub tcp_options_set: BTreeMap<TcpOption, u64>,
            /// Times that the kernel refused each TCP option, without zeros.
            #[serde(skip_serializing_if = "BTreeMap::is_empty")]
            pub tcp_options_refused: BTreeMap<TcpOption, u64>,
            /// The last decision of TFRC-SP about any connection, if there was one.
            #[serde(flatten)]
            pub tfrc_decision: Option<TfrcDecision>,
        }

        impl Totals {
            /// All single numbers, each with its description.
            pub fn statistics(&self) -> impl Iterator<Item = (Statistic, u64)> {
                let own = [$((statistic!($name: $kind, $($description)+), self.$name)),+];
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
    connections_failed: Counter,
    /// Connections, and requests of applications, that got no slot within `--max-connections`.
    /// Those of each reload are included, later retries are not.
    connection_limit_hits: Counter,
    /// Connections without an observation slot, which were therefore not bundled; 0 without
    /// observation.
    unobserved: Gauge,
    /// Copies that a device's queue did not accept.
    copies_refused: Counter,
    /// Segments that left without copies, because the caps on redundancy are reached, or the limit
    /// of isolated copies to a network.
    copies_capped: Counter,
}

impl Totals {
    /// Adds up what each processor counted.
    pub(crate) fn read(map: &MapHandle) -> Result<Self, Error> {
        let failed = |reason: String| Error::system("read the totals", io::Error::other(reason));
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
            add(&mut totals.tcp_options_set, &raw.tcp_options_set);
            add(&mut totals.tcp_options_refused, &raw.tcp_options_refused);
            last = last.max((
                raw.tfrc_decision.at,
                TfrcDecision::from_raw(&raw.tfrc_decision),
            ));
        }
        totals.tfrc_decision = last.1;
        // Processors are read one after another, so a subtraction may be read before its addition.
        let time_saved_us = totals.counters.time_saved_us.cast_signed();
        totals.counters.time_saved_us = time_saved_us.max(0).cast_unsigned();
        totals
    }
}

/// The totals of one processor; `None` if the size is wrong.
fn raw(value: &[u8]) -> Option<types::totals> {
    let is_whole = value.len() >= size_of::<types::totals>();
    // SAFETY: plain integers, of which any bits are valid, and enough of them.
    is_whole.then(|| unsafe { value.as_ptr().cast::<types::totals>().read_unaligned() })
}

fn add(sums: &mut BTreeMap<TcpOption, u64>, raw: &[u64]) {
    for (tcp_option, count) in TcpOption::counts(raw) {
        *sums.entry(tcp_option).or_default() += count;
    }
}

/// The covered connections at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ActiveConnections {
    /// Their number.
    pub count: u64,
    /// The [`RTT_QUANTILES`] of TCP's smoothed RTT in microseconds; 0 without a sample.
    pub rtt_us: [u32; RTT_QUANTILES.len()],
    /// The [`RTT_QUANTILES`] of TCP's minimum RTT in microseconds; 0 without a sample.
    pub min_rtt_us: [u32; RTT_QUANTILES.len()],
}

/// The quantiles of [`ActiveConnections`].
pub const RTT_QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Nearest-rank quantiles; 0 without values.
fn quantiles(mut values: Vec<u32>) -> [u32; RTT_QUANTILES.len()] {
    values.sort_unstable();
    RTT_QUANTILES.map(|quantile| {
        let rank = (values.len() as f64 * quantile).ceil() as usize;
        values.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    })
}

/// Reads the totals of one pillion at any time, from any thread.
#[derive(Debug)]
pub struct TotalsReader {
    pub(crate) totals: MapHandle,
    pub(crate) connections: SocketEntries,
}

impl TotalsReader {
    /// Reads the totals over all connections.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the kernel refuses to read the map.
    pub fn totals(&self) -> Result<Totals, Error> {
        Totals::read(&self.totals)
    }

    /// The connections that are covered at this moment.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses to go through them.
    pub fn connections(&self) -> Result<ActiveConnections, Error> {
        let mut entries = self.connections.read(&[Namespace::default()])?;
        // An application may hold a socket whose connection has ended.
        entries.retain(|it| it.has_ended == 0);
        let with_rtt = entries.iter().filter(|it| it.rtt_us > 0);
        Ok(ActiveConnections {
            count: entries.len() as u64,
            rtt_us: quantiles(with_rtt.clone().map(|it| it.rtt_us).collect()),
            min_rtt_us: quantiles(with_rtt.map(|it| it.rtt_min_us).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmissions_are_not_counted_as_segments() {
        let mut raw = types::counters {
            new_bytes: 300,
            redundant_bytes: 100,
            ..Default::default()
        };
        raw.outcomes[Outcome::Bundled as usize] = 3;
        raw.outcomes[Outcome::Retransmission as usize] = 2;
        raw.outcomes[Outcome::RetransmissionBundled as usize] = 1;
        let counters = Counters::from(&raw);
        assert_eq!(counters.segments(), 3);
        assert_eq!(counters.not_bundled(), [(Outcome::Retransmission, 2)]);
        assert!((counters.bundled_share() - 0.25).abs() < 1e-9);
    }

    #[test]
    fn negative_per_cpu_counts_are_summed() {
        let with_time_saved = |time_saved_us: u64| {
            Counters::from(&types::counters {
                time_saved_us,
                ..Default::default()
            })
        };
        let mut all = Counters::default();
        for time_saved_us in [2000_u64.wrapping_neg(), 5000] {
            all += &with_time_saved(time_saved_us);
        }
        assert_eq!(all.time_saved_us, 3000);
    }

    #[test]
    fn quantiles_are_nearest_ranks_or_zero() {
        assert_eq!(quantiles(vec![]), [0; 3]);
        assert_eq!(quantiles(vec![7]), [7; 3]);
        assert_eq!(quantiles((1..=100).rev().collect()), [50, 90, 99]);
    }

    #[test]
    fn bundled_share_without_traffic_is_zero() {
        assert_eq!(
            Counters::default().bundled_share().to_bits(),
            0f64.to_bits()
        );
    }

    #[test]
    fn negative_time_saved_is_reported_as_zero() {
        let with_time_saved = |time_saved_us: i64| {
            let mut raw = types::totals::default();
            raw.counters.time_saved_us = time_saved_us.cast_unsigned();
            raw
        };
        for (processors, time_saved_us) in [([5000, -7000], 0), ([-2000, 5000], 3000)] {
            let totals = Totals::of(&processors.map(with_time_saved));
            assert_eq!(totals.counters.time_saved_us, time_saved_us);
        }
    }
}
