//! Drops of a queue, and packets that disciplines split or copy.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::Quantiles;
use super::length::{Period, period};
use crate::queue::{Disposition, Endpoints, Packet};

/// Clustering of dropped packets.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Drops {
    /// Number of runs of consecutive drops, by length, over the packets of all streams in order of
    /// arrival.
    pub runs: BTreeMap<u64, u64>,
    /// Number of runs of consecutive drops, by length, within single streams.
    pub runs_of_streams: BTreeMap<u64, u64>,
    /// Time between consecutive drops, in milliseconds.
    pub gaps_ms: Quantiles,
    /// Time between consecutive drops of the same stream, in milliseconds.
    pub gaps_of_streams_ms: Quantiles,
    /// Unevenness of drops over time, for windows of several lengths.
    pub dispersion: Vec<Dispersion>,
    /// The period of recurring drops; `None` if they do not recur.
    pub period: Option<Period>,
    /// Unevenness of drops over the streams: the variance of their number, relative to the variance
    /// if all streams lost the same share (binomial). 1: equal; above: some lose much more often
    /// than others. `None` with fewer than two streams, or without a drop.
    pub spread_over_streams: Option<f64>,
}

/// The index of dispersion: the variance of the number of drops in windows of time, divided by its
/// mean. 1 for random drops (Poisson), 0 for regular ones, above 1 for clusters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Dispersion {
    /// Length of a window in milliseconds.
    pub window_ms: u64,
    /// Variance divided by mean; `None` with fewer than two windows, or without a drop.
    pub index: Option<f64>,
}

const WINDOWS_MS: [u64; 4] = [1, 10, 100, 1000];
const MS: u64 = 1_000_000;

/// Arrival and drop of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrivedPacket {
    pub(super) arrived_ns: u64,
    pub(super) stream: usize,
    /// Time of the drop, in nanoseconds; `None` if the packet was not dropped.
    pub(super) dropped_ns: Option<u64>,
}

/// Measures the clustering of drops; `losses` has the offered and dropped packets of each stream.
pub(super) fn drops(mut arrivals: Vec<ArrivedPacket>, losses: &[(u64, u64)]) -> Drops {
    arrivals.sort_by_key(|arrival| arrival.arrived_ns);
    let (Some(first), Some(last)) = (arrivals.first(), arrivals.last()) else {
        return Drops::default();
    };
    let span = (first.arrived_ns, last.arrived_ns);
    let mut times: Vec<u64> = arrivals.iter().filter_map(|it| it.dropped_ns).collect();
    times.sort_unstable();
    let mut runs = BTreeMap::new();
    count_runs(&mut runs, &arrivals);
    arrivals.sort_by_key(|arrival| arrival.stream);
    let mut runs_of_streams = BTreeMap::new();
    let mut gaps_of_streams = Vec::new();
    for stream in arrivals.chunk_by(|a, b| a.stream == b.stream) {
        count_runs(&mut runs_of_streams, stream);
        let times: Vec<_> = stream.iter().filter_map(|it| it.dropped_ns).collect();
        gaps_of_streams.extend(gaps(&times));
    }
    Drops {
        runs,
        runs_of_streams,
        gaps_ms: Quantiles::of(gaps(&times).collect(), 1e6),
        gaps_of_streams_ms: Quantiles::of(gaps_of_streams, 1e6),
        dispersion: WINDOWS_MS
            .iter()
            .map(|&window_ms| Dispersion {
                window_ms,
                index: dispersion(&times, span, window_ms * MS),
            })
            .collect(),
        period: period(&times, span),
        spread_over_streams: spread(losses),
    }
}

fn count_runs(runs: &mut BTreeMap<u64, u64>, arrivals: &[ArrivedPacket]) {
    for run in arrivals.chunk_by(|a, b| a.dropped_ns.is_some() == b.dropped_ns.is_some()) {
        if run.iter().all(|arrival| arrival.dropped_ns.is_some()) {
            *runs.entry(run.len() as u64).or_default() += 1;
        }
    }
}

fn gaps(times: &[u64]) -> impl Iterator<Item = u64> {
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]))
}

