//! Loss models of a path, also for single ports.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::path::packet::{ByPort, is_impairable};
use crate::path::{Direction, Loss};

/// Decides which frames of one direction are lost.
pub(crate) struct LossModel {
    rule: Rule,
    generator: Pcg64,
}

enum Rule {
    Uniform(f64),
    GilbertElliott {
        is_bad: bool,
        /// Probabilities of a state change, in the good state and in the bad one.
        change: [f64; 2],
        /// Probabilities of a loss, in the good state and in the bad one.
        loss: [f64; 2],
    },
    Listed {
        numbers: HashSet<u64>,
        seen: u64,
    },
    Steps {
        /// Times after the first packet and probabilities, the latest first.
        latest: Vec<(Duration, f64)>,
        first: Option<Instant>,
    },
}

impl LossModel {
    /// Creates the loss model of a direction, with the next generator from `source`.
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
            Loss::Steps(steps) => Rule::Steps {
                latest: steps
                    .iter()
                    .rev()
                    .map(|step| (Duration::from_secs_f64(step.start_s), step.loss))
                    .collect(),
                first: None,
            },
        };
        Self {
            rule,
            generator: Pcg64::from_rng(source),
        }
    }

    /// Returns whether this frame, the next of the sequence, is lost.
    pub fn is_lost(&mut self, now: Instant, frame: &[u8]) -> bool {
        if !is_impairable(frame) {
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
            Rule::Steps { latest, first } => {
                let age = now.saturating_duration_since(*first.get_or_insert(now));
                let step = latest.iter().find(|(start, _)| *start <= age);
                let loss = step.map_or(0.0, |(_, loss)| *loss);
                self.generator.random_bool(loss)
            }
        }
    }
}

// Loss models of a direction, with separate ones for single ports.

pub(crate) struct Losses {
    common: LossModel,
    own: ByPort<LossModel>,
}

impl Losses {
    /// Creates the losses of a direction, with the next generators from `source`: one for all
    /// packets, and one for each port with its own losses.
    pub fn new(source: &mut Pcg64, direction: &Direction) -> Self {
        let common = LossModel::new(source, &direction.loss);
        let own = direction.own.iter().filter_map(|own| {
            let loss = own.loss.as_ref()?;
            Some((own.port, LossModel::new(source, loss)))
        });
        Self {
            common,
            own: own.collect(),
        }
    }

