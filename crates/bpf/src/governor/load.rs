//! Measurements of the connections to one peer network during one interval.

use std::time::Duration;

use crate::contract::types;

/// The first power of two, in microseconds, and the steps for each power.
const FIRST_BIT: u32 = types::queue_scale::QUEUE_FIRST_BIT.0;
const STEP_BITS: u32 = types::queue_scale::QUEUE_STEP_BITS.0;

/// Measurements of the connections to one peer network since the last decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Load {
    /// Median over the connections of the least queueing delay: RTT less the connection's minimum.
    pub(crate) queue: Duration,
    /// Mean time between two packets with data of one connection.
    pub(crate) itt: Duration,
    /// Mean smoothed RTT.
    pub(crate) rtt: Duration,
    /// Packets with data.
    pub(crate) packets: u64,
    /// Losses that bundles repaired, and retransmissions.
    pub(crate) losses: u64,
    /// True if redundant bytes were sent.
    pub(crate) is_redundant: bool,
}

impl Load {
    /// The measurements as the kernel has them; `None` if no connection reported any.
    pub(crate) fn of(raw: &types::network_load) -> Option<Self> {
        let mean = |sum: u64, count| sum.checked_div(count).map(Duration::from_micros);
        Some(Self {
            queue: median(&raw.queue)?,
            itt: mean(raw.window_us, raw.packets).unwrap_or_default(),
            rtt: mean(raw.srtt_us, raw.windows)?,
            packets: raw.packets,
            losses: raw.losses,
            is_redundant: raw.redundant_bytes > 0,
        })
    }
}

/// The middle of the bucket that has the median; `None` if all are empty.
fn median(buckets: &[u32]) -> Option<Duration> {
    let total: u64 = buckets.iter().map(|count| u64::from(*count)).sum();
    let mut before = 0;
    let bucket = buckets.iter().position(|count| {
        before += u64::from(*count);
        total > 0 && 2 * before >= total
    })?;
    Some(Duration::from_micros(
        (lower(bucket) + lower(bucket + 1)) / 2,
    ))
}

/// The least delay of a bucket in microseconds.
fn lower(bucket: usize) -> u64 {
    let Some(step) = bucket.checked_sub(1) else {
        return 0;
    };
    let steps = 1 << STEP_BITS;
    let (octave, step) = (step >> STEP_BITS, (step % steps) as u64);
    (steps as u64 + step) << (octave as u32 + FIRST_BIT - STEP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_quarters_of_powers_of_two() {
        let bounds: Vec<_> = (0..8).map(lower).collect();
        assert_eq!(bounds, [0, 256, 320, 384, 448, 512, 640, 768]);
    }

    #[test]
    fn median_is_the_middle_of_its_bucket() {
        let mut queue = [0; 64];
        assert_eq!(median(&queue), None);
        queue[1] = 1;
        queue[5] = 2;
        assert_eq!(median(&queue), Some(Duration::from_micros(576)));
    }

    #[test]
    fn no_window_is_no_load() {
        assert_eq!(Load::of(&types::network_load::default()), None);
    }
}
