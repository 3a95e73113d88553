//! A run worked out: hosts, streams, and both directions of the path.

use std::collections::BTreeMap;
use std::time::Duration;

use pillion_cli::settings::{Bundling, idle_key};

use super::{
    Bottleneck, Contradiction, Emulation, Group, Measure, Mechanism, Mechanisms, OwnWay,
    RoundTrips, Run, Sysctls,
};
use crate::path::{Direction, Own, PathConfig};
use crate::settings::traffic::option_of;
use crate::traffic::{Kind, Manner};

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

impl Run {
    /// What it is, worked out.
    ///
    /// # Errors
    /// The first of what parts of it that are right each by itself contradict each other in.
    pub fn plan(&self) -> Result<Plan, Contradiction> {
        let manner = self.receiver.application.manner();
        let manner = manner.map_err(|wrong| Contradiction::of(&["receiver"], wrong))?;
        let mut plan = Plan {
            duration: self.duration.0,
            seed: self.seed.into(),
            bottleneck: self.bottleneck.forward.clone(),
            bottleneck_back: self.bottleneck.back.clone(),
            forward: self.path.forward(),
            backward: self.path.backward(),
            hosts: self.described_hosts(),
            streams: Vec::new(),
            receiver: self.receiving_host(manner),
            sysctls: self.sysctl.clone(),
            measure: self.measure,
        };
        if plan.duration.is_zero() {
            let text = "no `duration`; say for how many seconds the streams send";
            return Err(Contradiction::new(&["duration"], text));
        }
        if self.group.is_empty() {
            let text = "no group of streams; begin one with [group.NAME]";
            return Err(Contradiction::new(&["group"], text));
        }
        for (name, group) in &self.group {
            plan.add(name, group)?;
        }
        for (name, group) in &self.group {
            plan.check_switch(name, group)?;
        }
        plan.check()?;
        Ok(plan)
    }

    fn receiving_host(&self, manner: Manner) -> ReceivingHost {
        let mut sysctls = self.receiver.mechanisms.sysctls();
        sysctls.extend(self.receiver.sysctl.clone());
        ReceivingHost {
            manner,
            delayed_acks: self.receiver.delayed_acks,
            initial_window: self.receiver.mechanisms.initial_window,
            sysctls,
        }
    }

    fn described_hosts(&self) -> Vec<SendingHost> {
        let hosts = self.host.iter().map(|(name, host)| {
            let mut sysctls = host.mechanisms.sysctls();
            sysctls.extend(host.sysctl.clone());
            SendingHost {
                name: name.to_string(),
                rate_bps: host.rate.map(super::Rate::bps),
                delay: host.delay,
                initial_window: host.mechanisms.initial_window,
                sysctls,
            }
        });
        hosts.collect()
    }
}

impl Plan {
    fn add(&mut self, name: &str, group: &Group) -> Result<(), Contradiction> {
        check_twice(name, group)?;
        if let Some((key, text)) = group.bundle.and_then(|how| idle_key(&how.options)) {
            return Err(Contradiction::new(&["group", name, "bundle", key], text));
        }
        let traffic = group.traffic.group();
        let traffic = traffic.map_err(|wrong| Contradiction::of(&["group", name], wrong))?;
        let host = self.host(name, group)?;
        if group.bundle.is_some() && matches!(traffic.kind, Kind::Datagrams { .. }) {
            let text = "datagrams are not TCP's, and have nothing to bundle; leave `bundle` out";
            return Err(Contradiction::new(&["group", name, "bundle"], text));
        }
        if group.connects_at_start
            && matches!(traffic.kind, Kind::Datagrams { .. } | Kind::Flow { .. })
        {
            let text = "flows connect when each starts, and datagrams do not; leave it out";
            let path = ["group", name, "connects-at-start"];
            return Err(Contradiction::new(&path, text));
        }
        let traffic = crate::traffic::Group {
            name: name.to_owned(),
            connects_at_start: group.connects_at_start,
            ..traffic
        };
        let sound = traffic.validate(Some(self.duration), self.seed);
        sound.map_err(|error| {
            let path = ["group", name, option_of(&error)];
            Contradiction::new(&path, error.to_string())
        })?;
        let first: usize = self.streams.iter().map(|it| it.traffic.streams).sum();
        let own = group.rtt.as_ref();
        let delays = own.map(|own| self.delays_of(own, first, traffic.streams));
        self.streams.push(Streams {
            traffic,
            host,
            delays: delays.unwrap_or_default(),
            ways: [group.forward.clone(), group.back.clone()],
            bundling: group.bundle,
        });
        Ok(())
    }

