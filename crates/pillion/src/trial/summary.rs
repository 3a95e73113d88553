//! Sums of observations, and the measures computed from them.

use std::ops::AddAssign;

use pillion_bpf::{LatencyBuckets, Observation, Outcome};
use pillion_stats::measure::{Measure, Unit, nearest_rank, share};
use serde::{Deserialize, Serialize};

macro_rules! summary {
    ($($(#[$doc:meta])* $name:ident = $of:expr,)+) => {
        /// Sum of the observations of several connections.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub struct Summary {
            $($(#[$doc])* pub $name: u64,)+
            /// Segments by ACK latency.
            pub latencies: Latencies,
        }

        impl Summary {
            /// Adds another summary `times` times.
            pub(crate) fn add(&mut self, other: &Self, times: u64) {
                $(self.$name = self.$name.saturating_add(other.$name.saturating_mul(times));)+
                self.latencies.add(&other.latencies, times);
            }
        }

        impl From<&Observation> for Summary {
            fn from(observation: &Observation) -> Self {
                $(let of: fn(&Observation) -> u64 = $of;
                let $name = of(observation);)+
                Self {
                    $($name,)+
                    latencies: (&observation.latencies).into(),
                }
            }
        }
    };
}

summary! {
    /// Number of connections.
    connections = |_| 1,
    /// New segments that were acknowledged with a known ACK latency.
    segments = |observation| observation.segments,
    /// Sum of ACK latencies, in microseconds.
    latency_us = |observation| observation.latency_us,
    /// Sum of the waiting times beyond the minimum RTT, in microseconds.
    waited_us = |observation| observation.waited_us,
    /// Sum of the waiting times beyond the minimum RTT and the grace, in microseconds.
    late_us = |observation| observation.late_us,
    /// Segments that waited longer than the minimum RTT and the grace.
    late = |observation| observation.late.into(),
    /// Segments that waited longer than the stall threshold.
    stalls = |observation| observation.stalls.into(),
    /// Expirations of TCP's retransmission timer.
    timeouts = |observation| observation.timeouts.into(),
    /// Expirations of that timer without back-off, and tail loss probes of a single packet.
    rto_expirations = |observation| observation.rto_expirations.into(),
    /// Time until these expirations, in milliseconds.
    rto_ms = |observation| observation.rto_ms.into(),
    /// Time by which they would have come earlier with a minimum RTO of 20 ms, in milliseconds.
    rto_min_20_saved_ms = |observation| observation.rto_mins[0].saved_ms.into(),
    /// Segments that this minimum would have retransmitted needlessly.
    rto_min_20_needless = |observation| observation.rto_mins[0].needless.into(),
    /// As `rto_min_20_saved_ms`, with 40 ms.
    rto_min_40_saved_ms = |observation| observation.rto_mins[1].saved_ms.into(),
    /// As `rto_min_20_needless`, with 40 ms.
    rto_min_40_needless = |observation| observation.rto_mins[1].needless.into(),
    /// As `rto_min_20_saved_ms`, with 80 ms.
    rto_min_80_saved_ms = |observation| observation.rto_mins[2].saved_ms.into(),
    /// As `rto_min_20_needless`, with 80 ms.
    rto_min_80_needless = |observation| observation.rto_mins[2].needless.into(),
    /// Packets retransmitted after time-outs.
    after_timeout = |observation| observation.retransmitted.after_timeout.into(),
    /// Packets retransmitted by fast retransmit.
    fast = |observation| observation.retransmitted.fast.into(),
    /// Packets retransmitted as tail loss probes.
    probes = |observation| observation.retransmitted.probes.into(),
    /// Segments that TCP retransmitted.
    lost = |observation| observation.losses.segments.into(),
    /// Retransmissions that the receiver reported as duplicates, part of `lost`.
    spurious = |observation| observation.losses.spurious.into(),
    /// Lost segments, without `spurious`, that a bundle or copy would have repaired.
    repairable_segments = |observation| observation.losses.repairable.into(),
    /// Lost segments that would have had neither bundle nor copy, part of `lost`.
    uncovered = |observation| observation.losses.uncovered.into(),
    /// Time by which bundles and copies would have delivered bytes earlier after they were sent, in
    /// microseconds times bytes.
    time_saved_byte_us = |observation| observation.losses.time_saved_byte_us,
    /// The same for a copy of each segment, if no copy were lost.
    copies_time_saved_byte_us = |observation| observation.losses.copies_time_saved_byte_us,
    /// Waits of bytes beyond the minimum RTT, in microseconds times bytes.
    waited_byte_us = |observation| observation.waited_byte_us,
    /// Waits of bytes in the socket before they were sent, in microseconds times bytes.
    unsent_byte_us = |observation| observation.unsent_byte_us,
    /// Part of `unsent_byte_us` that Nagle's algorithm caused.
    nagle_byte_us = |observation| observation.nagle_byte_us,
    /// Part of `unsent_byte_us` while losses had reduced the congestion window.
    reduced_byte_us = |observation| observation.reduced_byte_us,
    /// Segments whose bundle was suppressed.
    suppressed_segments = |observation| observation.suppressed.into(),
    /// Suppressed copies.
    suppressed_copies = |observation| observation.suppressed_copies.into(),
    /// Bytes of the suppressed bundles and copies.
    suppressed_bytes = |observation| observation.suppressed_bytes,
    /// Bytes of payload sent for the first time.
    new_bytes = |observation| observation.counters.new_bytes,
    /// Bytes added by bundles.
    redundant_bytes = |observation| observation.counters.redundant_bytes,
    /// Connections ended by an error with data in flight or unsent.
    cut = |observation| observation.is_aborted.into(),
    /// Lost segments that a bundle repaired.
    hidden_losses = |observation| observation.counters.hidden_losses,
    /// Segments with new data, with any outcome.
    sent = |observation| observation.counters.segments(),
    /// Segments sent while the stream was not thin, part of `sent`.
    not_thin = |observation| observation.counters.of(Outcome::NotThin),
    /// Segments sent with nothing outstanding, which no bundle can help; part of `sent`.
    nothing_outstanding = |observation| observation.counters.of(Outcome::NothingOutstanding),
    /// Segments without room for a previous one, part of `sent`.
    no_room = |observation| observation.counters.of(Outcome::NoRoom) + observation.counters.of(Outcome::FullSize),
    /// Segments to peers without SACK, by which losses are detected; part of `sent`.
    no_sack = |observation| observation.counters.of(Outcome::NoSack),
}

impl Summary {
    /// Returns connections ended by an error per segment sent; `None` without either.
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

/// Segments by ACK latency, in the buckets of the eBPF program. Each bucket is at most an eighth
/// wider than the previous one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
pub struct Latencies([u64; LatencyBuckets::COUNT]);

/// Maximum count of a bucket, so that the sum of all buckets does not overflow.
const MAX_BUCKET_COUNT: u64 = u64::MAX / LatencyBuckets::COUNT as u64;

impl Default for Latencies {
    fn default() -> Self {
        Self([0; LatencyBuckets::COUNT])
    }
}

/// Pairs of bucket number and count. Unknown bucket numbers are dropped.
impl From<Vec<(usize, u64)>> for Latencies {
    fn from(buckets: Vec<(usize, u64)>) -> Self {
        let mut all = Self::default();
        for (bucket, count) in buckets {
            if let Some(total) = all.0.get_mut(bucket) {
                *total = total.saturating_add(count).min(MAX_BUCKET_COUNT);
            }
        }
        all
    }
}

impl From<Latencies> for Vec<(usize, u64)> {
    fn from(latencies: Latencies) -> Self {
        let buckets = latencies.0.into_iter().enumerate();
        buckets.filter(|(_, count)| *count > 0).collect()
    }
}

impl From<&LatencyBuckets> for Latencies {
    fn from(buckets: &LatencyBuckets) -> Self {
        let mut all = Self::default();
        for (total, count) in all.0.iter_mut().zip(buckets.counts()) {
            *total = u64::from(*count);
        }
        all
    }
}

impl Latencies {
    /// Adds another histogram `times` times.
    pub(crate) fn add(&mut self, other: &Self, times: u64) {
        for (total, count) in self.0.iter_mut().zip(&other.0) {
            *total = total
                .saturating_add(count.saturating_mul(times))
                .min(MAX_BUCKET_COUNT);
        }
    }

    /// Returns the `q` quantile in milliseconds, by [`nearest_rank`] and linear interpolation
    /// within the bucket. `None` without segments.
    #[must_use]
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = nearest_rank(q, self.0.iter().sum())?;
        let mut below = 0;
        let position = self.0.iter().enumerate().find_map(|(bucket, count)| {
            below += count;
            (below >= rank).then(|| (bucket, (count - (below - rank)) as f64 / *count as f64))
        });
        position.map(|(bucket, share)| {
            let [start, end] = [bucket, bucket + 1].map(LatencyBuckets::start_us);
            (start as f64 + (end - start) as f64 * share) / 1e3
        })
    }

    /// Returns the cumulative distribution: the upper end of each bucket in milliseconds and the
    /// share of segments up to it. Empty buckets are omitted.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let all: u64 = self.0.iter().sum();
        let mut below = 0;
        let mut points = Vec::new();
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            below += count;
            let end_ms = LatencyBuckets::start_us(bucket + 1) as f64 / 1e3;
            points.push((end_ms, below as f64 / all as f64));
        }
        points
    }
}

/// Formula of a measure; `None` if a summary has no value.
pub type Formula = fn(&Summary) -> Option<f64>;

const fn measure(
    name: &'static str,
    label: &'static str,
    unit: Unit,
    meaning: &'static str,
    of: Formula,
) -> Measure<Formula> {
    Measure {
        name,
        label,
        unit,
        meaning,
        of,
    }
}

fn per_segment(part: u64, summary: &Summary) -> Option<f64> {
    share(part, summary.segments)
}

/// Average time that a segment waited for its ACK beyond the minimum RTT and the grace.
pub const LATENESS_MS: Formula = |all| per_segment(all.late_us, all).map(|us| us / 1e3);

/// Measures that both commands report. The first one is what a message waits; lateness and `cut_share`
/// decide a trial.
pub const MEASURES: [Measure<Formula>; 11] = [
    measure(
        "wait_ms",
        "wait",
        Unit::Milliseconds,
        "average time that a byte waited in the socket, and for its ACK beyond the minimum RTT",
        |all| {
            let [waited_us, unsent_us] = [all.waited_byte_us, all.unsent_byte_us]
                .map(|byte_us| share(byte_us, all.new_bytes));
            // Waits for the ACK are known of acknowledged segments only.
            let per_acknowledged = per_segment(all.sent, all)?;
            Some((waited_us? * per_acknowledged + unsent_us?) / 1e3)
        },
    ),
    measure(
        "late_ms",
        "lateness",
        Unit::Milliseconds,
        "average time that a segment waited for its ACK beyond the minimum RTT and the grace",
        LATENESS_MS,
    ),
    measure(
        "ack_latency_ms_p50",
        "ACK latency, p50",
        Unit::Milliseconds,
        "50 % of the segments were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.5),
    ),
    measure(
        "ack_latency_ms_p90",
        "ACK latency, p90",
        Unit::Milliseconds,
        "90 % of the segments were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.9),
    ),
    measure(
        "ack_latency_ms_p99",
        "ACK latency, p99",
        Unit::Milliseconds,
        "99 % of the segments were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.99),
    ),
    measure(
        "ack_latency_ms_p999",
        "ACK latency, p99.9",
        Unit::Milliseconds,
        "99.9 % of the segments were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.999),
    ),
    measure(
        "stall_share",
        "stalls",
        Unit::Share,
        "segments whose ACK latency exceeded the stall threshold",
        |all| per_segment(all.stalls, all),
    ),
    measure(
        "timeout_share",
        "time-outs",
        Unit::Share,
        "expirations of TCP's retransmission timer per segment",
        |all| per_segment(all.timeouts, all),
    ),
    measure(
        "retransmitted_share",
        "retransmitted",
        Unit::Share,
        "packets that TCP retransmitted, per segment",
        |all| {
            let all_kinds = all
                .after_timeout
                .saturating_add(all.fast)
                .saturating_add(all.probes);
            per_segment(all_kinds, all)
        },
    ),
    measure(
        "cut_share",
        "cut short",
        Unit::Share,
        "connections that ended by an error with data in flight or unsent, per segment sent",
        Summary::cut_share,
    ),
    measure(
        "added_share",
        "bytes added",
        Unit::Share,
        "redundant bytes, as a share of the payload sent for the first time",
        |all| share(all.redundant_bytes, all.new_bytes),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_lies_in_bucket_of_its_rank() {
        let latencies = Latencies::from(vec![(1, 3), (9, 1)]);
        let quantiles = [0.0, 0.75, 0.76, 1.0].map(|q| latencies.quantile_ms(q).unwrap());
        // Buckets from 128 to 144 µs, and from 256 to 288 µs.
        assert!((quantiles[0] - 0.1333).abs() < 1e-3);
        let rest = [0.144, 0.288, 0.288];
        assert!(
            quantiles[1..]
                .iter()
                .zip(rest)
                .all(|(q, ms)| (q - ms).abs() < 1e-9)
        );
        assert_eq!(Latencies::default().quantile_ms(0.5), None);
    }

    #[test]
    fn latencies_survive_serialisation() {
        let latencies = Latencies::from(vec![(0, 7), (168, 1)]);
        let text = serde_json::to_string(&latencies).unwrap();
        assert_eq!(text, "[[0,7],[168,1]]");
        assert_eq!(serde_json::from_str::<Latencies>(&text).unwrap(), latencies);
        assert_eq!(
            serde_json::from_str::<Latencies>("[[99999,1]]").unwrap(),
            Latencies::default()
        );
    }
}
