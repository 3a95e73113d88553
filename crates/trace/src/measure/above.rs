use pillion_stats::measure::Distribution;

/// Values, of which the least is known at the end: how much higher the others are is kept, so that
/// rounding is of that alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Above {
    /// Heights above the base, and the base.
    heights: Option<(i64, Distribution)>,
    /// Values that came before there was a base, and lower ones than the base.
    low: Vec<i64>,
}

const MOST_LOW: usize = 4096;

impl Above {
    #[inline]
    pub(super) fn add(&mut self, value: i64) {
        match &mut self.heights {
            Some((base, heights)) if value >= *base => heights.record(value.saturating_sub(*base)),
            _ => self.add_low(value),
        }
    }

    fn add_low(&mut self, value: i64) {
        self.low.push(value);
        if self.low.len() >= MOST_LOW {
            self.lower();
        }
    }

    /// Takes a base that no value so far is below. Each time it goes down twice as far as it must,
    /// so that it does not have to often.
    fn lower(&mut self) {
        let Some(least) = self.low.iter().copied().min() else {
            return;
        };
        let (base, mut heights) = match self.heights.take() {
            None => (least, Distribution::default()),
            Some((base, mut heights)) => {
                let down = base.saturating_sub(least).saturating_mul(2);
                heights.shift(down);
                (base.saturating_sub(down), heights)
            }
        };
        for value in self.low.drain(..) {
            heights.record(value.saturating_sub(base));
        }
        self.heights = Some((base, heights));
    }

    /// How much higher than `least` all are.
    pub(super) fn above(mut self, least: i64) -> Distribution {
        if self.heights.is_none() {
            return (self.low.iter())
                .map(|value| value.saturating_sub(least))
                .collect();
        }
        self.lower();
        let Some((base, mut heights)) = self.heights else {
            return Distribution::default();
        };
        heights.shift(base.saturating_sub(least));
        heights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_above_the_least_whenever_it_comes() {
        let values = || (0..100_000_i64).map(|number| 50_000_000 + number * 7919 % 4_000_000);
        let falling = || (0..100_000_i64).map(|number| 90_000_000 - number * 100);
        for all in [values().collect::<Vec<_>>(), falling().collect()] {
            let mut above = Above::default();
            all.iter().for_each(|value| above.add(*value));
            let least = *all.iter().min().unwrap();
            let heights = above.above(least);
            let mut expected: Vec<i64> = all.iter().map(|value| value - least).collect();
            expected.sort_unstable();
            assert_eq!((heights.len(), heights.min()), (100_000, Some(0)));
            assert_eq!(heights.max(), expected.last().map(|most| *most as u64));
            for percent in [1, 50, 90, 99] {
                let found = heights.quantile(f64::from(percent) / 100.0).unwrap() as f64;
                let exact = expected[percent as usize * 1000 - 1] as f64;
                assert!(
                    (found - exact).abs() < 0.003 * exact + 30_000.0,
                    "{found}, {exact}"
                );
            }
        }
    }
}
