//! Resolves a run: hosts, streams, and both directions of the path.

use std::collections::BTreeMap;
use std::time::Duration;

use pillion_cli::settings::{Bundling, unused_key};

use super::{
    Bottleneck, Emulation, Group, Limit, Measure, Mechanism, Mechanisms, PathOverride, RoundTrips,
    Run, Sysctls,
};
use crate::path::{Direction, MAX_QUEUE, PathConfig, PortOverride};
use crate::settings::traffic::{InvalidOption, option_of_error};
use crate::traffic::{Kind, ReceiveBehaviour};

/// Resolved run: hosts with all their parameters, the streams of each host, and both directions of
/// the path.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Time during which messages are due, from when all connections are established.
    pub duration: Duration,
    /// Seed of losses, times, sizes and content.
    pub seed: u64,
    /// Router in the direction toward the receiver.
    pub bottleneck: Bottleneck,
    /// Router in the direction toward the senders.
    pub bottleneck_back: Bottleneck,
    /// Emulator in the direction toward the receiver.
    pub forward: Emulation,
    /// Emulator in the direction toward the senders.
    pub backward: Emulation,
    /// Sending hosts; each has at least one group.
    pub hosts: Vec<SendingHost>,
    /// Groups of streams.
    pub streams: Vec<Streams>,
    /// Receiving host.
    pub receiver: ReceivingHost,
    /// Kernel parameters of every host.
    pub sysctls: Sysctls,
    /// Recorded data.
    pub measure: Measure,
}

/// Sending host, and its link to the bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendingHost {
    /// The host's name.
    pub name: String,
    /// Rate of its link in bit/s; `None`: no limit.
    pub rate_bps: Option<u64>,
    /// Delay of its link in each direction.
    pub delay: Duration,
    /// Whether its device has the queueing discipline fq.
    pub fq: bool,
    /// Initial congestion window of its connections, in segments; `None`: the kernel's.
    pub initial_window: Option<u32>,
    /// Further kernel parameters of this host.
    pub sysctls: Sysctls,
}

/// Receiving host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivingHost {
    /// Behaviour of the receiving application.
    pub behaviour: ReceiveBehaviour,
    /// Whether TCP may delay ACKs.
    pub delayed_acks: bool,
    /// Initial congestion window of its side of the connections, in segments; `None`: the kernel's.
    pub initial_window: Option<u32>,
    /// Further kernel parameters of this host.
    pub sysctls: Sysctls,
}

/// Streams of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Streams {
    /// Traffic and socket options; its name is the group's.
    pub traffic: crate::traffic::Group,
    /// Index of the host in [`Plan::hosts`].
    pub host: usize,
    /// Delays in each direction, one per stream; empty: the path's delay.
    pub delays: Vec<Duration>,
    /// Differences from the common path: toward the receiver, and toward the senders.
    pub overrides: [PathOverride; 2],
    /// Bundling by pillion; `None`: plain TCP.
    pub bundling: Option<Bundling>,
}

/// Contradiction between parts of a run that are valid by themselves.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Contradiction {
    /// Keys that lead to the value to change.
    pub path: Vec<String>,
    /// Mistake and remedy.
    pub text: String,
}

impl Contradiction {
    pub(super) fn new(path: &[&str], text: impl Into<String>) -> Self {
        Self {
            path: path.iter().map(ToString::to_string).collect(),
            text: text.into(),
        }
    }

    /// Reports an option of the table at these keys.
    pub(super) fn of(table: &[&str], InvalidOption { option, text }: InvalidOption) -> Self {
        Self::new(&[table, &[option]].concat(), text)
    }
}

