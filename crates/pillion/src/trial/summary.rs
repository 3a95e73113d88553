//! What was observed of connections, taken together, and the measures of it.

use std::ops::AddAssign;

use pillion_bpf::{LatencyBuckets, Observation, Outcome};
use pillion_stats::measure::{Measure, Unit, nearest_rank, share};
use serde::{Deserialize, Serialize};

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

/// Segments by their ACK latency, in the kernel's buckets: each is at most an eighth wider than the
/// one before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(usize, u64)>", into = "Vec<(usize, u64)>")]
pub struct Latencies([u64; LatencyBuckets::COUNT]);

/// Segments of a bucket at most: those of all buckets have room in a number.
const MOST: u64 = u64::MAX / LatencyBuckets::COUNT as u64;

impl Default for Latencies {
    fn default() -> Self {
        Self([0; LatencyBuckets::COUNT])
    }
}

/// Buckets with something in them, by number. What no bucket has is dropped.
impl From<Vec<(usize, u64)>> for Latencies {
    fn from(buckets: Vec<(usize, u64)>) -> Self {
        let mut all = Self::default();
        for (bucket, count) in buckets {
            if let Some(place) = all.0.get_mut(bucket) {
                *place = place.saturating_add(count).min(MOST);
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
        for (place, count) in all.0.iter_mut().zip(buckets.counts()) {
            *place = u64::from(*count);
        }
        all
    }
}

impl Latencies {
    /// Adds those of another so many times.
    pub(crate) fn add(&mut self, other: &Self, times: u64) {
        for (place, count) in self.0.iter_mut().zip(&other.0) {
            *place = place.saturating_add(count.saturating_mul(times)).min(MOST);
        }
    }

    /// The `q` quantile in milliseconds, by [`nearest_rank`]; inside its bucket, as if the
    /// segments there were evenly apart. `None` without segments.
    #[must_use]
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = nearest_rank(q, self.0.iter().sum())?;
        let mut below = 0;
        let found = self.0.iter().enumerate().find_map(|(bucket, count)| {
            below += count;
            (below >= rank).then(|| (bucket, (count - (below - rank)) as f64 / *count as f64))
        });
        found.map(|(bucket, share)| {
            let [begin, end] = [bucket, bucket + 1].map(LatencyBuckets::begin_us);
            (begin as f64 + (end - begin) as f64 * share) / 1e3
        })
    }

    /// The share of segments with at most this latency, at the end of each bucket up to the last
    /// one with any: milliseconds and share.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let all: u64 = self.0.iter().sum();
        let mut below = 0;
        let mut points = Vec::new();
        for (bucket, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            below += count;
            let end_ms = LatencyBuckets::begin_us(bucket + 1) as f64 / 1e3;
            points.push((end_ms, below as f64 / all as f64));
        }
        points
    }
}

/// Where a measure's value is found in a summary.
pub type Of = fn(&Summary) -> Option<f64>;

const fn measure(
    name: &'static str,
    label: &'static str,
    unit: Unit,
    meaning: &'static str,
    of: Of,
) -> Measure<Of> {
    Measure {
        name,
        label,
        unit,
        meaning,
        of,
    }
}

fn of_segments(part: u64, summary: &Summary) -> Option<f64> {
    share(part, summary.segments)
}

/// What is told of connections. The first one decides a trial, and the one of what is cut short.
pub const MEASURES: [Measure<Of>; 10] = [
    measure(
        "late_ms",
        "lateness",
        Unit::Milliseconds,
        "time that a segment waited to be acknowledged beyond the least RTT and the grace, on average \
         over all segments",
        |all| of_segments(all.late_us, all).map(|us| us / 1e3),
    ),
    measure(
        "ack_latency_ms_p50",
        "ACK latency, p50",
        Unit::Milliseconds,
        "half of the segments were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.5),
    ),
    measure(
        "ack_latency_ms_p90",
        "ACK latency, p90",
        Unit::Milliseconds,
        "nine segments of ten were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.9),
    ),
    measure(
        "ack_latency_ms_p99",
        "ACK latency, p99",
        Unit::Milliseconds,
        "all segments but one in a hundred were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.99),
    ),
    measure(
        "ack_latency_ms_p999",
        "ACK latency, p99.9",
        Unit::Milliseconds,
        "all segments but one in a thousand were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.999),
    ),
    measure(
        "stall_share",
        "stalls",
        Unit::Share,
        "segments that took longer than the threshold of a stall to be acknowledged",
        |all| of_segments(all.stalls, all),
    ),
    measure(
        "timeout_share",
        "time-outs",
        Unit::Share,
        "times that TCP's retransmission timer ran out, of the number of segments",
        |all| of_segments(all.timeouts, all),
    ),
    measure(
        "retransmitted_share",
        "retransmitted",
        Unit::Share,
        "packets that TCP retransmitted, of the number of segments",
        |all| {
            let all_kinds = all
                .after_timeout
                .saturating_add(all.fast)
                .saturating_add(all.probes);
            of_segments(all_kinds, all)
        },
    ),
    measure(
        "cut_share",
        "cut short",
        Unit::Share,
        "connections that an error ended while data was on its way or still to be sent, of the number \
         of segments",
        Summary::cut_share,
    ),
    measure(
        "added_share",
        "bytes added",
        Unit::Share,
        "redundant bytes, of the payload that was sent for the first time",
        |all| share(all.redundant_bytes, all.new_bytes),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_in_the_bucket_with_its_rank() {
        let latencies = Latencies::from(vec![(1, 3), (9, 1)]);
        let quantiles = [0.0, 0.75, 0.76, 1.0].map(|q| latencies.quantile_ms(q).unwrap());
        // From 128 to 144 us, and from 256 to 288.
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
    fn what_is_written_is_read_again() {
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
