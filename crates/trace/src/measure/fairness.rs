use serde::Serialize;

/// How evenly connections share a resource.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Fairness {
    /// Jain's index over throughput, from 1 / n to 1, where each is due the same.
    pub jain_index: Option<f64>,
    /// Jain's index over throughput relative to each connection's optimum (thesis, section
    /// 2.7.2); none unless all of them have one.
    pub jain_index_relative_to_optimum: Option<f64>,
}

impl Fairness {
    /// Of connections' throughput and, where it is known, optimum, both in the same unit.
    pub(super) fn of(shares: impl Iterator<Item = (f64, Option<f64>)> + Clone) -> Self {
        let relative = shares
            .clone()
            .map(|(throughput, optimum)| Some(throughput / optimum?))
            .collect::<Option<Vec<f64>>>();
        Self {
            jain_index: jain_index(shares.map(|(throughput, _)| throughput)),
            jain_index_relative_to_optimum: relative.and_then(jain_index),
        }
    }
}

/// Jain's fairness index of received shares (thesis, equation 2.6): from 1 / n if one receives
/// all to 1 if all receive the same. None of no shares, or if all are 0.
#[must_use]
pub fn jain_index(shares: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut sum_of_squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        sum_of_squares += share * share;
    }
    (sum_of_squares > 0.0).then(|| sum * sum / (count * sum_of_squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_example_of_the_thesis_gives_51_percent_and_1() {
        let absolute = jain_index([9.6, 990.4]).unwrap();
        assert!((absolute - 0.51).abs() < 0.005, "{absolute}");
        let shares = [(9.6, Some(9.6)), (990.4, Some(990.4))];
        let fairness = Fairness::of(shares.into_iter());
        assert_eq!(fairness.jain_index, Some(absolute));
        assert_eq!(fairness.jain_index_relative_to_optimum, Some(1.0));
    }

    #[test]
    fn k_that_share_equally_of_n_give_k_of_n() {
        assert_eq!(jain_index([5.0, 0.0, 5.0, 5.0]), Some(0.75));
        assert_eq!(jain_index([0.0, 0.0]), None);
        assert_eq!(jain_index([]), None);
    }

    #[test]
    fn without_an_optimum_for_each_there_is_no_relative_index() {
        let fairness = Fairness::of([(1.0, Some(1.0)), (1.0, None)].into_iter());
        assert_eq!(fairness.jain_index, Some(1.0));
        assert_eq!(fairness.jain_index_relative_to_optimum, None);
    }
}