impl Plan {
    /// Returns both directions for pillion's own path.
    #[must_use]
    pub fn path(&self) -> PathConfig {
        let mut config = PathConfig {
            forward: self.direction(&self.forward, &self.bottleneck),
            backward: self.direction(&self.backward, &self.bottleneck_back),
            seed: self.seed,
        };
        for (stream, delay, [to, back]) in self.own() {
            let own = |way: &PathOverride, common: Duration| PortOverride {
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

    /// Returns each stream that has a path of its own: the stream's number, and its emulation
    /// toward the receiver and back.
    pub fn stream_emulations(&self) -> impl Iterator<Item = (u32, [Emulation; 2])> {
        self.own().map(|(stream, delay, [to, back])| {
            let to = to.emulation(&self.forward, delay);
            (stream, [to, back.emulation(&self.backward, delay)])
        })
    }

    /// Returns each stream that has a path of its own: its number, its delay in each direction, and
    /// its other differences.
    fn own(&self) -> impl Iterator<Item = (u32, Option<Duration>, &[PathOverride; 2])> {
        let mut first = 0;
        self.streams.iter().flat_map(move |streams| {
            let count = streams.traffic.streams as u32;
            let numbers = first..first + count;
            first += count;
            let is_own =
                !streams.delays.is_empty() || !streams.overrides.iter().all(PathOverride::is_empty);
            let delays = streams.delays.iter().copied().map(Some);
            let delays = delays.chain(std::iter::repeat(None));
            let own = numbers.zip(delays).filter(move |_| is_own);
            own.map(|(stream, delay)| (stream, delay, &streams.overrides))
        })
    }

    /// Returns the kernel parameters of each host and of the receiver, by name.
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

    /// Returns whether the link toward the receiver, and the one back, is recorded.
    #[must_use]
    pub fn is_recorded(&self) -> [bool; 2] {
        [&self.bottleneck, &self.bottleneck_back].map(|it| it.trace.is_some())
    }

    /// Returns whether the direction toward the senders has a rate or a queue.
    #[must_use]
    pub fn has_queue_back(&self) -> bool {
        self.bottleneck_back != Bottleneck::default()
    }

    /// Returns the path's round-trip time, without queues and delays of links.
    #[must_use]
    pub fn rtt(&self) -> Duration {
        self.forward.delay + self.backward.delay
    }

    /// Returns the bandwidth-delay product of a bottleneck in bytes; `None` without a rate. The
    /// delay is the mean round-trip time of all streams.
    #[must_use]
    pub fn bdp_bytes(&self, of: &Bottleneck) -> Option<f64> {
        Some(of.mean_bps()? as f64 / 8.0 * self.mean_rtt_s())
    }

    /// Returns the limit of a bottleneck's queue in packets or bytes, whichever its discipline
    /// counts; `None`: the discipline's default.
    #[must_use]
    pub fn queue_limit(&self, of: &Bottleneck) -> Option<u64> {
        const PACKET: f64 = 1500.0;
        Some(match of.limit? {
            Limit::Packets(count) | Limit::Bytes(count) => count.into(),
            Limit::BandwidthDelayProducts(products) => {
                let bytes = products * self.bdp_bytes(of)?;
                // Rounded up, as in the thesis, section 4.1.
                match of.queue.counts_bytes() {
                    true => bytes.ceil() as u64,
                    false => (bytes / PACKET).ceil() as u64,
                }
            }
        })
    }

    /// Returns one direction for pillion's own path, with its link if that is recorded.
    fn direction(&self, emulation: &Emulation, bottleneck: &Bottleneck) -> Direction {
        // `check_queue` reports a longer one with its place.
        let limit = self.queue_limit(bottleneck);
        let limit = limit.map(|limit| (limit as usize).min(MAX_QUEUE));
        let direction = Direction::from(emulation);
        match &bottleneck.trace {
            None => direction,
            Some(trace) => Direction {
                trace: Some(trace.clone()),
                queue_packets: limit.unwrap_or(DEFAULT_QUEUE),
                ..direction
            },
        }
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

/// Maximum packets in front of a recorded link without `limit`: as of pfifo at a device of the
/// testbed.
const DEFAULT_QUEUE: usize = 1000;

/// Source port of the first stream; the following ones count up.
pub const SOURCE_PORTS: u16 = 20_000;

/// Returns the source port of a stream.
#[must_use]
pub fn source_port(stream: u32) -> u16 {
    SOURCE_PORTS.saturating_add(stream.min(u16::MAX.into()) as u16)
}

impl Run {
    /// Resolves the run.
    ///
    /// # Errors
    /// The first contradiction between parts that are valid by themselves.
    pub fn plan(&self) -> Result<Plan, Contradiction> {
        let behaviour = self.receiver.application.behaviour();
        let behaviour = behaviour.map_err(|invalid| Contradiction::of(&["receiver"], invalid))?;
        let mut plan = Plan {
            duration: self.duration.0,
            seed: self.seed.into(),
            bottleneck: self.bottleneck.forward.clone(),
            bottleneck_back: self.bottleneck.back.clone(),
            forward: self.path.forward(),
            backward: self.path.backward(),
            hosts: self.configured_hosts(),
            streams: Vec::new(),
            receiver: self.receiving_host(behaviour),
            sysctls: self.sysctl.clone(),
            measure: self.measure,
        };
        if plan.duration.is_zero() {
            let text = "missing `duration`; set the seconds of sending";
            return Err(Contradiction::new(&["duration"], text));
        }
        if self.group.is_empty() {
            let text = "missing group; start one with [group.NAME]";
            return Err(Contradiction::new(&["group"], text));
        }
        for (name, group) in &self.group {
            plan.add(name, group)?;
        }
        for (name, group) in &self.group {
            plan.check_requests(name, group)?;
        }
        plan.check()?;
        Ok(plan)
    }

    fn receiving_host(&self, behaviour: ReceiveBehaviour) -> ReceivingHost {
        let mut sysctls = self.receiver.mechanisms.sysctls();
        sysctls.extend(self.receiver.sysctl.clone());
        ReceivingHost {
            behaviour,
            delayed_acks: self.receiver.delayed_acks,
            initial_window: self.receiver.mechanisms.initial_window,
            sysctls,
        }
    }

    fn configured_hosts(&self) -> Vec<SendingHost> {
        let hosts = self.host.iter().map(|(name, host)| {
            let mut sysctls = host.mechanisms.sysctls();
            sysctls.extend(host.sysctl.clone());
            SendingHost {
                name: name.to_string(),
                rate_bps: host.rate.map(super::Rate::bps),
                delay: host.delay,
                fq: host.fq,
                initial_window: host.mechanisms.initial_window,
                sysctls,
            }
        });
        hosts.collect()
    }
}

impl Plan {
    fn add(&mut self, name: &str, group: &Group) -> Result<(), Contradiction> {
        check_duplicates(name, group)?;
        if let Some((key, text)) = group.bundle.and_then(|how| unused_key(&how.options)) {
            return Err(Contradiction::new(&["group", name, "bundle", key], text));
        }
        let traffic = group.traffic.group();
        let traffic = traffic.map_err(|invalid| Contradiction::of(&["group", name], invalid))?;
        let host = self.host(name, group)?;
        if group.bundle.is_some() && matches!(traffic.kind, Kind::Datagrams { .. }) {
            let text = "datagrams cannot be bundled; remove `bundle`";
            return Err(Contradiction::new(&["group", name, "bundle"], text));
        }
        if group.connects_at_start
            && matches!(traffic.kind, Kind::Datagrams { .. } | Kind::Flow { .. })
        {
            let text = "`connects-at-start` does not apply to flows and datagrams; remove it";
            let path = ["group", name, "connects-at-start"];
            return Err(Contradiction::new(&path, text));
        }
        let traffic = crate::traffic::Group {
            name: name.to_owned(),
            connects_at_start: group.connects_at_start,
            ..traffic
        };
        let validated = traffic.validate(Some(self.duration), self.seed);
        validated.map_err(|error| {
            let path = ["group", name, option_of_error(&error)];
            Contradiction::new(&path, error.to_string())
        })?;
        let first: usize = self.streams.iter().map(|it| it.traffic.streams).sum();
        let own = group.rtt.as_ref();
        let delays = own.map(|own| self.delays_of(own, first, traffic.streams));
        self.streams.push(Streams {
            traffic,
            host,
            delays: delays.unwrap_or_default(),
            overrides: [group.forward.clone(), group.back.clone()],
            bundling: group.bundle,
        });
        Ok(())
    }

    /// Returns half of each stream's round-trip time.
    fn delays_of(&self, own: &RoundTrips, first: usize, count: usize) -> Vec<Duration> {
        let times = own.times(self.seed ^ first as u64).take(count);
        times.map(|time| time / 2).collect()
    }

    /// Returns the index of a group's host, and adds the host if the group has its own.
    fn host(&mut self, group: &str, of: &Group) -> Result<usize, Contradiction> {
        let name = of.host.as_deref().unwrap_or(group);
        let known = self.hosts.iter().position(|host| host.name == name);
        let index = match (known, &of.host) {
            (Some(index), _) => index,
            (None, Some(name)) => {
                let text = format!("unknown host `{name}`; describe it in [host.{name}]");
                return Err(Contradiction::new(&["group", group, "host"], text));
            }
            (None, None) => {
                self.hosts.push(SendingHost {
                    name: name.to_owned(),
                    ..SendingHost::default()
                });
                self.hosts.len() - 1
            }
        };
        self.set(index, group, &of.mechanisms)?;
        Ok(index)
    }

    fn set(
        &mut self,
        index: usize,
        group: &str,
        mechanisms: &Mechanisms,
    ) -> Result<(), Contradiction> {
        let host = &mut self.hosts[index];
        let set = mechanisms.sysctls();
        let contradicts = |(name, value): &(&String, &String)| {
            host.sysctls.get(*name).is_some_and(|other| other != *value)
        };
        let window = mechanisms.initial_window;
        let differs = window.is_some() && host.initial_window.is_some_and(|it| Some(it) != window);
        let parameter = set.iter().find(contradicts).map(|(name, _)| name.as_str());
        if let Some(name) = parameter.or(differs.then_some("the initial window")) {
            let text = format!(
                "another group or the host's table sets {name} differently on host `{}`; give \
                 this group its own host",
                host.name
            );
            return Err(Contradiction::new(&["group", group, "mechanisms"], text));
        }
        host.initial_window = host.initial_window.or(window);
        host.sysctls.extend(set);
        Ok(())
    }

    /// Checks that a group which sends requests to pillion has a pillion on its host.
    fn check_requests(&self, name: &str, group: &Group) -> Result<(), Contradiction> {
        let own = self.streams.iter().find(|it| it.traffic.name == name);
        let Some(own) = own else { return Ok(()) };
        let mut on_host = self.streams.iter().filter(|it| it.host == own.host);
        if on_host.any(|streams| streams.bundling.is_some()) {
            return Ok(());
        }
        let requested = [
            ("pillion", group.traffic.pillion.is_some()),
            ("max-packets", group.traffic.max_packets.is_some()),
        ];
        match requested.into_iter().find(|(_, requested)| *requested) {
            Some((key, _)) => {
                let text = format!(
                    "`{key}` is a request, but pillion does not run on this host; set `bundle` as well"
                );
                Err(Contradiction::new(&["group", name, key], text))
            }
            None => Ok(()),
        }
    }
}

/// Checks that settings which exist in several tables of a group are set only once.
fn check_duplicates(name: &str, group: &Group) -> Result<(), Contradiction> {
    let tcp_options = group.bundle.map(|how| how.tcp_options).unwrap_or_default();
    let options = group.bundle.map(|how| how.options).unwrap_or_default();
    let traffic = &group.traffic;
    let mechanism = group.mechanisms.has(Mechanism::LinearTimeouts);
    let all = [
        (
            "linear-timeouts",
            vec![
                (None, traffic.linear_timeouts),
                (Some("mechanisms"), mechanism),
                (Some("bundle"), tcp_options.linear_timeouts),
            ],
        ),
        (
            "congestion",
            vec![
                (None, traffic.congestion.is_some()),
                (Some("bundle"), tcp_options.congestion.is_some()),
            ],
        ),
        (
            "max-packets",
            vec![
                (None, traffic.max_packets.is_some()),
                (Some("bundle"), options.max_packets.is_some()),
            ],
        ),
    ];
    for (key, tables) in all {
        let set_in = tables.into_iter().filter(|(_, is_set)| *is_set);
        let mut set_in = set_in.map(|(table, _)| table);
        let Some(first) = set_in.next() else { continue };
        if let Some(second) = set_in.next() {
            let first = first.map_or("the group itself".to_owned(), |it| format!("`{it}`"));
            let text = format!("`{key}` is also set in {first}; remove one of them");
            let path = ["group", name].into_iter().chain(second).chain([key]);
            return Err(Contradiction::new(&path.collect::<Vec<_>>(), text));
        }
    }
    Ok(())
}
