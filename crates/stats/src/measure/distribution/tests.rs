use super::*;

fn of(values: impl IntoIterator<Item = i64>) -> Distribution {
    let mut distribution = Distribution::default();
    for value in values {
        distribution.record(value);
    }
    distribution.settle();
    distribution
}

#[test]
fn quantiles_of_few_values_are_nearest_rank() {
    let all = of((1..=100).rev());
    for rank in 1..=100 {
        assert_eq!(all.quantile(rank as f64 / 100.0), Some(rank));
    }
    assert_eq!(
        (all.quantile(-1.0), all.quantile(9.0)),
        (Some(1), Some(100))
    );
    assert_eq!(
        (all.mean(), all.min(), all.max()),
        (Some(50.5), Some(1), Some(100))
    );
    assert!((all.sd().unwrap() - 29.011).abs() < 0.001);
    assert!(all.is_exact());
}

#[test]
fn quantiles_of_many_values_are_right_to_three_digits() {
    let all = of((1..=100_000).map(|value| value * 10_007));
    assert!(!all.is_exact());
    for percent in [1.0, 10.0, 50.0, 97.0, 99.0] {
        let exact = percent * 1000.0 * 10_007.0;
        let found = all.quantile(percent / 100.0).unwrap() as f64;
        assert!(
            (0.0..0.001).contains(&(found / exact - 1.0)),
            "{found} for {exact}"
        );
    }
    assert_eq!(all.max(), Some(100_000 * 10_007));
    assert_eq!(
        all.steps().iter().map(|(_, times)| times).sum::<u64>(),
        100_000
    );
    assert!((all.mean().unwrap() / (50_000.5 * 10_007.0) - 1.0).abs() < 1e-12);
}

#[test]
fn a_curve_of_few_values_has_each() {
    let few = of([10, 30, 10, 20]);
    assert_eq!(few.curve(), [(10, 0.5), (20, 0.75), (30, 1.0)]);
    assert_eq!(few.complement(), [(10, 0.5), (20, 0.25), (30, 0.0)]);
}

#[test]
fn the_tail_of_many_values_is_told_to_the_last() {
    const COUNT: i64 = 1_000_000;
    let all = of((1..=COUNT).map(|place| 10 * COUNT / place));
    let tail = all.complement();
    assert!(tail.len() <= 1000 && tail.is_sorted_by(|one, next| one.1 > next.1));
    let rarest = tail.len() - 10..tail.len();
    let shares = tail[rarest].iter().map(|(_, share)| (share * 1e6).round());
    assert!(shares.eq((0..10).rev().map(f64::from)));
    // On the way there, no share is left out that a log axis would show.
    for pair in tail.windows(2).filter(|pair| pair[1].1 > 1e-5) {
        assert!(pair[1].1 / pair[0].1 > 0.9, "{pair:?}");
    }
}

#[test]
fn distributions_add_up_as_if_they_had_been_one() {
    for many in [30, 3000, 9000] {
        let (mut low, high) = (of(0..many), of(many..2 * many));
        low.add(&high);
        low.settle();
        let all = of(0..2 * many);
        assert_eq!(low.steps(), all.steps());
        assert!((low.mean().unwrap() - all.mean().unwrap()).abs() < 1e-6);
        assert!((low.sd().unwrap() - all.sd().unwrap()).abs() < 1e-6);
    }
}

#[test]
fn no_values_have_no_mean_and_no_quantile() {
    let none = of([]);
    assert_eq!(
        (none.quantile(0.5), none.mean(), none.sd()),
        (None, None, None)
    );
    assert!(none.steps().is_empty());
}

#[test]
fn a_small_spread_of_large_values_is_not_lost() {
    let day_ns = 86_400_000_000_000;
    let all = of([day_ns, day_ns + 1000, day_ns + 2000]);
    assert!((all.sd().unwrap() - 1000.0).abs() < 1e-6);
}
