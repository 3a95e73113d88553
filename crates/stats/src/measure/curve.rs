/// At most this many points describe a curve.
const MAX_POINTS: usize = 1000;
/// Distinct values of the curve's tail, the largest, all of which are kept: the tail is exact.
const TAIL: usize = 250;
/// Steps of a linear axis from 0 to 1, each 1/400 of it: the body of the curve moves by less than
/// one between two points.
const LINEAR_CELLS: f64 = 400.0;
/// Steps of a log axis from 1 to 1/n, each 1/350 of it, a pixel in a figure of that height: the
/// body of the curve moves by less than one between two points.
const LOG_CELLS: f64 = 350.0;

/// A step of a cumulative distribution: a distinct value, and how many of all values are not
/// greater.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step<V> {
    /// The value at which the distribution steps.
    pub value: V,
    /// Number of values that are not greater than this one, itself counted.
    pub rank: u64,
}

/// The cumulative distribution of values, given in order, each with how often it came: at most
/// 1,000 steps, the tail exact, the body thinned so far that no figure shows it.
#[must_use]
pub fn thinned<V: Copy>(values: impl IntoIterator<Item = (V, u64)>) -> Vec<Step<V>> {
    let mut rank = 0;
    let steps = values.into_iter().map(|(value, times)| {
        rank += times;
        Step { value, rank }
    });
    let steps: Vec<Step<V>> = steps.collect();
    if steps.len() < MAX_POINTS {
        return steps;
    }
    // The first step in each cell is kept, not the last: then a large step stays where it is.
    let (body, n) = (steps.len() - TAIL, rank as f64);
    let mut previous = None;
    let mut kept = Vec::with_capacity(MAX_POINTS);
    for (place, step) in steps.into_iter().enumerate() {
        let rank = step.rank as f64;
        let cell = (
            (rank / n * LINEAR_CELLS) as usize,
            ((n / (n - rank)).ln() / n.ln() * LOG_CELLS) as usize,
        );
        if place >= body || previous != Some(cell) {
            kept.push(step);
        }
        previous = Some(cell);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_values_are_all_kept() {
        let steps = thinned([(10, 2), (20, 1), (30, 1)]);
        let steps: Vec<_> = steps.into_iter().map(|it| (it.value, it.rank)).collect();
        assert_eq!(steps, [(10, 2), (20, 3), (30, 4)]);
        assert!(thinned::<u64>([]).is_empty());
    }

    #[test]
    fn many_values_keep_their_tail_to_the_last() {
        const COUNT: u64 = 1_000_000;
        let steps = thinned((1..=COUNT).map(|value| (value, 1)));
        assert!(steps.len() <= MAX_POINTS, "{} points", steps.len());
        assert!(steps.iter().all(|step| step.rank == step.value));
        let tail = steps[steps.len() - TAIL..].iter().map(|step| step.value);
        assert!(tail.eq(COUNT - TAIL as u64 + 1..=COUNT));
        // Between two points the share above falls by less than two pixels on a log axis.
        let below_max = steps.windows(2).filter(|pair| pair[1].rank < COUNT);
        for pair in below_max {
            let [from, to] = [pair[0], pair[1]].map(|step| (COUNT - step.rank) as f64);
            let is_in_tail = pair[0].rank > COUNT - TAIL as u64;
            assert!(is_in_tail || (from / to).log10() / 6.0 * LOG_CELLS < 2.0);
        }
    }
}
