//! Drops of a queue, and packets that disciplines split or copy.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::Quantiles;
use super::length::{Period, period};
use crate::queue::{Endpoints, Fate, Packet};

/// How packets that were dropped lie together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Drops {
    /// How often so many packets in a row were dropped, of the packets of all streams in the order
    /// of their arrival.
    pub runs: BTreeMap<u64, u64>,
    /// How often so many packets of one stream in a row were dropped.
    pub runs_of_streams: BTreeMap<u64, u64>,
    /// Time between one drop and the next, in milliseconds.
    pub gaps_ms: Quantiles,
    /// Time between one drop and the next of the same stream, in milliseconds.
    pub gaps_of_streams_ms: Quantiles,
    /// How uneven drops are over time, for windows of several lengths.
    pub dispersion: Vec<Dispersion>,
    /// The time after which drops recur most; `None` if they do not.
    pub period: Option<Period>,
    /// How uneven drops are over the streams: the variance of their number, as a multiple of what
    /// it were if all streams lost alike (binomial). 1: alike; above: some lose much more often
    /// than others. `None` with fewer than two streams, or no drop.
    pub spread_over_streams: Option<f64>,
}

/// The index of dispersion: the variance of the number of drops in windows of time, divided by
/// its mean. 1 if drops come at random (Poisson), 0 if evenly, above 1 if clustered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Dispersion {
    /// Length of a window in milliseconds.
    pub window_ms: u64,
    /// Variance divided by mean; `None` with fewer than two windows, or no drop.
    pub index: Option<f64>,
}

const WINDOWS_MS: [u64; 4] = [1, 10, 100, 1000];
const MS: u64 = 1_000_000;

/// A packet's arrival and end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) arrived_ns: u64,
    pub(super) stream: usize,
    /// When the packet was dropped, if it was, in nanoseconds.
    pub(super) dropped_ns: Option<u64>,
}

/// Measures how drops lie together; `losses` are the packets offered, and dropped, of each stream.
pub(super) fn drops(mut outcomes: Vec<Outcome>, losses: &[(u64, u64)]) -> Drops {
    outcomes.sort_by_key(|outcome| outcome.arrived_ns);
    let (Some(first), Some(last)) = (outcomes.first(), outcomes.last()) else {
        return Drops::default();
    };
    let span = (first.arrived_ns, last.arrived_ns);
    let mut times: Vec<u64> = outcomes.iter().filter_map(|it| it.dropped_ns).collect();
    times.sort_unstable();
    let mut runs = BTreeMap::new();
    count_runs(&mut runs, &outcomes);
    outcomes.sort_by_key(|outcome| outcome.stream);
    let mut runs_of_streams = BTreeMap::new();
    let mut gaps_of_streams = Vec::new();
    for stream in outcomes.chunk_by(|a, b| a.stream == b.stream) {
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

fn count_runs(runs: &mut BTreeMap<u64, u64>, outcomes: &[Outcome]) {
    for run in outcomes.chunk_by(|a, b| a.dropped_ns.is_some() == b.dropped_ns.is_some()) {
        if run.iter().all(|outcome| outcome.dropped_ns.is_some()) {
            *runs.entry(run.len() as u64).or_default() += 1;
        }
    }
}

fn gaps(times: &[u64]) -> impl Iterator<Item = u64> {
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]))
}

/// The index of dispersion of drops in windows of this length. Only whole windows count.
fn dispersion(times: &[u64], (begin, end): (u64, u64), window: u64) -> Option<f64> {
    let windows = (end - begin) / window;
    let places = times.iter().map(|time| time.saturating_sub(begin) / window);
    let places: Vec<_> = places.filter(|place| *place < windows).collect();
    if windows < 2 || places.is_empty() {
        return None;
    }
    let mean = places.len() as f64 / windows as f64;
    let counts = places
        .chunk_by(|a, b| a == b)
        .map(|chunk| chunk.len() as f64);
    let squares: f64 = counts.map(|count| count * count).sum();
    let variance = (squares - windows as f64 * mean * mean) / (windows - 1) as f64;
    Some(variance / mean)
}

/// Pearson's statistic for streams that all lose the same share, divided by its mean.
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

// Queueing disciplines may split packets of several segments (`tbf`, `cake`), or copy them to
// change them (`netem`): others come forth in the place of what was offered.

/// Packets to be brought together: those offered that may have been split, and those that were
/// not seen to arrive.
#[derive(Debug, Default)]
pub(super) struct Split {
    whole: HashMap<Endpoints, Vec<Packet>>,
    parts: HashMap<Endpoints, Vec<Packet>>,
}

impl Split {
    /// Takes a packet that may have been split, or be a part of one that was, for
    /// [`resolve`](Self::resolve); true if it did.
    pub(super) fn keep(&mut self, packet: &Packet) -> bool {
        let Some(ends) = packet.ends.filter(|_| packet.payload > 0) else {
            return false;
        };
        let refused_whole = packet.fate == Fate::Refused && packet.segments > 1;
        let kept = if packet.arrived_ns.is_none() {
            &mut self.parts
        } else if packet.fate == Fate::Replaced || refused_whole {
            &mut self.whole
        } else {
            return false;
        };
        kept.entry(ends).or_default().push(*packet);
        true
    }

