use crate::traffic::Kind;

use super::plan::SOURCE_PORTS;
use super::{Bottleneck, Contradiction, Discipline, Limit, Loss, Plan};
use crate::path::MAX_QUEUE;
use pillion_cli::settings::times::to_ms;

/// Maximum sending hosts: addresses of the senders' network.
const MAX_HOSTS: usize = 250;

/// Machines of the testbed itself, whose names no host can have.
const MACHINES: [&str; 4] = ["bridge", "router", "emulator", "receiver"];

/// Maximum streams: each one has its own source port.
const MAX_STREAMS: usize = (u16::MAX - SOURCE_PORTS) as usize + 1;

impl Plan {
    /// Checks the run for contradictions, and reports the first one.
    pub(super) fn check(&self) -> Result<(), Contradiction> {
        self.check_hosts()?;
        self.check_groups()?;
        let streams: usize = self.streams.iter().map(|it| it.traffic.streams).sum();
        let hosts = self.hosts.len();
        let contradiction = |path: &[&str], text| Err(Contradiction::new(path, text));
        if hosts > MAX_HOSTS {
            let text = format!("{hosts} sending hosts: the maximum is {MAX_HOSTS}");
            return contradiction(&["group"], text);
        }
        for host in &self.hosts {
            if MACHINES.contains(&host.name.as_str()) {
                let text = format!(
                    "`{}` is a machine of the testbed; rename the group or its host",
                    host.name
                );
                return contradiction(&["group", &host.name], text);
            }
        }
        if streams > MAX_STREAMS {
            let text = format!("{streams} streams in total: the maximum is {MAX_STREAMS}");
            return contradiction(&["group"], text);
        }
        let path = self.path().validate();
        path.map_err(|error| Contradiction::new(&["path"], error.to_string()))?;
        self.check_bottleneck()
    }

    fn check_hosts(&self) -> Result<(), Contradiction> {
        let delayed = self
            .hosts
            .iter()
            .find(|host| host.fq && !host.delay.is_zero());
        delayed.map_or(Ok(()), |host| {
            let text = "fq and a delay of the link exclude each other; set the delay in [path]";
            Err(Contradiction::new(
                &["host", &host.name, "fq"],
                text.to_owned(),
            ))
        })
    }

    /// Checks each group's own path against the common path.
    fn check_groups(&self) -> Result<(), Contradiction> {
        let common = [&self.forward, &self.backward];
        for streams in &self.streams {
            let group = ["group", streams.traffic.name.as_str()];
            let tables = [group.to_vec(), [&group[..], &["back"]].concat()];
            for ((own, common), table) in streams.overrides.iter().zip(common).zip(tables) {
                let contradiction = |key, text: String| {
                    Err(Contradiction::new(&[&table[..], &[key]].concat(), text))
                };
                let shortest = streams.delays.iter().min().unwrap_or(&common.delay);
                if own
                    .jitter
                    .is_some_and(|jitter| jitter.saturating_mul(4) > *shortest)
                {
                    let text = format!(
                        "jitter of more than a quarter of the delay, which is {} ms in each direction",
                        to_ms(*shortest)
                    );
                    return contradiction("jitter", text);
                }
                if own.loss.is_some() && matches!(common.loss, Some(Loss::Listed(_))) {
                    let text = "the list in [path] includes these packets; list all losses there";
                    return contradiction("loss", text.to_owned());
                }
            }
        }
        Ok(())
    }

    fn check_bottleneck(&self) -> Result<(), Contradiction> {
        let bottleneck = &self.bottleneck;
        let greedy = |kind: &Kind| matches!(kind, Kind::Greedy { .. });
        let mut groups = self.streams.iter().map(|streams| &streams.traffic);
        if let (Some(group), None) = (
            groups.find(|group| greedy(&group.kind)),
            bottleneck.mean_bps(),
        ) {
            let text = format!(
                "the greedy streams of `{}` need a rate; set `rate` or `trace` in [bottleneck]",
                group.name
            );
            return Err(Contradiction::new(&["bottleneck", "rate"], text));
        }
        self.check_queue(bottleneck, &["bottleneck"])?;
        self.check_queue(&self.bottleneck_back, &["bottleneck", "back"])
    }

    /// Checks the keys of a bottleneck against each other; `table` leads to them.
    fn check_queue(&self, bottleneck: &Bottleneck, table: &[&str]) -> Result<(), Contradiction> {
        let contradiction =
            |key, text: String| Err(Contradiction::new(&[table, &[key]].concat(), text));
        let queue = bottleneck.queue;
        let plain = Bottleneck::default();
        for (key, is_given) in [
            ("shaper", bottleneck.shaper != plain.shaper),
            ("burst", bottleneck.burst != plain.burst),
        ] {
            let text = match (bottleneck.rate, queue) {
                (_, Discipline::Cake) => {
                    "cake shapes by itself; remove `KEY`, or use another queue"
                }
                (None, _) => "`KEY` needs `rate`; set it, or remove `KEY`",
                (Some(_), _) => continue,
            };
            if is_given {
                return contradiction(key, text.replace("KEY", key));
            }
        }
        let limit = self.queue_limit(bottleneck);
        for (key, is_invalid, text) in [
            (
                "rate",
                bottleneck.rate.is_some(),
                "`trace` replaces `rate`; remove one of them",
            ),
            (
                "queue",
                queue != Discipline::Pfifo,
                "a recorded link has only `pfifo`; use it, or `rate` instead of `trace`",
            ),
            (
                "options",
                !bottleneck.options.is_empty(),
                "a recorded link has no options of `tc`; remove `options`",
            ),
            (
                "limit",
                limit.is_some_and(|limit| limit > MAX_QUEUE as u64),
                "a recorded link has a queue of 1 to 65536 packets; set a smaller limit",
            ),
        ] {
            if bottleneck.trace.is_some() && is_invalid {
                return contradiction(key, text.to_owned());
            }
        }
        let has_limit = |options: &str| options.split_whitespace().any(|word| word == "limit");
        if queue == Discipline::Red && bottleneck.limit.is_none() && !has_limit(&bottleneck.options)
        {
            let text = "red needs a limit; set it in bytes, as in \"60000 B\"";
            return contradiction("queue", text.to_owned());
        }
        let unit = |unit| format!("{queue} counts {unit}; set its limit in {unit}");
        let text = match bottleneck.limit {
            Some(Limit::Packets(_)) if queue.counts_bytes() => unit("bytes"),
            Some(Limit::Bytes(_)) if !queue.counts_bytes() => unit("packets"),
            Some(Limit::BandwidthDelayProducts(_))
                if self.bdp_bytes(bottleneck).is_none_or(|bytes| bytes == 0.0) =>
            {
                "a limit in bandwidth-delay products needs a rate and a delay; set `rate` and \
                 `rtt`"
                    .to_owned()
            }
            _ => return Ok(()),
        };
        contradiction("limit", text)
    }
}
