//! Packets out of their order, and packets that come twice, from a seed.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use crate::path::{Disorder, packet::applies_to};

/// What happens to the order of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The packet stays where it is.
    Kept,
    /// The packet is held back, so that those behind overtake it.
    HeldBack,
    /// A copy of the packet follows, held back.
    Duplicated,
}

/// Draws the turns of the frames of one direction.
pub(crate) struct Turns {
    reorder: f64,
    duplicate: f64,
    generator: Pcg64,
}

impl Turns {
    /// The turns of a direction, with the next generator from `source`, for probabilities of 0 to 1
    /// that together do not exceed 1.
    pub fn new(source: &mut Pcg64, disorder: Option<Disorder>) -> Self {
        let Disorder {
            reorder, duplicate, ..
        } = disorder.unwrap_or_default();
        Self {
            reorder,
            duplicate,
            generator: Pcg64::from_rng(source),
        }
    }

    /// The turn of this frame, the next of the sequence.
    pub fn of(&mut self, frame: &[u8]) -> Turn {
        if self.reorder + self.duplicate == 0.0 || !applies_to(frame) {
            return Turn::Kept;
        }
        let drawn: f64 = self.generator.random();
        if drawn < self.reorder {
            Turn::HeldBack
        } else if drawn < self.reorder + self.duplicate {
            Turn::Duplicated
        } else {
            Turn::Kept
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn turns(seed: u64, reorder: f64, duplicate: f64) -> Vec<Turn> {
        let disorder = Disorder {
            reorder,
            duplicate,
            late: Duration::ZERO,
        };
        let mut turns = Turns::new(&mut Pcg64::seed_from_u64(seed), Some(disorder));
        let mut frame = [0; 54];
        frame[12] = 8;
        (0..20_000).map(|_| turns.of(&frame)).collect()
    }

    #[test]
    fn the_shares_are_the_probabilities() {
        let turns = turns(1, 0.05, 0.02);
        let share = |turn| turns.iter().filter(|other| **other == turn).count();
        // 1000 and 400 expected, standard deviations 31 and 20.
        assert!((850..1150).contains(&share(Turn::HeldBack)));
        assert!((300..500).contains(&share(Turn::Duplicated)));
    }

    #[test]
    fn the_same_seed_draws_the_same_turns() {
        assert_eq!(turns(7, 0.05, 0.05), turns(7, 0.05, 0.05));
        assert_ne!(turns(7, 0.05, 0.05), turns(8, 0.05, 0.05));
    }

    #[test]
    fn the_bounds_are_all_or_nothing() {
        assert!(turns(1, 0.0, 0.0).iter().all(|turn| *turn == Turn::Kept));
        assert!(
            turns(1, 1.0, 0.0)
                .iter()
                .all(|turn| *turn == Turn::HeldBack)
        );
        assert!(
            turns(1, 0.0, 1.0)
                .iter()
                .all(|turn| *turn == Turn::Duplicated)
        );
    }
}