    /// The packets as the queue sent or dropped them. Each segment has the arrival of the last
    /// packet before it that covers it; what was split is left out itself.
    pub(super) fn resolve(mut self) -> Vec<Packet> {
        let mut packets = Vec::new();
        for (ends, mut whole) in self.whole {
            whole.sort_by_key(|packet| packet.arrived_ns);
            let mut was_split = vec![false; whole.len()];
            for part in self.parts.remove(&ends).unwrap_or_default() {
                let before = whole.partition_point(|packet| packet.arrived_ns <= part.left_ns);
                let mut earlier = whole.iter().enumerate().take(before).rev();
                let found = earlier.find(|(_, packet)| covers(packet, &part));
                packets.push(found.map_or(part, |(_, packet)| Packet {
                    arrived_ns: packet.arrived_ns,
                    found: packet.found,
                    ..part
                }));
                if let Some((place, _)) = found {
                    was_split[place] = true;
                }
            }
            let left = whole.iter().zip(was_split).filter(|(_, split)| !split);
            packets.extend(left.map(|(packet, _)| *packet));
        }
        packets.extend(self.parts.into_values().flatten());
        packets.sort_by_key(|packet| (packet.left_ns, packet.ends, packet.seq));
        packets
    }
}

/// True if the payload of `whole` covers that of `part`; sequence numbers wrap.
fn covers(whole: &Packet, part: &Packet) -> bool {
    part.seq.wrapping_sub(whole.seq) < whole.payload
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet each millisecond, of two streams in turn; packets for whose number `is_dropped`
    /// holds are dropped.
    fn outcomes(packets: u64, is_dropped: impl Fn(u64) -> bool) -> Vec<Outcome> {
        let outcome = |place: u64| Outcome {
            arrived_ns: place * MS,
            stream: (place % 2) as usize,
            dropped_ns: is_dropped(place).then_some(place * MS),
        };
        (0..packets).map(outcome).collect()
    }

    #[test]
    fn runs_are_counted_over_all_packets_and_within_each_stream() {
        let drops = drops(
            outcomes(100, |place| [10, 11, 12, 50].contains(&place)),
            &[],
        );
        assert_eq!(drops.runs, BTreeMap::from([(1, 1), (3, 1)]));
        assert_eq!(drops.runs_of_streams, BTreeMap::from([(1, 2), (2, 1)]));
        assert_eq!(drops.gaps_ms.max, Some(38.0));
        assert_eq!(drops.gaps_of_streams_ms.p50, Some(2.0));
    }

    #[test]
    fn drops_at_even_times_have_no_dispersion_and_bursts_have_much() {
        let index = |drops: &Drops, window| {
            let found = drops.dispersion.iter().find(|it| it.window_ms == window);
            found.unwrap().index.unwrap()
        };
        let even = drops(outcomes(10_001, |place| place % 10 == 5), &[]);
        assert!(index(&even, 10) < 1e-9);
        let bursts = drops(outcomes(10_001, |place| place % 1000 < 100), &[]);
        assert!(index(&bursts, 100) > 80.0);
    }

    #[test]
    fn streams_that_lose_alike_have_no_spread() {
        assert_eq!(spread(&[(1000, 50); 8]), Some(0.0));
        let half = [(1000, 100), (1000, 0)].repeat(4);
        // Each stream is 50 off, and the variance of a binomial is 47.5: 8 * 2500 / 47.5 / 7.
        let spread = spread(&half).unwrap();
        assert!((spread - 60.15).abs() < 0.01, "{spread}");
    }

    #[test]
    fn without_packets_or_drops_there_is_nothing_to_tell() {
        assert_eq!(drops(vec![], &[]), Drops::default());
        let none = drops(outcomes(100, |_| false), &[(50, 0), (50, 0)]);
        assert_eq!(none.gaps_ms, Quantiles::default());
        assert!(none.dispersion.iter().all(|it| it.index.is_none()));
        assert_eq!((none.period, none.spread_over_streams), (None, None));
    }

    fn packet(arrived_ns: Option<u64>, left_ns: Option<u64>, seq: u32, payload: u32) -> Packet {
        let end = |port| std::net::SocketAddr::from(([10, 0, 0, 1], port));
        Packet {
            arrived_ns,
            left_ns,
            fate: left_ns.map_or(Fate::Replaced, |_| Fate::Sent),
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
    fn segments_have_the_arrival_of_what_was_split_and_are_counted_in_its_place() {
        let mut split = Split::default();
        // Sent, and later retransmitted; the numbers wrap within it.
        let seq = u32::MAX - 999;
        for packet in [
            packet(Some(10), None, seq, 2000),
            packet(None, Some(20), seq, 1000),
            packet(None, Some(30), 0, 1000),
            packet(Some(40), None, seq, 2000),
            packet(None, Some(50), 0, 1000),
        ] {
            assert!(split.keep(&packet));
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
    fn what_nothing_came_of_and_what_came_of_nothing_is_kept() {
        let mut split = Split::default();
        let still_there = packet(Some(10), None, 5000, 1000);
        let older = packet(None, Some(20), 1000, 1000);
        assert!(split.keep(&still_there) && split.keep(&older));
        assert_eq!(split.resolve(), [still_there, older]);
        assert!(!Split::default().keep(&packet(Some(10), Some(20), 0, 100)));
    }
}
