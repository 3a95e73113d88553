use std::time::Duration;

use crate::path::{Direction, Disorder};

use super::Loss;

/// What the emulator does to the packets of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Emulation {
    /// By how much each packet is delayed.
    pub delay: Duration,
    /// The standard deviation of the delay, which varies with time; packets keep their order.
    pub jitter: Option<Duration>,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// How many packets come out of order or twice.
    pub disturbance: Option<Disturbance>,
}

/// Packets out of order or twice.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Disturbance {
    /// Share of packets that are held back, 0 to 1.
    pub reorder: f64,
    /// By how much longer than the others.
    pub late: Duration,
    /// Share of packets that come twice, 0 to 1.
    pub duplicate: f64,
}

impl From<&Emulation> for Direction {
    /// What pillion's own path is to do for it.
    fn from(emulation: &Emulation) -> Self {
        Self {
            jitter: emulation.jitter.unwrap_or_default(),
            loss: emulation.loss.clone().unwrap_or(Loss::Uniform(0.0)),
            disorder: emulation.disturbance.map(|disturbance| Disorder {
                reorder: disturbance.reorder,
                duplicate: disturbance.duplicate,
                late: disturbance.late,
            }),
            ..Self::delayed(emulation.delay)
        }
    }
}
