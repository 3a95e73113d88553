use std::time::Duration;

use pillion_path::{Direction, Disorder};

use super::Loss;

/// What the emulator does to the packets of one direction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Emulation {
    /// By how much each packet is delayed.
    pub delay: Duration,
    /// By how much the delay varies.
    pub jitter: Option<Jitter>,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// How many packets come out of order or twice.
    pub disturbance: Option<Disturbance>,
}

/// Variation of the delay: normal, and never so that packets overtake each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// The standard deviation.
    pub sd: Duration,
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
            jitter: emulation.jitter.map_or(Duration::ZERO, |jitter| jitter.sd),
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
