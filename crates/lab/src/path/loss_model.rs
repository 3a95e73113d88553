//! Which packets are lost: from a seed, or from a list.

use std::collections::HashSet;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::path::{Loss, packet::applies_to};

/// Decides which frames are lost, of one direction.
pub(crate) struct LossModel {
    rule: Rule,
    generator: Pcg64,
}

enum Rule {
    Uniform(f64),
    GilbertElliott {
        is_bad: bool,
        /// Probability to change state, in the good state and in the bad one.
        change: [f64; 2],
        /// Probability of a loss, in the good state and in the bad one.
        loss: [f64; 2],
    },
    Listed {
        numbers: HashSet<u64>,
        seen: u64,
    },
}

impl LossModel {
    /// The loss model of a direction, with the next generator from `source`.
    pub fn new(source: &mut Pcg64, loss: &Loss) -> Self {
        let rule = match loss {
            Loss::Uniform(probability) => Rule::Uniform(*probability),
            &Loss::GilbertElliott {
                to_bad,
                to_good,
                in_bad,
                in_good,
            } => Rule::GilbertElliott {
                is_bad: false,
                change: [to_bad, to_good],
                loss: [in_good, in_bad],
            },
            Loss::Listed(numbers) => Rule::Listed {
                numbers: numbers.iter().copied().collect(),
                seen: 0,
            },
        };
        Self {
            rule,
            generator: Pcg64::from_rng(source),
        }
    }

    /// Whether this frame, the next of the sequence, is lost.
    pub fn takes(&mut self, frame: &[u8]) -> bool {
        if !applies_to(frame) {
            return false;
        }
        match &mut self.rule {
            Rule::Uniform(probability) => self.generator.random_bool(*probability),
            Rule::GilbertElliott {
                is_bad,
                change,
                loss,
            } => {
                let state = usize::from(*is_bad);
                let lost = self.generator.random_bool(loss[state]);
                *is_bad ^= self.generator.random_bool(change[state]);
                lost
            }
            Rule::Listed { numbers, seen } => {
                *seen += 1;
                numbers.contains(seen)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::packet::tests::ipv4;

    fn fates(seed: u64, loss: &Loss, packets: usize) -> [Vec<bool>; 2] {
        let mut source = Pcg64::seed_from_u64(seed);
        let packet = ipv4(6, 7);
        [(); 2].map(|()| {
            let mut fates = LossModel::new(&mut source, loss);
            (0..packets).map(|_| fates.takes(&packet)).collect()
        })
    }

    fn uniform(seed: u64, probability: f64) -> [Vec<bool>; 2] {
        fates(seed, &Loss::Uniform(probability), 20_000)
    }

    fn runs(seed: u64, [to_bad, to_good, in_bad, in_good]: [f64; 4]) -> Vec<bool> {
        let loss = Loss::GilbertElliott {
            to_bad,
            to_good,
            in_bad,
            in_good,
        };
        let [forward, _] = fates(seed, &loss, 200_000);
        forward
    }

    fn count(fates: &[bool]) -> usize {
        fates.iter().filter(|lost| **lost).count()
    }

    #[test]
    fn the_same_seed_draws_the_same_fates() {
        assert_eq!(uniform(7, 0.05), uniform(7, 0.05));
        assert_ne!(uniform(7, 0.05), uniform(8, 0.05));
        let model = [0.01, 0.3, 0.8, 0.001];
        assert_eq!(runs(7, model), runs(7, model));
        assert_ne!(runs(7, model), runs(8, model));
    }

    #[test]
    fn the_directions_draw_apart() {
        let [forward, backward] = uniform(7, 0.05);
        assert_ne!(forward, backward);
    }

    #[test]
    fn the_share_lost_is_the_probability() {
        for direction in uniform(1, 0.05) {
            // 1000 expected, standard deviation 31.
            let lost = count(&direction);
            assert!((850..1150).contains(&lost), "{lost} of 20000");
        }
    }

    #[test]
    fn a_packet_lost_at_a_low_probability_is_lost_at_a_higher_one() {
        let ([low, _], [high, _]) = (uniform(3, 0.01), uniform(3, 0.05));
        assert!(low.iter().zip(&high).all(|(low, high)| !low || *high));
    }

    #[test]
    fn the_bounds_are_all_or_nothing() {
        assert!(uniform(1, 0.0).concat().iter().all(|lost| !lost));
        assert!(uniform(1, 1.0).concat().iter().all(|lost| *lost));
    }

    #[test]
    fn losses_in_runs_have_the_share_and_the_length_of_the_model() {
        // In the bad state 0.01 of 0.01 + 0.25 of the time, for 4 packets on average: 7692
        // packets in 1923 runs, standard deviations near 230 and 42.
        let fates = runs(1, [0.01, 0.25, 1.0, 0.0]);
        let lost = count(&fates);
        assert!((6700..8700).contains(&lost), "{lost} of 200000");
        let begins = fates.windows(2).filter(|two| !two[0] && two[1]);
        let length = lost as f64 / begins.count() as f64;
        assert!((3.6..4.4).contains(&length), "{length}");
    }

    #[test]
    fn each_state_loses_with_a_probability_of_its_own() {
        // Good for the first packet alone, and bad ever after.
        let always_bad = runs(1, [1.0, 0.0, 0.5, 0.0]);
        assert!(!always_bad[0], "the state is good at first");
        // 100,000 expected, standard deviation 224.
        let lost = count(&always_bad);
        assert!((98_000..102_000).contains(&lost), "{lost}");
        // Never bad: 20,000 expected, standard deviation 134.
        let lost = count(&runs(1, [0.0, 1.0, 1.0, 0.1]));
        assert!((19_000..21_000).contains(&lost), "{lost}");
        // The states alternate.
        let every_second = runs(1, [1.0, 1.0, 1.0, 0.0]);
        assert!(every_second.chunks(2).all(|two| two == [false, true]));
    }

    #[test]
    fn listed_packets_are_lost_and_no_others() {
        let [forward, backward] = fates(1, &Loss::Listed(vec![3, 1, 20]), 20);
        let lost: Vec<usize> = (1..)
            .zip(&forward)
            .filter(|it| *it.1)
            .map(|it| it.0)
            .collect();
        assert_eq!(lost, [1, 3, 20]);
        assert_eq!(backward, forward);
    }

    #[test]
    fn a_frame_that_keeps_the_link_has_no_number() {
        let loss = Loss::Listed(vec![2]);
        let mut fates = LossModel::new(&mut Pcg64::seed_from_u64(1), &loss);
        let arp = [0; 42];
        assert!(!fates.takes(&ipv4(6, 7)));
        assert!(!fates.takes(&arp));
        assert!(fates.takes(&ipv4(6, 7)));
    }
}