    /// Half of each stream's round-trip time.
    fn delays_of(&self, own: &RoundTrips, first: usize, count: usize) -> Vec<Duration> {
        let times = own.times(self.seed ^ first as u64).take(count);
        times.map(|time| time / 2).collect()
    }

    /// The index of a group's host, which is made where the group has one to itself.
    fn host(&mut self, group: &str, of: &Group) -> Result<usize, Contradiction> {
        let name = of.host.as_deref().unwrap_or(group);
        let known = self.hosts.iter().position(|host| host.name == name);
        let index = match (known, &of.host) {
            (Some(index), _) => index,
            (None, Some(name)) => {
                let text = format!("no host `{name}`; describe it in [host.{name}]");
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
                "another group or the host itself sets {name} otherwise on host `{}`; give this \
                 group a host of its own",
                host.name
            );
            return Err(Contradiction::new(&["group", group, "mechanisms"], text));
        }
        host.initial_window = host.initial_window.or(window);
        host.sysctls.extend(set);
        Ok(())
    }

    /// An application can ask pillion for nothing where there is none.
    fn check_switch(&self, name: &str, group: &Group) -> Result<(), Contradiction> {
        let own = self.streams.iter().find(|it| it.traffic.name == name);
        let Some(own) = own else { return Ok(()) };
        let mut on_host = self.streams.iter().filter(|it| it.host == own.host);
        if on_host.any(|streams| streams.bundling.is_some()) {
            return Ok(());
        }
        let asked = [
            ("pillion", group.traffic.pillion.is_some()),
            ("max-packets", group.traffic.max_packets.is_some()),
        ];
        match asked.into_iter().find(|(_, asked)| *asked) {
            Some((key, _)) => {
                let text =
                    format!("`{key}` asks a pillion that is not there; give `bundle` as well");
                Err(Contradiction::new(&["group", name, key], text))
            }
            None => Ok(()),
        }
    }
}

/// What can be said of a group more than once is to be said once.
fn check_twice(name: &str, group: &Group) -> Result<(), Contradiction> {
    let companions = group.bundle.map(|how| how.companions).unwrap_or_default();
    let options = group.bundle.map(|how| how.options).unwrap_or_default();
    let traffic = &group.traffic;
    let mechanism = group.mechanisms.has(Mechanism::LinearTimeouts);
    let all = [
        (
            "linear-timeouts",
            vec![
                (None, traffic.linear_timeouts),
                (Some("mechanisms"), mechanism),
                (Some("bundle"), companions.linear_timeouts),
            ],
        ),
        (
            "congestion",
            vec![
                (None, traffic.congestion.is_some()),
                (Some("bundle"), companions.congestion.is_some()),
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
        let said = tables.into_iter().filter(|(_, said)| *said);
        let mut said = said.map(|(table, _)| table);
        let Some(first) = said.next() else { continue };
        if let Some(again) = said.next() {
            let first = first.map_or("the group itself".to_owned(), |it| format!("`{it}`"));
            let text = format!("`{key}` is said in {first} as well as here; keep one of them");
            let path = ["group", name].into_iter().chain(again).chain([key]);
            return Err(Contradiction::new(&path.collect::<Vec<_>>(), text));
        }
    }
    Ok(())
}
