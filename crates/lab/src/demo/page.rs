use pillion_report::{Axis, Distribution, Fact, Figure, Line, Page, number};
use serde_json::json;

use super::{Demo, demo_table};

/// The demo's report: both distributions, the table, and how they came about.
#[must_use]
pub fn demo_page(demo: &Demo) -> Page {
    let config = &demo.config;
    let series = [
        ("plain TCP", &demo.plain.latency),
        ("pillion", &demo.pillion.latency),
    ];
    let latency = Axis {
        min: Some(0.0),
        ..Axis::linear("delivery latency", "ms")
    };
    let p99 = series.map(|(_, distribution)| number::millis(distribution.quantile(0.99)));
    Page {
        title: format!(
            "{0} plain and {0} bundled TCP thin streams, side by side",
            config.streams
        ),
        lead: format!(
            "With {} loss, one message in a hundred took longer than {} ms with plain TCP, \
             and longer than {} ms with pillion.",
            number::percent(config.loss),
            p99[0],
            p99[1],
        ),
        parts: vec![
            tail(demo, &series, latency.clone()).into(),
            demo_table(demo).into(),
            body(&series, latency).into(),
        ],
        method: method(demo),
        data: json!({
            "unit": "ms",
            "result": demo,
            "series": series.map(|(name, d)| json!({"name": name, "ccdf": d.ccdf()})),
        }),
    }
}

fn tail(demo: &Demo, series: &[(&str, &Distribution)], latency: Axis) -> Figure {
    let title = "Who waits, and how long";
    let mut figure = Figure::ccdf(title, latency, "share of messages that took longer", series);
    figure.caption = "At each latency, the share of the messages that took longer, on a log \
                      scale: the lower and the further left a line, the fewer messages are late. \
                      The bound is that of any sender which sends no extra packets: a message \
                      rides along with those that follow it, one inter-transmission time apart, \
                      until one of them arrives."
        .to_owned();
    let config = &demo.config;
    let one_way = config.rtt_ms / 2.0;
    if config.loss > 0.0 {
        let smallest = 1.0 / demo.plain.messages.max(1) as f64;
        let steps = (0..)
            .map(|k| {
                (
                    one_way + f64::from(k) * config.itt_ms,
                    config.loss.powi(k + 1),
                )
            })
            .take_while(|(_, share)| *share >= smallest && *share < 1.0);
        figure
            .lines
            .push(Line::step("bound", steps.collect()).reference());
    }
    let label = format!("one-way delay {} ms", number::millis(one_way));
    figure.lines.push(Line::vertical(label, one_way));
    figure
}

fn body(series: &[(&str, &Distribution)], latency: Axis) -> Figure {
    let shown = series
        .iter()
        .filter_map(|(_, d)| d.quantile(0.99))
        .fold(0.0, f64::max);
    let axis = Axis {
        max: (shown > 0.0).then_some(shown),
        ..latency
    };
    let title = "The same as an ordinary CDF";
    let mut figure = Figure::cdf(title, axis, "share of messages that took no longer", series);
    figure.caption = "Up to the 99th percentile of the slower group.".to_owned();
    figure
}

fn method(demo: &Demo) -> Vec<Fact> {
    let config = &demo.config;
    let rate = config.rate_bps.map_or_else(
        || "no rate limit".to_owned(),
        |bps| {
            format!(
                "{} Mbit/s, FIFO of {} packets",
                bps as f64 / 1e6,
                config.queue_packets
            )
        },
    );
    let late = [&demo.plain, &demo.pillion].map(|group| group.send_error_p99_us.round());
    vec![
        Fact::new(
            "streams",
            format!(
                "{} in each group, {} B each {} ms (standard deviation {} ms), {} s, {}",
                config.streams,
                config.size_bytes,
                config.itt_ms,
                config.itt_sd_ms,
                config.duration_s,
                config.congestion,
            ),
        ),
        Fact::new(
            "path of each group",
            format!(
                "{} ms each way, uniform loss {} in the data direction, {rate}, seed {}",
                config.rtt_ms / 2.0,
                number::percent(config.loss),
                config.seed,
            ),
        ),
        Fact::new(
            "latency",
            "from the application's write to the other application's read, by one clock; \
             every byte verified",
        ),
        Fact::new(
            "TCP",
            "this kernel's own, between network namespaces over TAP devices",
        ),
        Fact::new("kernel", format!("Linux {}", demo.kernel)),
        Fact::new(
            "writes late by",
            format!("p99 {} us plain, {} us pillion", late[0], late[1]),
        ),
        Fact::verbatim(
            "senders",
            format!("{}\n{}", demo.plain.command, demo.pillion.command),
        ),
    ]
}
