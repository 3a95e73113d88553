/// The rank of the `q` quantile among so many values in order, 1 for the smallest: the rank of the
/// smallest value that at least a share `q` of them does not exceed (nearest rank, never
/// interpolated). `q` is limited to 0 to 1; `None` without values or if `q` is NaN.
#[must_use]
pub fn nearest_rank(q: f64, count: u64) -> Option<u64> {
    if q.is_nan() || count == 0 {
        return None;
    }
    // 0.07 * 100 is 7.000000000000001 in binary, and its rank is still 7.
    let rank = q * count as f64 * (1.0 - 4.0 * f64::EPSILON);
    Some((rank.ceil() as u64).clamp(1, count))
}

/// The `q` quantile of values in ascending order, by [`nearest_rank`]: always one of them.
#[must_use]
pub fn quantile<V: Copy>(ascending: &[V], q: f64) -> Option<V> {
    let rank = nearest_rank(q, ascending.len() as u64)?;
    ascending.get(rank as usize - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_the_first_that_has_the_share() {
        for rank in 1..=100 {
            assert_eq!(nearest_rank(rank as f64 / 100.0, 100), Some(rank));
        }
        assert_eq!(nearest_rank(0.501, 100), Some(51));
        let limited = [nearest_rank(-1.0, 100), nearest_rank(7.0, 100)];
        assert_eq!(limited, [Some(1), Some(100)]);
        assert_eq!(
            (nearest_rank(f64::NAN, 9), nearest_rank(0.5, 0)),
            (None, None)
        );
    }

    #[test]
    fn a_quantile_is_the_value_of_that_rank() {
        let quantiles = [0.0, 0.5, 0.51, 1.0].map(|q| quantile(&[1, 3, 5, 9], q));
        assert_eq!(quantiles, [1, 3, 5, 9].map(Some));
        assert_eq!(quantile::<u64>(&[], 0.5), None);
    }
}
