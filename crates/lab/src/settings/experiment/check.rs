use crate::traffic::Kind;

use super::plan::SOURCE_PORTS;
use super::{Bottleneck, Discipline, Limit, Loss, Plan};
use crate::settings::traffic::Wrong;
use pillion_cli::settings::times::to_ms;

/// Hosts that the network of senders has room for.
const MOST_HOSTS: usize = 250;

/// The testbed's own machines, beside the hosts that streams come from.
const MACHINES: [&str; 4] = ["bridge", "router", "emulator", "receiver"];

/// Each stream has a source port of its own.
const MOST_STREAMS: usize = (u16::MAX - SOURCE_PORTS) as usize + 1;

/// What parts of a run that are right each by itself cannot be together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Contradiction {
    /// The keys that lead to what should change.
    pub path: Vec<String>,
    /// What is wrong, and what to do.
    pub text: String,
}

impl Contradiction {
    pub(super) fn new(path: &[&str], text: impl Into<String>) -> Self {
        Self {
            path: path.iter().map(ToString::to_string).collect(),
            text: text.into(),
        }
    }

    /// What is wrong with options of the table that these keys lead to.
    pub(super) fn all_of(table: &[&str], wrong: Vec<Wrong>) -> impl Iterator<Item = Self> {
        wrong.into_iter().map(|Wrong { option, text }| {
            let path: Vec<&str> = table.iter().copied().chain([option]).collect();
            Self::new(&path, text)
        })
    }
}

impl Plan {
    /// Finds what does not go together.
    pub(super) fn contradictions(&self) -> Vec<Contradiction> {
        let streams: usize = self.streams.iter().map(|it| it.traffic.streams).sum();
        let hosts = self.hosts.len();
        let mut found = self.contradictions_of_groups();
        let paths_are_right = found.is_empty();
        let mut fails = |path: &[&str], text: String| found.push(Contradiction::new(path, text));
        if hosts > MOST_HOSTS {
            let text = format!("{hosts} sending hosts; {MOST_HOSTS} are the most");
            fails(&["group"], text);
        }
        for host in &self.hosts {
            if MACHINES.contains(&host.name.as_str()) {
                let text = format!(
                    "`{}` is a machine of the testbed's own; call the group, or its host, otherwise",
                    host.name
                );
                fails(&["group", &host.name], text);
            }
        }
        if streams > MOST_STREAMS {
            let text = format!("{streams} streams in all; {MOST_STREAMS} are the most");
            fails(&["group"], text);
        }
        if let Err(error) = self.path().validate()
            && paths_are_right
        {
            fails(&["path"], error.to_string());
        }
        self.check_bottleneck(&mut fails);
        found
    }

    /// What of a group's own path does not go with the rest.
    fn contradictions_of_groups(&self) -> Vec<Contradiction> {
        let common = [&self.forward, &self.backward];
        let mut found = Vec::new();
        for streams in &self.streams {
            let group = ["group", streams.traffic.name.as_str()];
            let tables = [group.to_vec(), [&group[..], &["back"]].concat()];
            for ((own, common), table) in streams.ways.iter().zip(common).zip(tables) {
                let shortest = streams.delays.iter().min().unwrap_or(&common.delay);
                if own
                    .jitter
                    .is_some_and(|jitter| jitter.saturating_mul(4) > *shortest)
                {
                    let text = format!(
                        "varies by more than a quarter of the delay, which is {} ms each way",
                        to_ms(*shortest)
                    );
                    let path = [&table[..], &["jitter"]].concat();
                    found.push(Contradiction::new(&path, text));
                }
                if own.loss.is_some() && matches!(common.loss, Some(Loss::Listed(_))) {
                    let text = "the path's list counts these packets as well; list them all there";
                    let path = [&table[..], &["loss"]].concat();
                    found.push(Contradiction::new(&path, text));
                }
            }
        }
        found
    }

    fn check_bottleneck(&self, fails: &mut impl FnMut(&[&str], String)) {
        let bottleneck = &self.bottleneck;
        let greedy = |kind: &Kind| matches!(kind, Kind::Greedy { .. });
        let mut groups = self.streams.iter().map(|streams| &streams.traffic);
        if let (Some(group), None) = (groups.find(|group| greedy(&group.kind)), bottleneck.rate) {
            let text = format!(
                "the greedy streams of `{}` have no rate to share; give the bottleneck a `rate`",
                group.name
            );
            fails(&["bottleneck", "rate"], text);
        }
        self.check_queue(bottleneck, &["bottleneck"], fails);
        self.check_queue(&self.bottleneck_back, &["bottleneck", "back"], fails);
    }

    /// What a bottleneck's keys do not go together in; these lead to its table.
    fn check_queue(
        &self,
        bottleneck: &Bottleneck,
        table: &[&str],
        fails: &mut impl FnMut(&[&str], String),
    ) {
        let queue = bottleneck.queue;
        let plain = Bottleneck::default();
        for (key, is_given) in [
            ("shaper", bottleneck.shaper != plain.shaper),
            ("burst", bottleneck.burst != plain.burst),
        ] {
            let text = match (bottleneck.rate, queue) {
                (_, Discipline::Cake) => {
                    "cake keeps to the rate by itself; leave `KEY` out, or \
                                          choose another queue"
                }
                (None, _) => "without a rate nothing is shaped; give `rate`, or leave `KEY` out",
                (Some(_), _) => continue,
            };
            if is_given {
                fails(&[table, &[key]].concat(), text.replace("KEY", key));
            }
        }
        let has_limit = |options: &str| options.split_whitespace().any(|word| word == "limit");
        if queue == Discipline::Red && bottleneck.limit.is_none() && !has_limit(&bottleneck.options)
        {
            let text = "red has no limit of its own; give one in bytes, as in \"60000 B\"";
            fails(&[table, &["queue"]].concat(), text.to_owned());
        }
        let unit = |unit| format!("{queue} counts {unit}; give its limit in {unit}");
        let text = match bottleneck.limit {
            Some(Limit::Packets(_)) if queue.counts_bytes() => unit("bytes"),
            Some(Limit::Bytes(_)) if !queue.counts_bytes() => unit("packets"),
            Some(Limit::BandwidthDelayProducts(_))
                if self.bdp_bytes(bottleneck).is_none_or(|bytes| bytes == 0.0) =>
            {
                "a limit in bandwidth-delay products needs a rate and a delay; give `rate` and \
                 `rtt`"
                    .to_owned()
            }
            _ => return,
        };
        fails(&[table, &["limit"]].concat(), text);
    }
}
