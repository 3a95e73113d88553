use rand::SeedableRng;

use super::*;

const SAMPLES: usize = 100_000;

/// Returns sorted samples with a fixed seed.
fn sampled(distribution: &Distribution) -> Vec<f64> {
    let mut rng = Pcg64::seed_from_u64(1);
    let mut values: Vec<f64> = (0..SAMPLES)
        .map(|_| distribution.sample(&mut rng))
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>();
    (mean, (squares / (n - 1.0)).sqrt())
}

fn parse(text: &str) -> Distribution {
    Distribution::parse(text).unwrap()
}

#[test]
fn mean_and_deviation_match_parameters() {
    for (text, mean, sd) in [
        ("30", 30.0, 0.0),
        ("constant:30", 30.0, 0.0),
        ("10:1", 10.0, 1.0),
        ("normal:100:10", 100.0, 10.0),
        ("exponential:100", 100.0, 100.0),
        ("lognormal:100:50", 100.0, 50.0),
        // Its variance is mean^2 / (shape * (shape - 2)).
        ("pareto:100:6", 100.0, 100.0 / 24f64.sqrt()),
    ] {
        let (drawn_mean, drawn_sd) = mean_and_deviation(&sampled(&parse(text)));
        // Four standard errors of the mean. The deviation's own error is larger with heavy tails.
        let error = 4.0 * sd / (SAMPLES as f64).sqrt() + 1e-9;
        assert!((drawn_mean - mean).abs() < error, "{text}: {drawn_mean}");
        assert!((drawn_sd - sd).abs() <= 0.06 * sd, "{text}: {drawn_sd}");
    }
}

#[test]
fn pareto_samples_have_expected_minimum_and_tail() {
    let values = sampled(&parse("pareto:30:1.5"));
    assert!(values[0] >= 10.0);
    // P(X > x) = (10 / x)^1.5, which is 1 % at 215.4.
    let p99 = values[SAMPLES * 99 / 100];
    assert!((p99 / 215.4 - 1.0).abs() < 0.05, "{p99}");
}

#[test]
fn wide_normal_samples_are_never_negative_or_clamped() {
    let values = sampled(&parse("1:10"));
    assert!(values[0] >= 0.0);
    // Clamping instead of repeated sampling would yield 0 for nearly half of them.
    assert!(values[10] > 0.0);
}

#[test]
fn quantile_table_reproduces_its_quantiles() {
    let points = [
        (0.0, 7.0),
        (0.01, 83.0),
        (0.5, 449.0),
        (0.99, 4195.0),
        (1.0, 17032.0),
    ];
    let table = Table::from_quantiles(&points).unwrap();
    let values = sampled(&Distribution::Table(table.clone()));
    for (quantile, value) in points {
        let rank = (quantile * SAMPLES as f64) as usize;
        let sampled = values[rank.min(SAMPLES - 1)];
        assert!(
            (sampled / value - 1.0).abs() < 0.03,
            "{quantile}: {sampled} {value}"
        );
    }
    let (mean, sd) = mean_and_deviation(&values);
    assert!((mean - table.mean()).abs() < 4.0 * sd / (SAMPLES as f64).sqrt());
}

#[test]
fn value_table_reproduces_frequencies() {
    let table = Table::from_values(vec![5.0, 1.0, 5.0, 9.0]).unwrap();
    assert_eq!(table.mean(), 5.0);
    let values = sampled(&Distribution::Table(table));
    let share = |value| values.iter().filter(|v| **v == value).count() as f64 / SAMPLES as f64;
    for (value, expected) in [(1.0, 0.25), (5.0, 0.5), (9.0, 0.25)] {
        assert!((share(value) - expected).abs() < 0.01, "{value}");
    }
}

#[test]
fn table_file_errors_name_line() {
    let file = std::env::temp_dir().join(format!("pillion-table-{}.csv", std::process::id()));
    let read = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Distribution::parse(&format!("table:{}", file.display()))
    };
    let quantiles = read("quantile,value\n0,10\n\n1, 30\n").unwrap();
    assert_eq!(quantiles.mean(), 20.0);
    assert_eq!(read("value\n1\n3\n").unwrap().mean(), 2.0);
    for (text, expected) in [
        ("", ":1: expected the header"),
        ("value\n1\nx\n", ":3: expected numbers"),
        ("quantile,value\n0,1\n1\n", ":3: expected as many fields"),
        ("quantile,value\n0.5,1\n1,2\n", "must start with 0"),
        ("quantile,value\n0,3\n1,2\n", "never fall"),
        ("value\n", "at least one"),
        ("value\nNaN\n", "from 0 to 1e9"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    std::fs::remove_file(&file).unwrap();
    assert!(read_error("table:/nonexistent").contains("/nonexistent: "));
}

fn read_error(text: &str) -> String {
    Distribution::parse(text).unwrap_err().to_string()
}

#[test]
fn invalid_distribution_is_rejected_with_remedy() {
    for text in [
        "",
        "x",
        "normal",
        "normal:1",
        "1:2:3",
        "pareto:5",
        "30:",
        ":3",
        "constant:x",
    ] {
        let error = read_error(text);
        assert!(error.contains("expected MEAN, MEAN:SD"), "{text}: {error}");
    }
    for text in ["0", "-1", "NaN", "inf", "exponential:0"] {
        assert!(read_error(text).contains("above 0"), "{text}");
    }
    assert!(read_error("pareto:5:1").contains("above 1"));
    assert!(read_error("5:-1").contains("0 or more"));
    assert!(read_error("lognormal:5:NaN").contains("0 or more"));
    assert!(read_error("lognormal:1e-200:1").contains("standard deviation 1"));
}
