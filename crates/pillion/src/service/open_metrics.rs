//! A pillion's health and totals as OpenMetrics: names, kinds and help follow from the statistics'
//! own description.

use std::fmt;

use pillion_bpf::{Companion, Kind, Outcome, Totals};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use super::health::Health;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The text of a scrape.
pub fn text(health: Health, totals: Option<Totals>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("pillion");
    registry.register_collector(Box::new(Scrape { health, totals }));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape {
    health: Health,
    totals: Option<Totals>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.health(&mut encoder)?;
        self.totals.iter().try_for_each(|totals| {
            numbers(totals, &mut encoder)?;
            families(totals, &mut encoder)
        })
    }
}

impl Scrape {
    fn health(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "What pillion is at work";
        let mut build = descriptor(encoder, "build", help, None, MetricType::Info)?;
        build.encode_info(&[("version", self.health.version.as_str())])?;
        let gauges = [
            (
                "start_time",
                "When pillion began, in seconds since 1970; totals count from then",
                Some(Unit::Seconds),
                self.health.since,
            ),
            (
                "devices",
                "Network devices that pillion is attached to",
                None,
                self.health.devices.len() as u64,
            ),
            (
                "failing",
                "Steps that fail at present, and reloads that were refused",
                None,
                self.health.failing.len() as u64,
            ),
            (
                "connections_now",
                "Connections that are covered at this moment",
                None,
                self.health.connections,
            ),
        ];
        for (name, help, unit, value) in gauges {
            gauge(encoder, name, help, unit, value as f64)?;
        }
        let help = "Network devices that pillion is attached to, each with a 1";
        let mut devices = descriptor(encoder, "device_attached", help, None, MetricType::Gauge)?;
        for device in &self.health.devices {
            let of = [("device", device.as_str())];
            ConstGauge::new(1i64).encode(devices.encode_family(&of)?)?;
        }
        Ok(())
    }
}

/// Begins a metric. Its help is escaped here, for the encoder writes it as it is.
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

/// The single numbers; microseconds as seconds, which OpenMetrics has as their unit.
fn numbers(totals: &Totals, encoder: &mut DescriptorEncoder) -> fmt::Result {
    for (statistic, value) in totals.statistics() {
        let help = statistic.meaning.trim_end_matches('.');
        let seconds = statistic.name.strip_suffix("_us");
        match (statistic.kind, seconds) {
            (Kind::Gauge, Some(name)) => {
                gauge(encoder, name, help, Some(Unit::Seconds), value as f64 / 1e6)?;
            }
            (Kind::Gauge, None) => gauge(encoder, statistic.name, help, None, value as f64)?,
            (Kind::Counter, _) => {
                let kind = MetricType::Counter;
                let encoder = descriptor(encoder, statistic.name, help, None, kind)?;
                ConstCounter::new(value).encode(encoder)?;
            }
        }
    }
    Ok(())
}

/// What is counted by kind. All kinds are there from the beginning on, so that a rate begins at 0.
fn families(totals: &Totals, encoder: &mut DescriptorEncoder) -> fmt::Result {
    let outcomes = Outcome::ALL
        .iter()
        .map(|it| (word(it), totals.counters.of(*it)));
    let help = "Segments with data, by what became of them";
    family(encoder, "segments", help, "outcome", outcomes)?;
    for (name, help, counts) in [
        (
            "companions_set",
            "Companions set on connections",
            &totals.companions_set,
        ),
        (
            "companions_refused",
            "Companions that the kernel refused",
            &totals.companions_refused,
        ),
    ] {
        let of = |it: &Companion| counts.get(it).copied().unwrap_or(0);
        let counts = Companion::ALL.iter().map(|it| (word(it), of(it)));
        family(encoder, name, help, "companion", counts)?;
    }
    Ok(())
}

fn family(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    label: &str,
    counts: impl Iterator<Item = (String, u64)>,
) -> fmt::Result {
    let mut family = descriptor(encoder, name, help, None, MetricType::Counter)?;
    for (value, count) in counts {
        let of = [(label, value.as_str())];
        ConstCounter::new(count).encode(family.encode_family(&of)?)?;
    }
    Ok(())
}

/// The word that JSON has for it.
fn word(value: &impl Serialize) -> String {
    let word = serde_json::to_value(value).ok();
    let word = word.as_ref().and_then(|word| word.as_str());
    word.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Told;

    impl Collector for Told {
        fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
            gauge(&mut encoder, "told", "\"a\\b\"\nc", None, 1.0)
        }
    }

    #[test]
    fn help_is_escaped() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Told));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let help = text.lines().next();
        assert_eq!(help, Some(r#"# HELP told \"a\\b\"\nc"#), "{text}");
    }
}
