//! Health and totals as OpenMetrics. Names, types and help of single numbers come from their
//! [`Statistic`](pillion_bpf::Statistic)s.

use std::fmt;
use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};
use pillion_bpf::{ActiveConnections, Outcome, RTT_QUANTILES, StatisticKind, TcpOption, Totals};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use super::condition::Condition;
use super::health::Health;
use crate::trial::ArmCounts;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Formats a scrape: metrics of pillion and of its process. Without readings, before it is ready, all
/// of them are 0.
pub fn text(
    health: Health,
    readings: Option<(ActiveConnections, Totals)>,
) -> Result<String, fmt::Error> {
    let process = Process {
        start_time_s: health.started_at_s,
    };
    let mut own = Registry::with_prefix("pillion");
    let (connections, totals) = readings.unwrap_or_default();
    own.register_collector(Box::new(Scrape {
        health,
        connections,
        totals,
    }));
    let mut unprefixed = Registry::default();
    unprefixed.register_collector(Box::new(process));
    let mut text = String::new();
    encode_registry(&mut text, &own)?;
    encode_registry(&mut text, &unprefixed)?;
    encode_eof(&mut text)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape {
    health: Health,
    connections: ActiveConnections,
    totals: Totals,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.health(&mut encoder)?;
        self.rtt(&mut encoder)?;
        self.holdbacks(&mut encoder)?;
        encode_numbers(&self.totals, &mut encoder)?;
        encode_families(&self.totals, &mut encoder)
    }
}