/// Returns the index of dispersion of drops in windows of this length. Only complete windows count.
fn dispersion(times: &[u64], (start, end): (u64, u64), window: u64) -> Option<f64> {
    let windows = (end - start) / window;
    let indices = times.iter().map(|time| time.saturating_sub(start) / window);
    let indices: Vec<_> = indices.filter(|index| *index < windows).collect();
    if windows < 2 || indices.is_empty() {
        return None;
    }
    let mean = indices.len() as f64 / windows as f64;
    let counts = indices
        .chunk_by(|a, b| a == b)
        .map(|chunk| chunk.len() as f64);
    let squares: f64 = counts.map(|count| count * count).sum();
    let variance = (squares - windows as f64 * mean * mean) / (windows - 1) as f64;
    Some(variance / mean)
}

/// Returns Pearson's statistic for streams that all lose the same share, divided by its mean.
fn spread(losses: &[(u64, u64)]) -> Option<f64> {
    let (offered, dropped) = losses
        .iter()
        .fold((0, 0), |sum, stream| (sum.0 + stream.0, sum.1 + stream.1));
    if losses.len() < 2 || dropped == 0 || dropped == offered {
        return None;
    }
    let share = dropped as f64 / offered as f64;
    let statistic: f64 = losses
        .iter()
        .filter(|(offered, _)| *offered > 0)
        .map(|&(offered, dropped)| {
            let expected = offered as f64 * share;
            (dropped as f64 - expected).powi(2) / (expected * (1.0 - share))
        })
        .sum();
    Some(statistic / (losses.len() - 1) as f64)
}

// Queueing disciplines may split packets of several segments (`tbf`, `cake`), or copy packets to
// change them (`netem`). New packets then replace the offered ones.

/// Packets to match with each other: offered packets that may have been split, and packets without
/// an observed arrival.
#[derive(Debug, Default)]
pub(super) struct SplitPackets {
    offered: HashMap<Endpoints, Vec<Packet>>,
    parts: HashMap<Endpoints, Vec<Packet>>,
}

impl SplitPackets {
    /// Stores a packet for [`resolve`](Self::resolve) if it may have been split, or be part of a
    /// split packet. Returns whether it was stored.
    pub(super) fn store(&mut self, packet: &Packet) -> bool {
        let Some(ends) = packet.ends.filter(|_| packet.payload > 0) else {
            return false;
        };
        let refused_whole = packet.disposition == Disposition::Refused && packet.segments > 1;
        let target = if packet.arrived_ns.is_none() {
            &mut self.parts
        } else if packet.disposition == Disposition::Replaced || refused_whole {
            &mut self.offered
        } else {
            return false;
        };
        target.entry(ends).or_default().push(*packet);
        true
    }

    /// Returns the packets as the queue sent or dropped them. Each segment has the arrival time of
    /// the last packet before it that covers it. Split packets themselves are left out.
    pub(super) fn resolve(mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        for (ends, mut offered) in self.offered {
            offered.sort_by_key(|packet| packet.arrived_ns);
            let mut is_split = vec![false; offered.len()];
            for part in self.parts.remove(&ends).unwrap_or_default() {
                let before = offered.partition_point(|packet| packet.arrived_ns <= part.left_ns);
                let mut earlier = offered.iter().enumerate().take(before).rev();
                let found = earlier.find(|(_, packet)| covers(packet, &part));
                packets.push(found.map_or(part, |(_, packet)| Packet {
                    arrived_ns: packet.arrived_ns,
                    found: packet.found,
                    ..part
                }));
                if let Some((index, _)) = found {
                    is_split[index] = true;
                }
            }
            let left = offered.iter().zip(is_split).filter(|(_, split)| !split);
            packets.extend(left.map(|(packet, _)| *packet));
        }
        packets.extend(self.parts.into_values().flatten());
        packets.sort_by_key(|packet| (packet.left_ns, packet.ends, packet.seq));
        packets
    }
}

