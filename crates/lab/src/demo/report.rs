//! The demonstration's results as a table and as a page.

use pillion_stats::measure::Percentile;
use pillion_stats::report::{Axis, Column, Distribution, Fact, Figure, Line, Page, Table, number};
use serde_json::json;

use super::{Demo, Setting, Side};

/// The demo's numbers, both groups beside each other.
#[must_use]
pub fn demo_table(demo: &Demo) -> Table {
    let columns = [
        Column::left(""),
        Column::right("plain TCP"),
        Column::right("pillion"),
        Column::right("plain / pillion"),
        Column::left("pillion is"),
    ];
    let (plain, pillion) = (&demo.plain, &demo.pillion);
    let mut table = Table::new("Plain TCP and pillion, side by side", columns);
    let counts = |name: &str, plain: u64, pillion: u64, is_cost: bool| {
        let ratio = (pillion > 0).then(|| plain as f64 / pillion as f64);
        [
            name.to_owned(),
            number::count(plain),
            number::count(pillion),
            number::ratio(ratio),
            judged(ratio.filter(|_| is_cost)).to_owned(),
        ]
    };
    table.row(counts("messages", plain.messages, pillion.messages, false));
    table.section("delivery latency, ms");
    for Percentile { label, share, .. } in Percentile::LATENCY {
        let quantiles = [plain, pillion].map(|side| side.latency.quantile(share));
        let ratio = quantiles[0].zip(quantiles[1]).map(|(a, b)| a / b);
        table.row([
            label.to_owned(),
            number::millis(quantiles[0]),
            number::millis(quantiles[1]),
            number::ratio(ratio),
            judged(ratio.filter(|_| are_told_apart(plain, pillion, share))).to_owned(),
        ]);
        if share > FAR && share < 1.0 {
            let [plain, pillion] = [plain, pillion].map(|side| range(&side.latency, share));
            let none = String::new;
            table.row([
                "95 % interval of it".to_owned(),
                plain,
                pillion,
                none(),
                none(),
            ]);
        }
    }
    table.section("cost");
    table.row(counts(
        "retransmissions",
        plain.retransmissions,
        pillion.retransmissions,
        true,
    ));
    let packets = [&plain.path, &pillion.path].map(|path| path.received.packets);
    table.row(counts("packets on the wire", packets[0], packets[1], true));
    let bytes = [&plain.path, &pillion.path].map(|path| path.received.bytes as f64);
    let ratio = bytes[0] / bytes[1];
    table.row([
        "bytes on the wire".to_owned(),
        number::bytes(bytes[0]),
        number::bytes(bytes[1]),
        number::ratio(ratio),
        judged(Some(ratio)).to_owned(),
    ]);
    let counters = pillion.bundler.as_ref().map(|it| &it.totals.counters);
    for (name, counted) in [
        ("losses hidden", counters.map(|it| it.hidden_losses)),
        (
            "window reductions for them",
            counters.map(|it| it.reactions),
        ),
    ] {
        let counted = counted.map_or_else(String::new, number::count);
        let none = String::new;
        table.row([name.to_owned(), none(), counted, none(), none()]);
    }
    table
}

/// What a ratio of plain TCP's to pillion's means where less is better; nothing where they are alike.
fn judged(ratio: Option<f64>) -> &'static str {
    /// As far from 1 as chance and rounding make it.
    const ALIKE: f64 = 1.02;
    match ratio {
        Some(ratio) if ratio > ALIKE => "better",
        Some(ratio) if ratio < 1.0 / ALIKE => "worse",
        _ => "",
    }
}

/// Quantiles beyond this rest on few messages.
const FAR: f64 = 0.99;

/// Whether a quantile's difference is more than chance: of those that rest on few messages, whether
/// the intervals of both lie apart.
fn are_told_apart(plain: &Side, pillion: &Side, share: f64) -> bool {
    let [plain, pillion] = [plain, pillion].map(|side| interval(&side.latency, share));
    let is_below = |one: Option<(f64, Option<f64>)>, other: Option<(f64, Option<f64>)>| {
        let (high, low) = (one.and_then(|(_, high)| high), other.map(|(low, _)| low));
        high.zip(low).is_some_and(|(high, low)| high < low)
    };
    share <= FAR || is_below(plain, pillion) || is_below(pillion, plain)
}

/// The interval of a quantile, in words.
fn range(latency: &Distribution, share: f64) -> String {
    match interval(latency, share) {
        None => number::MISSING.to_owned(),
        Some((low, None)) => format!("{} or more", number::millis(low)),
        Some((low, Some(high))) => {
            format!("{} to {}", number::millis(low), number::millis(high))
        }
    }
}

/// The 95 % interval of a quantile by the ranks of the samples, which are taken for independent; no end
/// where too few are beyond it.
fn interval(latency: &Distribution, share: f64) -> Option<(f64, Option<f64>)> {
    const DEVIATIONS: f64 = 1.96;
    let count = latency.len() as f64;
    let deviation = DEVIATIONS * (share * (1.0 - share) / count).sqrt();
    let low = latency.quantile((share - deviation).max(0.0))?;
    let high = share + deviation;
    let is_known = high <= 1.0 - 1.0 / count;
    Some((low, is_known.then(|| latency.quantile(high)).flatten()))
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn better_and_worse_are_told_apart_and_alike_is_neither() {
        let ratios = [Some(2.0), Some(0.6), Some(1.01), None];
        assert_eq!(ratios.map(judged), ["better", "worse", "", ""]);
    }

    #[test]
    fn of_the_far_tail_nothing_is_said_that_may_be_chance() {
        let side = |slowest: f64| Side {
            messages: 10_000,
            latency: Distribution::new((0..10_000).map(|it| match it {
                9_900.. => slowest + f64::from(it),
                _ => f64::from(it),
            })),
            retransmissions: 0,
            path: Default::default(),
            send_error_p99_us: 0.0,
            bundler: None,
        };
        let (plain, alike, slow) = (side(0.0), side(5.0), side(1000.0));
        assert!(are_told_apart(&plain, &alike, 0.99));
        assert!(!are_told_apart(&plain, &alike, 0.999));
        assert!(are_told_apart(&plain, &slow, 0.999));
        assert!(are_told_apart(&slow, &plain, 0.999));
        assert!(!are_told_apart(&plain, &slow, 1.0), "one message each");
    }

    #[test]
    fn the_far_tail_has_an_interval_as_far_as_messages_tell() {
        let latencies = Distribution::new((0..10_000).map(f64::from));
        // 9990 and 6.2 messages at each side
        let (low, high) = interval(&latencies, 0.999).unwrap();
        assert!((9983.0..9986.0).contains(&low), "{low}");
        assert!((9994.0..9998.0).contains(&high.unwrap()), "{high:?}");
        let (_, high) = interval(&latencies, 0.9999).unwrap();
        assert_eq!(high, None);
        assert!(range(&latencies, 0.9999).ends_with("or more"));
    }
}