impl Scrape {
    fn health(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Version of pillion";
        let mut build = descriptor(encoder, "build", help, None, MetricType::Info)?;
        build.encode_info(&[("version", self.health.version.as_str())])?;
        let gauges = [
            (
                "start_time",
                "Start time in seconds since 1970; counters start at 0 then",
                Some(Unit::Seconds),
                self.health.started_at_s,
            ),
            (
                "attached_devices",
                "Attached network devices",
                None,
                self.health.devices.len() as u64,
            ),
            (
                "active_failures",
                "Steps that fail and are retried, and a refused reload",
                None,
                self.health.failures.len() as u64,
            ),
            (
                "ready",
                "1 if the programs are attached to the cgroup, 0 while it waits or starts",
                None,
                u64::from(self.health.ready),
            ),
            (
                "active_connections",
                "Connections covered now",
                None,
                self.health.active_connections,
            ),
        ];
        for (name, help, unit, value) in gauges {
            gauge(encoder, name, help, unit, value as f64)?;
        }
        let help = "1 during the condition; docs/operate/monitoring.md lists all";
        let mut conditions = descriptor(encoder, "condition", help, None, MetricType::Gauge)?;
        for condition in Condition::ALL {
            let is_current = self.health.conditions.contains(condition);
            let labels = [("condition", label(condition))];
            ConstGauge::new(i64::from(is_current)).encode(conditions.encode_family(&labels)?)?;
        }
        let help = "1 if attached to the network device, 0 if detached since the start";
        let mut devices = descriptor(encoder, "device_attached", help, None, MetricType::Gauge)?;
        let attached = self.health.devices.iter().map(|it| (it, 1i64));
        let detached = self.health.detached_devices.iter().map(|it| (it, 0));
        for (device, value) in attached.chain(detached) {
            let labels = [("device", device.as_str())];
            ConstGauge::new(value).encode(devices.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Scrape {
    fn rtt(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        for (name, help, quantiles) in [
            (
                "rtt",
                "Smoothed RTT of the connections covered now, by quantile; 0 without a sample",
                self.connections.rtt_us,
            ),
            (
                "min_rtt",
                "Minimum RTT of the connections covered now, by quantile; 0 without a sample",
                self.connections.min_rtt_us,
            ),
        ] {
            let kind = MetricType::Gauge;
            let mut family = descriptor(encoder, name, help, Some(&Unit::Seconds), kind)?;
            for (quantile, us) in RTT_QUANTILES.iter().zip(quantiles) {
                let labels = [("quantile", quantile.to_string())];
                ConstGauge::new(f64::from(us) / 1e6).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Name, help, unit and value of a counter of an arm.
type ArmCounter = (
    &'static str,
    &'static str,
    Option<&'static Unit>,
    fn(&ArmCounts) -> f64,
);

impl Scrape {
    /// Encodes the counters of both arms of each rule with a holdback.
    fn holdbacks(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let counters: [ArmCounter; 4] = [
            ("connections", "Compared connections", None, |it| {
                it.connections as f64
            }),
            (
                "cut_connections",
                "Compared connections ended by an error with undelivered data",
                None,
                |it| it.cut as f64,
            ),
            (
                "segments",
                "Acknowledged segments of compared connections",
                None,
                |it| it.segments as f64,
            ),
            (
                "late",
                "Waits of these segments for their ACK beyond the minimum RTT and 50 ms",
                Some(&Unit::Seconds),
                |it| it.late_us as f64 / 1e6,
            ),
        ];
        for (name, help, unit, value) in counters {
            let name = format!("holdback_{name}");
            let mut family = descriptor(encoder, &name, help, unit, MetricType::Counter)?;
            for comparison in &self.health.holdbacks {
                let arms = [
                    ("bundled", &comparison.bundled),
                    ("plain", &comparison.plain),
                ];
                for (arm, counts) in arms {
                    let labels = [
                        ("rule", comparison.rule.to_string()),
                        ("arm", arm.to_owned()),
                    ];
                    ConstCounter::new(value(counts)).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Metrics of the process, with the names that Prometheus client libraries share.
#[derive(Debug)]
struct Process {
    start_time_s: u64,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let seconds = [usage.user_time(), usage.system_time()]
                .map(|it| it.tv_sec() as f64 + it.tv_usec() as f64 / 1e6);
            let help = "User and system CPU time of the process, in seconds";
            let counter = MetricType::Counter;
            let unit = Some(&Unit::Seconds);
            let encoder = descriptor(&mut encoder, "process_cpu", help, unit, counter)?;
            ConstCounter::new(seconds[0] + seconds[1]).encode(encoder)?;
        }
        let gauges = [
            (
                "process_resident_memory",
                "Resident memory of the process, in bytes",
                Some(Unit::Bytes),
                resident_bytes(),
            ),
            (
                "process_open_fds",
                "Open file descriptors of the process",
                None,
                open_files(),
            ),
            (
                "process_start_time",
                "Start time of the process, in seconds since 1970",
                Some(Unit::Seconds),
                Some(self.start_time_s as f64),
            ),
        ];
        for (name, help, unit, value) in gauges {
            if let Some(value) = value {
                gauge(&mut encoder, name, help, unit, value)?;
            }
        }
        Ok(())
    }
}

/// Reads the resident memory from proc_pid_statm(5).
fn resident_bytes() -> Option<f64> {
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    let page_size = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    Some(pages * page_size as f64)
}

/// Counts open descriptors, without the descriptor of the listing.
fn open_files() -> Option<f64> {
    let files = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(files.saturating_sub(1) as f64)
}

/// Starts a metric. Escapes its help, because the encoder does not.
fn descriptor<'a>(
    encoder: &'a mut DescriptorEncoder,
    name: &'a str,
    help: &str,
    unit: Option<&'a Unit>,
    kind: MetricType,
) -> Result<MetricEncoder<'a>, fmt::Error> {
    let help = help
        .replace('\\', r"\\")
        .replace('"', "\\\"")
        .replace('\n', r"\n");
    encoder.encode_descriptor(name, &help, unit, kind)
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    value: f64,
) -> fmt::Result {
    let encoder = descriptor(encoder, name, help, unit.as_ref(), MetricType::Gauge)?;
    ConstGauge::new(value).encode(encoder)
}

/// Encodes the single numbers; microseconds become seconds, the base unit of OpenMetrics.
fn encode_numbers(totals: &Totals, encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (statistic, value) in totals.statistics() {
        let help = statistic.description.trim_end_matches('.');
        let seconds = statistic.name.strip_suffix("_us");
        match (statistic.kind, seconds) {
            (StatisticKind::Gauge, Some(name)) => {
                gauge(encoder, name, help, Some(Unit::Seconds), value as f64 / 1e6)?;
            }
            (StatisticKind::Gauge, None) => {
                gauge(encoder, statistic.name, help, None, value as f64)?;
            }
            (StatisticKind::Counter, _) => {
                let kind = MetricType::Counter;
                let encoder = descriptor(encoder, statistic.name, help, None, kind)?;
                ConstCounter::new(value).encode(encoder)?;
            }
        }
    }
    Ok(())
}

/// Outcomes of retransmissions.
const RETRANSMISSIONS: [Outcome; 2] = [Outcome::Retransmission, Outcome::RetransmissionBundled];

/// Encodes the counters with labels. All label values exist from the start, so that rates start at 0.
fn encode_families(totals: &Totals, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let is_new = |it: &&Outcome| !RETRANSMISSIONS.contains(*it) && **it != Outcome::UnparsedIp;
    let first = Outcome::ALL.iter().filter(is_new);
    for (name, help, outcomes) in [
        (
            "data_segments",
            "First transmissions of data, by outcome",
            first.collect::<Vec<_>>(),
        ),
        (
            "retransmitted_segments",
            "Retransmitted segments, by outcome",
            RETRANSMISSIONS.iter().collect(),
        ),
    ] {
        let counts = outcomes
            .into_iter()
            .map(|it| (label(it), totals.counters.of(*it)));
        family(encoder, name, help, "outcome", counts)?;
    }
    let help = "Packets whose IP header could not be read, with or without data";
    let unparsed = descriptor(encoder, "unparsed_packets", help, None, MetricType::Counter)?;
    ConstCounter::new(totals.counters.of(Outcome::UnparsedIp)).encode(unparsed)?;
    for (name, help, counts) in [
        (
            "tcp_options_set",
            "TCP options set on connections",
            &totals.tcp_options_set,
        ),
        (
            "tcp_options_refused",
            "TCP options that the kernel refused",
            &totals.tcp_options_refused,
        ),
    ] {
        let of = |it: &TcpOption| counts.get(it).copied().unwrap_or(0);
        let counts = TcpOption::ALL.iter().map(|it| (label(it), of(it)));
        family(encoder, name, help, "option", counts)?;
    }
    Ok(())
}

fn family(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    label_name: &str,
    counts: impl Iterator<Item = (String, u64)>,
) -> fmt::Result {
    let mut family = descriptor(encoder, name, help, None, MetricType::Counter)?;
    for (value, count) in counts {
        let labels = [(label_name, value.as_str())];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Returns the label of a value: its name in JSON.
fn label(value: &impl Serialize) -> String {
    let name = serde_json::to_value(value).ok();
    let name = name.as_ref().and_then(|it| it.as_str());
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::health::{Role, Shared};
    use super::*;

    #[derive(Debug)]
    struct Escaped;

    impl Collector for Escaped {
        fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
            gauge(&mut encoder, "escaped", "\"a\\b\"\nc", None, 1.0)
        }
    }

    #[test]
    fn help_is_escaped() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Escaped));
        let mut text = String::new();
        encode_registry(&mut text, &registry).unwrap();
        let help = text.lines().next();
        assert_eq!(help, Some(r#"# HELP escaped \"a\\b\"\nc"#), "{text}");
    }

    #[test]
    fn scrape_before_ready_has_the_same_series() {
        let shared = Shared::new(Role::Attach, String::new(), Vec::new());
        let names = |readings| {
            let (health, _) = shared.read().unwrap();
            let text = text(health, readings).unwrap();
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            let names = samples.filter_map(|line| line.rsplit_once(' '));
            names.map(|it| it.0.to_owned()).collect::<Vec<_>>()
        };
        let before = names(None);
        assert!(
            before.contains(&"pillion_unobserved".to_owned()),
            "{before:?}"
        );
        assert_eq!(before, names(Some(Default::default())));
    }

    #[test]
    fn holdback_counters_have_rule_and_arm() {
        let shared = Shared::new(Role::Attach, String::new(), Vec::new());
        let mut comparison = crate::trial::RuleComparison {
            rule: 2,
            ..Default::default()
        };
        comparison.plain.late_us = 1_500_000;
        shared.set_holdbacks(vec![comparison]);
        let text = text(shared.read().unwrap().0, None).unwrap();
        let line = "pillion_holdback_late_seconds_total{rule=\"2\",arm=\"plain\"} 1.5";
        assert!(text.contains(&format!("\n{line}\n")), "{text}");
    }

    #[test]
    fn scrape_separates_first_transmissions_from_retransmissions() {
        let shared = Shared::new(Role::Attach, String::new(), vec![Condition::Full]);
        let (health, _) = shared.read().unwrap();
        let mut totals = Totals::default();
        let counts = [
            (Outcome::Bundled, 3),
            (Outcome::Retransmission, 2),
            (Outcome::UnparsedIp, 1),
        ];
        totals.counters.outcomes.extend(counts);
        let connections = ActiveConnections {
            rtt_us: [20_000, 30_000, 40_000],
            ..ActiveConnections::default()
        };
        let text = text(health, Some((connections, totals))).unwrap();
        for line in [
            "pillion_data_segments_total{outcome=\"bundled\"} 3",
            "pillion_unparsed_packets_total 1",
            "pillion_attached_devices 0.0",
            "pillion_condition{condition=\"full\"} 1",
            "pillion_condition{condition=\"bypassed\"} 0",
            "pillion_rtt_seconds{quantile=\"0.9\"} 0.03",
            "pillion_min_rtt_seconds{quantile=\"0.9\"} 0.0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
        let all = series("pillion_data_segments_total{") + RETRANSMISSIONS.len() + 1;
        assert_eq!(all, Outcome::ALL.len(), "{text}");
        assert_eq!(series("pillion_retransmitted_segments_total{"), 2, "{text}");
        for name in [
            "process_cpu_seconds_total ",
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
        ] {
            assert_eq!(series(name), 1, "{name}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