/// Returns true if the payload of `offered` covers that of `part`. Sequence numbers wrap.
fn covers(offered: &Packet, part: &Packet) -> bool {
    part.seq.wrapping_sub(offered.seq) < offered.payload
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one packet per millisecond, of two streams in turn. Packets for whose number
    /// `is_dropped` is true are dropped.
    fn arrivals(packets: u64, is_dropped: impl Fn(u64) -> bool) -> Vec<ArrivedPacket> {
        let arrival = |index: u64| ArrivedPacket {
            arrived_ns: index * MS,
            stream: (index % 2) as usize,
            dropped_ns: is_dropped(index).then_some(index * MS),
        };
        (0..packets).map(arrival).collect()
    }

    #[test]
    fn drop_runs_are_counted_overall_and_per_stream() {
        let drops = drops(
            arrivals(100, |index| [10, 11, 12, 50].contains(&index)),
            &[],
        );
        assert_eq!(drops.runs, BTreeMap::from([(1, 1), (3, 1)]));
        assert_eq!(drops.runs_of_streams, BTreeMap::from([(1, 2), (2, 1)]));
        assert_eq!(drops.gaps_ms.max, Some(38.0));
        assert_eq!(drops.gaps_of_streams_ms.p50, Some(2.0));
    }

    #[test]
    fn regular_drops_have_no_dispersion_and_bursts_high() {
        let index = |drops: &Drops, window| {
            let found = drops.dispersion.iter().find(|it| it.window_ms == window);
            found.unwrap().index.unwrap()
        };
        let even = drops(arrivals(10_001, |index| index % 10 == 5), &[]);
        assert!(index(&even, 10) < 1e-9);
        let bursts = drops(arrivals(10_001, |index| index % 1000 < 100), &[]);
        assert!(index(&bursts, 100) > 80.0);
    }

    #[test]
    fn equal_stream_losses_have_no_spread() {
        assert_eq!(spread(&[(1000, 50); 8]), Some(0.0));
        let half = [(1000, 100), (1000, 0)].repeat(4);
        // Each stream is 50 off, and the variance of a binomial is 47.5: 8 * 2500 / 47.5 / 7.
        let spread = spread(&half).unwrap();
        assert!((spread - 60.15).abs() < 0.01, "{spread}");
    }

    #[test]
    fn measures_are_empty_without_packets_or_drops() {
        assert_eq!(drops(vec![], &[]), Drops::default());
        let none = drops(arrivals(100, |_| false), &[(50, 0), (50, 0)]);
        assert_eq!(none.gaps_ms, Quantiles::default());
        assert!(none.dispersion.iter().all(|it| it.index.is_none()));
        assert_eq!((none.period, none.spread_over_streams), (None, None));
    }

    fn packet(arrived_ns: Option<u64>, left_ns: Option<u64>, seq: u32, payload: u32) -> Packet {
        let end = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        Packet {
            arrived_ns,
            left_ns,
            disposition: left_ns.map_or(Disposition::Replaced, |_| Disposition::Sent),
            reason: 0,
            ends: Some(Endpoints {
                protocol: 6,
                source: end(1),
                destination: end(2),
            }),
            seq,
            payload,
            flags: 16,
            size: payload + 66,
            counted: payload + 66,
            segments: 1,
            queue: 0,
            found: None,
            behind: None,
        }
    }

    #[test]
    fn split_segments_inherit_arrival_and_replace_packet() {
        let mut split = SplitPackets::default();
        // Sent, and later retransmitted. The sequence numbers wrap within the packet.
        let seq = u32::MAX - 999;
        for packet in [
            packet(Some(10), None, seq, 2000),
            packet(None, Some(20), seq, 1000),
            packet(None, Some(30), 0, 1000),
            packet(Some(40), None, seq, 2000),
            packet(None, Some(50), 0, 1000),
        ] {
            assert!(split.store(&packet));
        }
        let found: Vec<_> = split
            .resolve()
            .iter()
            .map(|it| (it.arrived_ns, it.left_ns))
            .collect();
        let times = [(10, 20), (10, 30), (40, 50)];
        assert_eq!(
            found,
            times.map(|(arrived, left)| (Some(arrived), Some(left)))
        );
    }

    #[test]
    fn unmatched_packets_and_segments_are_retained() {
        let mut split = SplitPackets::default();
        let still_there = packet(Some(10), None, 5000, 1000);
        let older = packet(None, Some(20), 1000, 1000);
        assert!(split.store(&still_there) && split.store(&older));
        assert_eq!(split.resolve(), [still_there, older]);
        assert!(!SplitPackets::default().store(&packet(Some(10), Some(20), 0, 100)));
    }
}
