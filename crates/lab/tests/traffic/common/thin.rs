use std::net::SocketAddr;
use std::time::Duration;

use pillion_lab::traffic::{Distribution, Group, Kind, RampUp, SocketOptions, Traffic};

/// Thin streams that are all alike.
#[derive(Debug, Clone)]
pub struct Thin {
    pub to: SocketAddr,
    pub streams: usize,
    pub itt: Duration,
    pub itt_sd: Duration,
    pub size: usize,
    pub duration: Duration,
    pub ramp_up: Option<Duration>,
    pub congestion: Option<String>,
    pub seed: u64,
    pub connect_timeout: Duration,
    pub drain_timeout: Duration,
}

impl From<Thin> for Traffic {
    fn from(thin: Thin) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let itt = match thin.itt_sd.is_zero() {
            true => Distribution::constant(ms(thin.itt)),
            false => Distribution::Normal {
                mean: ms(thin.itt),
                sd: ms(thin.itt_sd),
            },
        };
        let size = Distribution::constant(thin.size as f64);
        let group = Group {
            streams: thin.streams,
            ramp_up: thin.ramp_up.map_or(RampUp::Spread, RampUp::Fixed),
            socket: SocketOptions {
                congestion: thin.congestion,
                ..SocketOptions::default()
            },
            ..Group::new("thin", Kind::Thin { itt, size })
        };
        Self {
            duration: Some(thin.duration),
            seed: thin.seed,
            connect_timeout: thin.connect_timeout,
            drain_timeout: thin.drain_timeout,
            ..Self::new(thin.to, group)
        }
    }
}
