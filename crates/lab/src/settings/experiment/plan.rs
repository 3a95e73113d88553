use std::collections::BTreeMap;
use std::time::Duration;

use crate::path::{Direction, Own, PathConfig};
use crate::traffic::Manner;

use super::{Bottleneck, Emulation, Measure, OwnWay, Sysctls};
use pillion_cli::settings::Bundling;

/// What a run is, worked out: hosts with all their parameters, what each group sends from which
/// host, and both directions of the path.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// How long messages fall due, from the barrier on.
    pub duration: Duration,
    /// Seed of losses, times, sizes and content.
    pub seed: u64,
    /// The router's way to the receiver.
    pub bottleneck: Bottleneck,
    /// The router's way back.
    pub bottleneck_back: Bottleneck,
    /// What the emulator does to packets on their way to the receiver.
    pub forward: Emulation,
    /// What the emulator does to packets on their way back.
    pub backward: Emulation,
    /// Where streams come from, each at least one group's.
    pub hosts: Vec<SendingHost>,
    /// What is sent.
    pub streams: Vec<Streams>,
    /// Where streams go to.
    pub receiver: ReceivingHost,
    /// Kernel parameters of every host.
    pub sysctls: Sysctls,
    /// What is written down.
    pub measure: Measure,
}

/// A host that streams come from, and its link to the bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendingHost {
    /// The host's name.
    pub name: String,
    /// Rate of its link in bits per second; `None` sets none.
    pub rate_bps: Option<u64>,
    /// Delay of its link, each way.
    pub delay: Duration,
    /// The congestion window that its connections begin with, in segments; `None` for the kernel's.
    pub initial_window: Option<u32>,
    /// Kernel parameters of this host, beside those of all.
    pub sysctls: Sysctls,
}

/// The host that streams go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivingHost {
    /// What its application does with what comes.
    pub manner: Manner,
    /// Whether its TCP may hold an ACK back until there is more to acknowledge.
    pub delayed_acks: bool,
    /// The congestion window that its side of a connection begins with, in segments; `None` for the
    /// kernel's.
    pub initial_window: Option<u32>,
    /// Kernel parameters of this host, beside those of all.
    pub sysctls: Sysctls,
}

/// Streams that are alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Streams {
    /// What they send, and how their sockets are set; its name is the group's.
    pub traffic: crate::traffic::Group,
    /// The host that they come from: an index of [`Plan::hosts`].
    pub host: usize,
    /// Delays of their own, one for each stream and the same each way; none where they have the
    /// path's.
    pub delays: Vec<Duration>,
    /// What else of the path is their own: to the receiver, and back.
    pub ways: [OwnWay; 2],
    /// How pillion bundles them; `None` leaves them plain.
    pub bundling: Option<Bundling>,
}

impl Plan {
    /// What both directions are for pillion's own path.
    #[must_use]
    pub fn path(&self) -> PathConfig {
        let mut config = PathConfig {
            forward: Direction::from(&self.forward),
            backward: Direction::from(&self.backward),
            seed: self.seed,
        };
        for (stream, delay, [to, back]) in self.own() {
            let own = |way: &OwnWay, common: Duration| Own {
                port: source_port(stream),
                delay: delay.unwrap_or(common),
                jitter: way.jitter,
                loss: way.loss.clone(),
            };
            config.forward.own.push(own(to, self.forward.delay));
            config.backward.own.push(own(back, self.backward.delay));
        }
        config
    }

    /// What is done to packets of each stream that has anything of its own, by the stream's number:
    /// to the receiver, and back.
    pub fn own_emulations(&self) -> impl Iterator<Item = (u32, [Emulation; 2])> {
        self.own().map(|(stream, delay, [to, back])| {
            let to = to.emulation(&self.forward, delay);
            (stream, [to, back.emulation(&self.backward, delay)])
        })
    }

    /// Each stream that has anything of the path of its own: its number, its delay each way, and
    /// what else.
    fn own(&self) -> impl Iterator<Item = (u32, Option<Duration>, &[OwnWay; 2])> {
        let mut first = 0;
        self.streams.iter().flat_map(move |streams| {
            let count = streams.traffic.streams as u32;
            let numbers = first..first + count;
            first += count;
            let is_own = !streams.delays.is_empty() || !streams.ways.iter().all(OwnWay::is_common);
            let delays = streams.delays.iter().copied().map(Some);
            let delays = delays.chain(std::iter::repeat(None));
            let own = numbers.zip(delays).filter(move |_| is_own);
            own.map(|(stream, delay)| (stream, delay, &streams.ways))
        })
    }

    /// Kernel parameters that the run sets on each host and on the receiver, by its name.
    #[must_use]
    pub fn sysctls_of_hosts(&self) -> BTreeMap<&str, Sysctls> {
        let hosts = self.hosts.iter().map(|it| (it.name.as_str(), &it.sysctls));
        let all = hosts.chain([("receiver", &self.receiver.sysctls)]);
        let all = all.map(|(name, own)| {
            let mut sysctls = self.sysctls.clone();
            sysctls.extend(own.clone());
            (name, sysctls)
        });
        all.collect()
    }

    /// Whether packets on their way back meet a rate or a queue.
    #[must_use]
    pub fn has_queue_back(&self) -> bool {
        self.bottleneck_back != Bottleneck::default()
    }

    /// The path's own round-trip time, without queues and the links' own delays.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Bytes that a bottleneck sends in one round-trip time, if it has a rate: in the mean one of
    /// all streams, where groups have their own.
    #[must_use]
    pub fn bdp_bytes(&self, of: &Bottleneck) -> Option<f64> {
        let rate = of.rate?;
        Some(rate.bps() as f64 / 8.0 * self.mean_rtt_s())
    }

    fn mean_rtt_s(&self) -> f64 {
        let of_path = self.rtt().as_secs_f64();
        let (mut sum, mut count) = (0.0, 0);
        for streams in &self.streams {
            let own = streams.delays.iter().map(|delay| 2.0 * delay.as_secs_f64());
            let others = streams.traffic.streams - streams.delays.len();
            sum += own.sum::<f64>() + of_path * others as f64;
            count += streams.traffic.streams;
        }
        match count {
            0 => of_path,
            _ => sum / count as f64,
        }
    }
}

/// The source port of the first stream of all; each next one has the next port.
pub const SOURCE_PORTS: u16 = 20_000;

/// The source port of a stream, by its number.
#[must_use]
pub fn source_port(stream: u32) -> u16 {
    SOURCE_PORTS.saturating_add(stream.min(u16::MAX.into()) as u16)
}
