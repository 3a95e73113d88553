/// A percentile that is told of distributions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Percentile {
    /// The percentile's name in JSON, as in `p99_9`.
    pub name: &'static str,
    /// The percentile's name for people, as in `p99.9`.
    pub label: &'static str,
    /// The share of the values that do not exceed the percentile, from 0 to 1.
    pub share: f64,
}

impl Percentile {
    /// The median.
    pub const P50: Self = Self::new("p50", "p50", 0.5);
    /// The 90th percentile, exceeded by one value in ten.
    pub const P90: Self = Self::new("p90", "p90", 0.9);
    /// The 97th percentile, exceeded by three values in a hundred.
    pub const P97: Self = Self::new("p97", "p97", 0.97);
    /// The 99th percentile, exceeded by one value in a hundred.
    pub const P99: Self = Self::new("p99", "p99", 0.99);
    /// The 99.9th percentile, exceeded by one value in a thousand.
    pub const P99_9: Self = Self::new("p99_9", "p99.9", 0.999);
    /// The largest value.
    pub const MAX: Self = Self::new("max", "max", 1.0);

    /// The percentiles that are told of latencies.
    pub const LATENCY: [Self; 6] = [
        Self::P50,
        Self::P90,
        Self::P97,
        Self::P99,
        Self::P99_9,
        Self::MAX,
    ];

    /// The percentiles that are told of a distribution as a whole.
    pub const ALL: [Self; 11] = [
        Self::new("p1", "p1", 0.01),
        Self::new("p5", "p5", 0.05),
        Self::new("p10", "p10", 0.1),
        Self::new("p25", "p25", 0.25),
        Self::P50,
        Self::new("p75", "p75", 0.75),
        Self::P90,
        Self::new("p95", "p95", 0.95),
        Self::P97,
        Self::P99,
        Self::P99_9,
    ];

    const fn new(name: &'static str, label: &'static str, share: f64) -> Self {
        Self { name, label, share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_say_the_share() {
        for percentile in Percentile::ALL {
            let percent = (percentile.share * 1000.0).round() / 10.0;
            assert_eq!(percentile.label, format!("p{percent}"));
            assert_eq!(percentile.name, percentile.label.replace('.', "_"));
        }
    }
}
