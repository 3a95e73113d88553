//! From a run to what is to be built and sent.

use std::time::Duration;

use crate::traffic::{Kind, Manner};

use super::{
    Contradiction, Group, Mechanism, Mechanisms, Plan, ReceivingHost, RoundTrips, Run, SendingHost,
    Streams,
};
use crate::settings::traffic::option_of;
use pillion_cli::settings::idle_key;

/// What contradicts, while it is being found.
type Found = Vec<Contradiction>;

impl Run {
    /// What it is, worked out.
    ///
    /// # Errors
    /// All that cannot be: what parts of it that are right each by itself contradict each other in.
    pub fn plan(&self) -> Result<Plan, Vec<Contradiction>> {
        let mut found = Found::new();
        let manner = self.receiver.application.manner().unwrap_or_else(|wrong| {
            found.extend(Contradiction::all_of(&["receiver"], wrong));
            Manner::default()
        });
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
            found.push(Contradiction::new(&["duration"], text));
        }
        if self.group.is_empty() {
            let text = "no group of streams; begin one with [group.NAME]";
            found.push(Contradiction::new(&["group"], text));
        }
        for (name, group) in &self.group {
            plan.add(name, group, &mut found);
        }
        for (name, group) in &self.group {
            plan.check_switch(name, group, &mut found);
        }
        if found.is_empty() {
            found = plan.contradictions();
        }
        if found.is_empty() {
            Ok(plan)
        } else {
            Err(found)
        }
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
    fn add(&mut self, name: &str, group: &Group, found: &mut Found) {
        twice(name, group, found);
        if let Some((key, text)) = group.bundle.and_then(|how| idle_key(&how.options)) {
            found.push(Contradiction::new(&["group", name, "bundle", key], text));
        }
        let traffic = group.traffic.group().map_err(|wrong| {
            found.extend(Contradiction::all_of(&["group", name], wrong));
        });
        let host = self.host(name, group, found);
        let (Ok(traffic), Some(host)) = (traffic, host) else {
            return;
        };
        if group.bundle.is_some() && matches!(traffic.kind, Kind::Datagrams { .. }) {
            let text = "datagrams are not TCP's, and have nothing to bundle; leave `bundle` out";
            found.push(Contradiction::new(&["group", name, "bundle"], text));
        }
        if group.connects_at_start
            && matches!(traffic.kind, Kind::Datagrams { .. } | Kind::Flow { .. })
        {
            let text = "flows connect when each starts, and datagrams do not; leave it out";
            found.push(Contradiction::new(
                &["group", name, "connects-at-start"],
                text,
            ));
        }
        let traffic = crate::traffic::Group {
            name: name.to_owned(),
            connects_at_start: group.connects_at_start,
            ..traffic
        };
        if !self.duration.is_zero()
            && let Err(error) = traffic.validate(Some(self.duration), self.seed)
        {
            let path = ["group", name, option_of(&error)];
            found.push(Contradiction::new(&path, error.to_string()));
            return;
        }
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
    }

    /// Half of each stream's round-trip time.
    fn delays_of(&self, own: &RoundTrips, first: usize, count: usize) -> Vec<Duration> {
        let times = own.times(self.seed ^ first as u64).take(count);
        times.map(|time| time / 2).collect()
    }

    /// The index of a group's host, which is made where the group has one to itself.
    fn host(&mut self, group: &str, of: &Group, found: &mut Found) -> Option<usize> {
        let name = of.host.as_deref().unwrap_or(group);
        let known = self.hosts.iter().position(|host| host.name == name);
        let index = match (known, &of.host) {
            (Some(index), _) => index,
            (None, Some(name)) => {
                let text = format!("no host `{name}`; describe it in [host.{name}]");
                found.push(Contradiction::new(&["group", group, "host"], text));
                return None;
            }
            (None, None) => {
                self.hosts.push(SendingHost {
                    name: name.to_owned(),
                    ..SendingHost::default()
                });
                self.hosts.len() - 1
            }
        };
        self.set(index, group, &of.mechanisms, found);
        Some(index)
    }

    fn set(&mut self, index: usize, group: &str, mechanisms: &Mechanisms, found: &mut Found) {
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
            found.push(Contradiction::new(&["group", group, "mechanisms"], text));
        }
        host.initial_window = host.initial_window.or(window);
        host.sysctls.extend(set);
    }

    /// An application can ask pillion for nothing where there is none.
    fn check_switch(&self, name: &str, group: &Group, found: &mut Found) {
        let own = self.streams.iter().find(|it| it.traffic.name == name);
        let Some(own) = own else { return };
        let mut on_host = self.streams.iter().filter(|it| it.host == own.host);
        if on_host.any(|streams| streams.bundling.is_some()) {
            return;
        }
        let asked = [
            ("pillion", group.traffic.pillion.is_some()),
            ("max-packets", group.traffic.max_packets.is_some()),
        ];
        for (key, _) in asked.into_iter().filter(|(_, asked)| *asked) {
            let text = format!("`{key}` asks a pillion that is not there; give `bundle` as well");
            found.push(Contradiction::new(&["group", name, key], text));
        }
    }
}

/// What can be said of a group more than once is to be said once.
fn twice(name: &str, group: &Group, found: &mut Found) {
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
        for again in said {
            let of = |table: Option<&str>| match table {
                None => "the group itself".to_owned(),
                Some(table) => format!("`{table}`"),
            };
            let text = format!(
                "`{key}` is said in {} as well as here; keep one of them",
                of(first)
            );
            let path = ["group", name].into_iter().chain(again).chain([key]);
            let path: Vec<_> = path.collect();
            found.push(Contradiction::new(&path, text));
        }
    }
}
