//! A run for the tests of parts.

use std::time::Duration;

use pillion_traffic::{Distribution, Group, Kind};

use crate::experiment::*;

/// A run of two thin streams and three greedy ones from a host each, 5 Mbit/s, 150 ms.
pub(crate) fn run() -> Run {
    let host = |name: &str| SendingHost {
        name: name.to_owned(),
        ..SendingHost::default()
    };
    let streams = |traffic: Group, streams, host| Streams {
        traffic: Group { streams, ..traffic },
        host,
        round_trips: None,
        bundling: None,
    };
    let thin = Kind::Thin {
        itt: Distribution::constant(30.0),
        size: Distribution::constant(120.0),
    };
    let greedy = Kind::Greedy { write: 1448 };
    let way = Emulation {
        delay: Duration::from_millis(75),
        ..Emulation::default()
    };
    Run {
        duration: Duration::from_secs(1),
        seed: 1,
        bottleneck: Bottleneck {
            rate_bps: Some(5_000_000),
            shaper: Shaper::Htb,
            burst_bytes: 1520,
            queue: Queue {
                discipline: Discipline::Pfifo,
                limit: Some(Limit::Packets(63)),
                options: Vec::new(),
            },
        },
        forward: way.clone(),
        backward: way,
        hosts: vec![host("sender"), host("cross")],
        streams: vec![
            streams(Group::new("thin", thin), 2, 0),
            streams(Group::new("greedy", greedy), 3, 1),
        ],
        sysctls: Sysctls::new(),
        measure: Measure::default(),
    }
}