    /// Returns whether this frame, the next of the sequence, is lost.
    pub fn is_lost(&mut self, now: Instant, frame: &[u8]) -> bool {
        self.own
            .of(frame)
            .unwrap_or(&mut self.common)
            .is_lost(now, frame)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::path::packet::tests::ipv4;
    use crate::path::{LossStep, PortOverride};

    fn losses(seed: u64, loss: &Loss, packets: usize) -> [Vec<bool>; 2] {
        let mut source = Pcg64::seed_from_u64(seed);
        let packet = ipv4(6, 7);
        [(); 2].map(|()| {
            let mut losses = LossModel::new(&mut source, loss);
            let now = Instant::now();
            (0..packets).map(|_| losses.is_lost(now, &packet)).collect()
        })
    }

    fn uniform(seed: u64, probability: f64) -> [Vec<bool>; 2] {
        losses(seed, &Loss::Uniform(probability), 20_000)
    }

    fn runs(seed: u64, [to_bad, to_good, in_bad, in_good]: [f64; 4]) -> Vec<bool> {
        let loss = Loss::GilbertElliott {
            to_bad,
            to_good,
            in_bad,
            in_good,
        };
        let [forward, _] = losses(seed, &loss, 200_000);
        forward
    }

    fn count(losses: &[bool]) -> usize {
        losses.iter().filter(|lost| **lost).count()
    }

    #[test]
    fn same_seed_gives_same_losses() {
        assert_eq!(uniform(7, 0.05), uniform(7, 0.05));
        assert_ne!(uniform(7, 0.05), uniform(8, 0.05));
        let model = [0.01, 0.3, 0.8, 0.001];
        assert_eq!(runs(7, model), runs(7, model));
        assert_ne!(runs(7, model), runs(8, model));
    }

    #[test]
    fn directions_have_independent_losses() {
        let [forward, backward] = uniform(7, 0.05);
        assert_ne!(forward, backward);
    }

    #[test]
    fn loss_share_matches_probability() {
        for direction in uniform(1, 0.05) {
            // Expected 1000, standard deviation 31.
            let lost = count(&direction);
            assert!((850..1150).contains(&lost), "{lost} of 20000");
        }
    }

    #[test]
    fn packet_lost_at_low_probability_is_lost_at_higher() {
        let ([low, _], [high, _]) = (uniform(3, 0.01), uniform(3, 0.05));
        assert!(low.iter().zip(&high).all(|(low, high)| !low || *high));
    }

    #[test]
    fn probability_bounds_affect_all_or_none() {
        assert!(uniform(1, 0.0).concat().iter().all(|lost| !lost));
        assert!(uniform(1, 1.0).concat().iter().all(|lost| *lost));
    }

    #[test]
    fn burst_losses_match_share_and_length_of_model() {
        // Share of the bad state: 0.01 of 0.01 + 0.25; mean burst of 4 packets. That makes 7692
        // losses in 1923 bursts, standard deviations near 230 and 42.
        let losses = runs(1, [0.01, 0.25, 1.0, 0.0]);
        let lost = count(&losses);
        assert!((6700..8700).contains(&lost), "{lost} of 200000");
        let burst_starts = losses.windows(2).filter(|two| !two[0] && two[1]);
        let length = lost as f64 / burst_starts.count() as f64;
        assert!((3.6..4.4).contains(&length), "{length}");
    }

    #[test]
    fn each_state_has_its_own_loss_probability() {
        // Good for the first packet only, bad afterwards.
        let always_bad = runs(1, [1.0, 0.0, 0.5, 0.0]);
        assert!(!always_bad[0], "the state is good at first");
        // Expected 100,000, standard deviation 224.
        let lost = count(&always_bad);
        assert!((98_000..102_000).contains(&lost), "{lost}");
        // Never bad: expected 20,000, standard deviation 134.
        let lost = count(&runs(1, [0.0, 1.0, 1.0, 0.1]));
        assert!((19_000..21_000).contains(&lost), "{lost}");
        // The states alternate.
        let every_second = runs(1, [1.0, 1.0, 1.0, 0.0]);
        assert!(every_second.chunks(2).all(|two| two == [false, true]));
    }

    #[test]
    fn only_listed_packets_are_lost() {
        let [forward, backward] = losses(1, &Loss::Listed(vec![3, 1, 20]), 20);
        let lost: Vec<usize> = (1..)
            .zip(&forward)
            .filter(|it| *it.1)
            .map(|it| it.0)
            .collect();
        assert_eq!(lost, [1, 3, 20]);
        assert_eq!(backward, forward);
    }

    #[test]
    fn loss_changes_at_start_of_each_step() {
        let step = |start_s, loss| LossStep { start_s, loss };
        let steps = Loss::Steps(vec![step(0.0, 0.0), step(2.0, 1.0), step(3.0, 0.0)]);
        let mut losses = LossModel::new(&mut Pcg64::seed_from_u64(1), &steps);
        let first = Instant::now();
        let lost = [0, 1999, 2000, 2999, 3000, 9000].map(|ms| {
            let now = first + Duration::from_millis(ms);
            losses.is_lost(now, &ipv4(6, 7))
        });
        assert_eq!(lost, [false, false, true, true, false, false]);
    }

    #[test]
    fn steps_that_do_not_ascend_from_0_are_invalid() {
        let invalid = |steps: &[(f64, f64)]| {
            let steps = steps
                .iter()
                .map(|&(start_s, loss)| LossStep { start_s, loss });
            let invalid = Loss::Steps(steps.collect()).invalid_parameter();
            invalid.map(|(name, ..)| name)
        };
        assert_eq!(invalid(&[(0.0, 0.0), (2.0, 1.0)]), None);
        for steps in [
            &[][..],
            &[(1.0, 0.0)],
            &[(0.0, 0.0), (0.0, 0.1)],
            &[(0.0, 0.0), (f64::NAN, 0.1)],
        ] {
            assert_eq!(invalid(steps), Some("loss.start_s"), "{steps:?}");
        }
        assert_eq!(invalid(&[(0.0, 1.5)]), Some("loss.loss"));
    }

    #[test]
    fn link_maintenance_frame_is_not_numbered() {
        let loss = Loss::Listed(vec![2]);
        let mut losses = LossModel::new(&mut Pcg64::seed_from_u64(1), &loss);
        let arp = [0; 42];
        assert!(!losses.is_lost(Instant::now(), &ipv4(6, 7)));
        assert!(!losses.is_lost(Instant::now(), &arp));
        assert!(losses.is_lost(Instant::now(), &ipv4(6, 7)));
    }

    #[test]
    fn port_losses_do_not_change_other_losses() {
        let losses = |own| {
            let direction = Direction {
                loss: Loss::Uniform(0.3),
                own,
                ..Direction::delayed(std::time::Duration::ZERO)
            };
            let source = &mut Pcg64::seed_from_u64(1);
            let mut losses = Losses::new(source, &direction);
            let [other, own] = [7, 20_001].map(|port| ipv4(6, port));
            let mut count = [0, 0];
            for _ in 0..1000 {
                count[0] = count[0] << 1
                    ^ u64::from(losses.is_lost(Instant::now(), &other))
                    ^ count[0] >> 63;
                count[1] += u64::from(losses.is_lost(Instant::now(), &own));
            }
            count
        };
        let lossy = |share| PortOverride {
            loss: Some(Loss::Uniform(share)),
            ..PortOverride::delayed(20_001, std::time::Duration::ZERO)
        };
        let [all, none] = [1.0, 0.0].map(|share| losses(vec![lossy(share)]));
        assert_eq!([all[1], none[1]], [1000, 0]);
        assert_eq!(all[0], none[0]);
        assert_ne!(all[0], 0);
    }
}
