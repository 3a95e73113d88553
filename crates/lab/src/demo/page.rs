use pillion_stats::report::{Axis, Distribution, Fact, Figure, Line, Page, number};
use serde_json::json;

use super::setting::Setting;
use super::{Demo, demo_table};

/// So many messages at least tell something of a tail.
const FEW: f64 = 10.0;

/// The demo's report: both distributions, the table, and how they came about.
#[must_use]
pub fn demo_page(demo: &Demo) -> Page {
    let setting = Setting::of(&demo.run);
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
        title: format!("One message in a hundred: {} → {} ms", p99[0], p99[1]),
        lead: format!(
            "With {} loss, one message in a hundred took longer than {} ms with plain TCP, and \
             longer than {} ms with pillion: {streams} plain and {streams} bundled thin streams, \
             side by side.",
            number::percent(setting.loss),
            p99[0],
            p99[1],
            streams = setting.streams,
        ),
        parts: vec![
            body(&series, latency.clone()).into(),
            demo_table(demo).into(),
            tail(demo, &series, latency).into(),
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
    let title = "Who waits longest";
    let mut figure = Figure::ccdf(title, latency, "share of messages that took longer", series);
    figure.caption = "At each latency, the share of the messages that took longer, on a log \
                      scale: the lower and the further left a line, the fewer messages are late. \
                      The bound is that of any sender which sends no extra packets: a message \
                      rides along with those that follow it, one inter-transmission time apart, \
                      until one of them arrives. Below the line of ten messages, a step rests on \
                      fewer than ten, and another run has it elsewhere."
        .to_owned();
    let few = FEW / demo.plain.messages.min(demo.pillion.messages).max(1) as f64;
    let longest = series.iter().filter_map(|(_, it)| it.max());
    let longest = longest.fold(0.0, f64::max);
    if few < 1.0 && longest > 0.0 {
        let line = Line::straight("ten messages", vec![(0.0, few), (longest, few)]);
        figure.lines.push(line.reference());
    }
    let setting = Setting::of(&demo.run);
    let one_way = setting.rtt_ms / 2.0;
    if setting.loss > 0.0 {
        let smallest = 1.0 / demo.plain.messages.max(1) as f64;
        let steps = (0..)
            .map(|k| {
                (
                    one_way + f64::from(k) * setting.itt_ms,
                    setting.loss.powi(k + 1),
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
    let title = "How long messages took";
    let mut figure = Figure::cdf(title, axis, "share of messages that took no longer", series);
    figure.caption = "At each latency, the share of the messages that took no longer: the higher and the \
                      further left a line, the sooner messages are there. Up to the 99th percentile \
                      of the slower group; the rest is below.".to_owned();
    figure
}

fn method(demo: &Demo) -> Vec<Fact> {
    let setting = Setting::of(&demo.run);
    let rate = demo.run.bottleneck.forward.rate.map_or_else(
        || "no rate limit".to_owned(),
        |rate| {
            format!(
                "{} Mbit/s, FIFO of {} packets",
                rate.bps() as f64 / 1e6,
                setting.queue
            )
        },
    );
    let late = [&demo.plain, &demo.pillion].map(|group| group.send_error_p99_us.round());
    vec![
        Fact::new(
            "streams",
            format!(
                "{} in each group, {} B each {} ms (standard deviation {} ms), {} s, {}",
                setting.streams,
                setting.size,
                setting.itt_ms,
                setting.itt_sd_ms,
                setting.seconds,
                setting.congestion,
            ),
        ),
        Fact::new(
            "path of each group",
            format!(
                "{} ms each way, uniform loss {} in the data direction, {rate}, seed {}",
                setting.rtt_ms / 2.0,
                number::percent(setting.loss),
                demo.run.seed,
            ),
        ),
        Fact::new(
            "latency",
            "from the application's write to the other application's read, by one clock; \
             every byte verified",
        ),
        Fact::new(
            "TCP",
            "this kernel's own, between network namespaces (docs/lab.md), with pillion's own path \
             over TAP devices",
        ),
        Fact::new("kernel", format!("Linux {}", demo.kernel)),
        Fact::new(
            "writes late by",
            format!("p99 {} us plain, {} us pillion", late[0], late[1]),
        ),
        Fact::verbatim(
            "the bundled run, as a file for `pillion-lab run --engine live`",
            demo.run.to_text(),
        ),
    ]
}
