use rand::SeedableRng;
use rand_pcg::Pcg64;

use super::*;

const DRAWS: usize = 200_000;

fn drawn(distribution: &Distribution) -> Vec<f64> {
    let mut draws = Pcg64::seed_from_u64(1);
    let mut values: Vec<f64> = (0..DRAWS).map(|_| distribution.draw(&mut draws)).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Rows are printed in whole numbers, so that half of one is right; `share` covers what is left
/// to chance.
fn near(what: &str, found: f64, printed: f64, share: f64) {
    let tolerance = 0.5 + share * printed;
    assert!(
        (found - printed).abs() <= tolerance,
        "{what}: {found}, printed {printed}"
    );
}

#[test]
fn the_rows_of_all_tables_are_there() {
    let profiles = profiles();
    let in_source = |source| {
        profiles
            .iter()
            .filter(|p| p.sources.contains(source))
            .count()
    };
    assert_eq!(
        (in_source("001"), in_source("002"), in_source("000")),
        (19, 7, 6)
    );
    assert!(profiles.iter().all(|profile| profile.kind().is_ok()));
}

#[test]
fn times_reproduce_their_row() {
    for profile in profiles() {
        let Kind::Thin { itt, .. } = profile.kind().unwrap() else {
            panic!("{profile:?}")
        };
        let values = drawn(&itt);
        let (name, row) = (&profile.name, profile.iat);
        let at = |share: f64| values[((share * DRAWS as f64) as usize).min(DRAWS - 1)];
        for (share, printed, tolerance) in [
            (0.0, row.min, 0.0),
            // Three deviations of the rank are 1 % +- 0.07 %, 50 +- 0.34 % and 99 +- 0.07 %, and the
            // more the pieces are bent, the steeper they end: by up to 24 times at the median.
            (0.01, row.p1, 0.06),
            (0.5, row.med, 0.08),
            (0.99, row.p99, 0.06),
            // Of the 2,000 draws above 99 % the largest comes within a few per cent.
            (1.0, Time::Ms(row.max), 0.05),
        ] {
            let what = format!("{name} at {share}");
            match printed {
                Time::Ms(ms) => near(&what, at(share), ms, tolerance),
                Time::Below(_) => assert!(at(share) < 1.0, "{what}: {}", at(share)),
            }
        }
        assert!(
            (itt.mean() - row.avg).abs() < 0.01 * row.avg,
            "{name}: {}",
            itt.mean()
        );
        let mean = values.iter().sum::<f64>() / DRAWS as f64;
        // The rare longest times decide over the mean: SSH's deviation is 5 times its mean.
        assert!(
            (mean - row.avg).abs() < 0.06 * row.avg,
            "{name}: mean {mean}"
        );
    }
}

#[test]
fn sizes_reproduce_their_row() {
    for profile in profiles() {
        let Kind::Thin { size, .. } = profile.kind().unwrap() else {
            panic!("{profile:?}")
        };
        let values = drawn(&size);
        let (name, row) = (&profile.name, profile.size);
        assert_eq!((values[0], values[DRAWS - 1]), (row.min, row.max), "{name}");
        let mean = values.iter().sum::<f64>() / DRAWS as f64;
        near(name, mean, row.avg, 0.02);
    }
}
