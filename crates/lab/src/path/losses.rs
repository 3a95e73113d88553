//! Which frames of a direction are lost, those of single ports apart.

use rand_pcg::Pcg64;

use crate::path::{Direction, by_port::ByPort, loss_model::LossModel};

pub(crate) struct Losses {
    common: LossModel,
    own: ByPort<LossModel>,
}

impl Losses {
    /// The losses of a direction, with the next generators from `source`: one for all, and one for
    /// each port that has losses of its own.
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

    /// Whether this frame, the next of the sequence, is lost.
    pub fn takes(&mut self, frame: &[u8]) -> bool {
        self.own.of(frame).unwrap_or(&mut self.common).takes(frame)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use crate::path::{Loss, Own, packet::tests::ipv4};

    #[test]
    fn a_port_s_own_losses_change_no_others() {
        let fates = |own| {
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
                count[0] = count[0] << 1 ^ u64::from(losses.takes(&other)) ^ count[0] >> 63;
                count[1] += u64::from(losses.takes(&own));
            }
            count
        };
        let losing = |share| Own {
            loss: Some(Loss::Uniform(share)),
            ..Own::delayed(20_001, std::time::Duration::ZERO)
        };
        let [all, none] = [1.0, 0.0].map(|share| fates(vec![losing(share)]));
        assert_eq!([all[1], none[1]], [1000, 0]);
        assert_eq!(all[0], none[0]);
        assert_ne!(all[0], 0);
    }
}
