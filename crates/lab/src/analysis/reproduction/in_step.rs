//! How the drops of periodic streams lie within the time from one message to the next (thesis,
//! section 4.3.4).

use super::Digest;
use crate::measure_ref::DROPPED_IN_STEP;

/// The parts of an inter-transmission time in which drops are counted, and how many are a quarter.
const PARTS: usize = 20;
const QUARTER: usize = PARTS / 4;

/// Of fewer drops, chance alone puts far more than a quarter into those parts in which most are.
const FEWEST: usize = 200;

/// Of drops at these times, the share that fell into the quarter of the inter-transmission time, of
/// twenty parts the five, in which most did: about 0.25 where they lie evenly, and 1 where the same
/// places in time are hit again and again. Both in nanoseconds, by one clock; none of so few drops
/// that chance would decide.
fn busiest_quarter(times_ns: &[u64], itt_ns: u64) -> Option<f64> {
    if times_ns.len() < FEWEST || itt_ns == 0 {
        return None;
    }
    let mut counts = [0_usize; PARTS];
    for time in times_ns {
        let part = (time % itt_ns) as f64 / itt_ns as f64 * PARTS as f64;
        counts[(part as usize).min(PARTS - 1)] += 1;
    }
    counts.sort_unstable();
    let most: usize = counts[PARTS - QUARTER..].iter().sum();
    Some(most as f64 / times_ns.len() as f64)
}

impl Digest {
    /// Adds how the queue's drops of a group's packets, at these times, lie within the group's mean
    /// inter-transmission time; both in nanoseconds.
    pub fn add_drops(&mut self, group: &str, times_ns: &[u64], itt_ns: u64) {
        if let Some(share) = busiest_quarter(times_ns, itt_ns) {
            let group = self.groups.entry(group.to_owned()).or_default();
            group.values.insert(DROPPED_IN_STEP.to_owned(), share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITT_NS: u64 = 100_000_000;

    #[test]
    fn drops_in_step_are_told_from_those_that_lie_evenly() {
        // 100 of each interval's 20 parts in turn, and all at one place of each.
        let evenly: Vec<u64> = (0..2000).map(|it| it * (ITT_NS + ITT_NS / 20)).collect();
        let share = busiest_quarter(&evenly, ITT_NS).unwrap();
        assert!((share - 0.25).abs() < 0.01, "{share}");
        let in_step: Vec<u64> = (0..2000).map(|it| 7 + it * ITT_NS).collect();
        assert_eq!(busiest_quarter(&in_step, ITT_NS), Some(1.0));
    }

    #[test]
    fn of_few_drops_nothing_is_said() {
        let mut digest = Digest::default();
        digest.add_drops("thin", &[0; FEWEST - 1], ITT_NS);
        digest.add_drops("thick", &[0; FEWEST], 0);
        assert_eq!(digest, Digest::default());
        digest.add_drops("thin", &[0; FEWEST], ITT_NS);
        assert_eq!(digest.groups["thin"].named(DROPPED_IN_STEP), Some(1.0));
    }
}
