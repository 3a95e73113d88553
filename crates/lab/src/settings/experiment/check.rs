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

    /// What is wrong with an option of the table that these keys lead to.
    pub(super) fn of(table: &[&str], Wrong { option, text }: Wrong) -> Self {
        Self::new(&[table, &[option]].concat(), text)
    }
}

impl Plan {
    /// Finds the first thing that does not go together with the rest.
    pub(super) fn check(&self) -> Result<(), Contradiction> {
        self.check_groups()?;
        let streams: usize = self.streams.iter().map(|it| it.traffic.streams).sum();
        let hosts = self.hosts.len();
        let wrong = |path: &[&str], text| Err(Contradiction::new(path, text));
        if hosts > MOST_HOSTS {
            let text = format!("{hosts} sending hosts; {MOST_HOSTS} are the most");
            return wrong(&["group"], text);
        }
        for host in &self.hosts {
            if MACHINES.contains(&host.name.as_str()) {
                let text = format!(
                    "`{}` is a machine of the testbed's own; call the group, or its host, otherwise",
                    host.name
                );
                return wrong(&["group", &host.name], text);
            }
        }
        if streams > MOST_STREAMS {
            let text = format!("{streams} streams in all; {MOST_STREAMS} are the most");
            return wrong(&["group"], text);
        }
        let path = self.path().validate();
        path.map_err(|error| Contradiction::new(&["path"], error.to_string()))?;
        self.check_bottleneck()
    }

    /// What of a group's own path does not go with the rest.
    fn check_groups(&self) -> Result<(), Contradiction> {
        let common = [&self.forward, &self.backward];
        for streams in &self.streams {
            let group = ["group", streams.traffic.name.as_str()];
            let tables = [group.to_vec(), [&group[..], &["back"]].concat()];
            for ((own, common), table) in streams.ways.iter().zip(common).zip(tables) {
                let wrong = |key, text: String| {
                    Err(Contradiction::new(&[&table[..], &[key]].concat(), text))
                };
                let shortest = streams.delays.iter().min().unwrap_or(&common.delay);
                if own
                    .jitter
                    .is_some_and(|jitter| jitter.saturating_mul(4) > *shortest)
                {
                    let text = format!(
                        "varies by more than a quarter of the delay, which is {} ms each way",
                        to_ms(*shortest)
                    );
                    return wrong("jitter", text);
                }
                if own.loss.is_some() && matches!(common.loss, Some(Loss::Listed(_))) {
                    let text = "the path's list counts these packets as well; list them all there";
                    return wrong("loss", text.to_owned());
                }
            }
        }
        Ok(())
    }

    fn check_bottleneck(&self) -> Result<(), Contradiction> {
        let bottleneck = &self.bottleneck;
        let greedy = |kind: &Kind| matches!(kind, Kind::Greedy { .. });
        let mut groups = self.streams.iter().map(|streams| &streams.traffic);
        if let (Some(group), None) = (groups.find(|group| greedy(&group.kind)), bottleneck.rate) {
            let text = format!(
                "the greedy streams of `{}` have no rate to share; give the bottleneck a `rate`",
                group.name
            );
            return Err(Contradiction::new(&["bottleneck", "rate"], text));
        }
        self.check_queue(bottleneck, &["bottleneck"])?;
        self.check_queue(&self.bottleneck_back, &["bottleneck", "back"])
    }

    /// What a bottleneck's keys do not go together in; these lead to its table.
    fn check_queue(&self, bottleneck: &Bottleneck, table: &[&str]) -> Result<(), Contradiction> {
        let wrong = |key, text: String| Err(Contradiction::new(&[table, &[key]].concat(), text));
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
                return wrong(key, text.replace("KEY", key));
            }
        }
        let has_limit = |options: &str| options.split_whitespace().any(|word| word == "limit");
        if queue == Discipline::Red && bottleneck.limit.is_none() && !has_limit(&bottleneck.options)
        {
            let text = "red has no limit of its own; give one in bytes, as in \"60000 B\"";
            return wrong("queue", text.to_owned());
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
            _ => return Ok(()),
        };
        wrong("limit", text)
    }
}
