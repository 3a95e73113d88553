//! Results of the demo as a table and as a page.

use pillion_stats::measure::Percentile;
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, SortedSamples, Table, number};
use serde_json::json;

use super::{Demo, DemoSettings, GroupOutcome};

/// Returns the demo's numbers, both groups next to each other.
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
            rating(ratio.filter(|_| is_cost)).to_owned(),
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
            rating(ratio.filter(|_| is_significant(plain, pillion, share))).to_owned(),
        ]);
        if share > TAIL_SHARE && share < 1.0 {
            let [plain, pillion] = [plain, pillion].map(|side| range(&side.latency, share));
            let none = String::new;
            table.row(["95 % interval".to_owned(), plain, pillion, none(), none()]);
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
        rating(Some(ratio)).to_owned(),
    ]);
    let counters = pillion.bundler.as_ref().map(|it| &it.totals.counters);
    for (name, counted) in [
        ("hidden losses", counters.map(|it| it.hidden_losses)),
        (
            "window reductions for hidden losses",
            counters.map(|it| it.reactions),
        ),
    ] {
        let counted = counted.map_or_else(String::new, number::count);
        let none = String::new;
        table.row([name.to_owned(), none(), counted, none(), none()]);
    }
    table
}

/// Rates a ratio of plain TCP to pillion where less is better; empty if both are about equal.
fn rating(ratio: Option<f64>) -> &'static str {
    /// Ratios up to this one can result from chance and rounding.
    const EQUAL: f64 = 1.02;
    match ratio {
        Some(ratio) if ratio > EQUAL => "better",
        Some(ratio) if ratio < 1.0 / EQUAL => "worse",
        _ => "",
    }
}

/// Quantiles above this share depend on few messages.
const TAIL_SHARE: f64 = 0.99;

/// Returns whether a quantile differs significantly. Quantiles above [`TAIL_SHARE`] need disjoint
/// intervals.
fn is_significant(plain: &GroupOutcome, pillion: &GroupOutcome, share: f64) -> bool {
    let [plain, pillion] = [plain, pillion].map(|side| interval(&side.latency, share));
    let is_below = |one: Option<(f64, Option<f64>)>, other: Option<(f64, Option<f64>)>| {
        let (high, low) = (one.and_then(|(_, high)| high), other.map(|(low, _)| low));
        high.zip(low).is_some_and(|(high, low)| high < low)
    };
    share <= TAIL_SHARE || is_below(plain, pillion) || is_below(pillion, plain)
}

/// Returns the interval of a quantile as text.
fn range(latency: &SortedSamples, share: f64) -> String {
    match interval(latency, share) {
        None => number::MISSING.to_owned(),
        Some((low, None)) => format!("{} or more", number::millis(low)),
        Some((low, Some(high))) => {
            format!("{} to {}", number::millis(low), number::millis(high))
        }
    }
}

/// Returns the 95 % interval of a quantile from the ranks of the samples, assumed to be
/// independent. The upper end is `None` if too few samples are above it.
fn interval(latency: &SortedSamples, share: f64) -> Option<(f64, Option<f64>)> {
    const DEVIATIONS: f64 = 1.96;
    let count = latency.len() as f64;
    let deviation = DEVIATIONS * (share * (1.0 - share) / count).sqrt();
    let low = latency.quantile((share - deviation).max(0.0))?;
    let high = share + deviation;
    let is_bounded = high <= 1.0 - 1.0 / count;
    Some((low, is_bounded.then(|| latency.quantile(high)).flatten()))
}

/// Minimum messages in a tail for a meaningful share.
const MIN_TAIL_MESSAGES: f64 = 10.0;

/// Returns the demo's report: both distributions, the table, and the method.
#[must_use]
pub fn demo_page(demo: &Demo) -> Page {
    let settings = DemoSettings::of(&demo.run);
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
            number::percent(settings.loss),
            p99[0],
            p99[1],
            streams = settings.streams,
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

fn tail(demo: &Demo, series: &[(&str, &SortedSamples)], latency: Axis) -> Figure {
    let title = "Longest delivery latencies";
    let mut figure = Figure::ccdf(title, latency, "share of messages that took longer", series);
    figure.caption = "Share of messages that took longer than each latency, on a log scale: \
                      fewer messages are late if a line is lower and further left. The bound \
                      applies to any sender without extra packets: each message is bundled with \
                      the following ones, one inter-transmission time apart, until one of them \
                      arrives. Below the line of ten messages, steps depend on fewer than ten and \
                      differ between runs."
        .to_owned();
    let few = MIN_TAIL_MESSAGES / demo.plain.messages.min(demo.pillion.messages).max(1) as f64;
    let longest = series.iter().filter_map(|(_, it)| it.max());
    let longest = longest.fold(0.0, f64::max);
    if few < 1.0 && longest > 0.0 {
        let line = Line::straight("ten messages", vec![(0.0, few), (longest, few)]);
        figure.lines.push(line.reference());
    }
    let settings = DemoSettings::of(&demo.run);
    let one_way = settings.rtt_ms / 2.0;
    if settings.loss > 0.0 {
        let smallest = 1.0 / demo.plain.messages.max(1) as f64;
        let steps = (0..)
            .map(|k| {
                (
                    one_way + f64::from(k) * settings.itt_ms,
                    settings.loss.powi(k + 1),
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

fn body(series: &[(&str, &SortedSamples)], latency: Axis) -> Figure {
    let shown = series
        .iter()
        .filter_map(|(_, d)| d.quantile(0.99))
        .fold(0.0, f64::max);
    let axis = Axis {
        max: (shown > 0.0).then_some(shown),
        ..latency
    };
    let title = "Delivery latency";
    let mut figure = Figure::cdf(
        title,
        axis,
        "share of messages that took at most this long",
        series,
    );
    figure.caption = "Share of messages that took at most each latency: messages arrive sooner if a line \
                      is higher and further left. Up to the 99th percentile of the slower group; the \
                      next figure shows the rest.".to_owned();
    figure
}

fn method(demo: &Demo) -> Vec<Fact> {
    let settings = DemoSettings::of(&demo.run);
    let rate = demo.run.bottleneck.forward.rate.map_or_else(
        || "no rate limit".to_owned(),
        |rate| {
            format!(
                "{} Mbit/s, FIFO of {} packets",
                rate.bps() as f64 / 1e6,
                settings.queue
            )
        },
    );
    let late = [&demo.plain, &demo.pillion].map(|group| group.send_error_p99_us.round());
    vec![
        Fact::new(
            "streams",
            format!(
                "{} in each group, {} B each {} ms (standard deviation {} ms), {} s, {}",
                settings.streams,
                settings.size,
                settings.itt_ms,
                settings.itt_sd_ms,
                settings.seconds,
                settings.congestion,
            ),
        ),
        Fact::new(
            "path of each group",
            format!(
                "{} ms each way, uniform loss {} in the data direction, {rate}, seed {}",
                settings.rtt_ms / 2.0,
                number::percent(settings.loss),
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
            "of this kernel, between network namespaces (docs/lab/overview.md), with pillion's own path \
             over TAP devices",
        ),
        Fact::new("kernel", format!("Linux {}", demo.kernel)),
        Fact::new(
            "lateness of writes",
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
    fn rating_distinguishes_better_worse_equal() {
        let ratios = [Some(2.0), Some(0.6), Some(1.01), None];
        assert_eq!(ratios.map(rating), ["better", "worse", "", ""]);
    }

    #[test]
    fn tail_difference_within_chance_is_not_rated() {
        let side = |slowest: f64| GroupOutcome {
            messages: 10_000,
            latency: SortedSamples::new((0..10_000).map(|it| match it {
                9_900.. => slowest + f64::from(it),
                _ => f64::from(it),
            })),
            retransmissions: 0,
            path: Default::default(),
            send_error_p99_us: 0.0,
            bundler: None,
        };
        let (plain, alike, slow) = (side(0.0), side(5.0), side(1000.0));
        assert!(is_significant(&plain, &alike, 0.99));
        assert!(!is_significant(&plain, &alike, 0.999));
        assert!(is_significant(&plain, &slow, 0.999));
        assert!(is_significant(&slow, &plain, 0.999));
        assert!(!is_significant(&plain, &slow, 1.0), "one message each");
    }

    #[test]
    fn tail_interval_is_open_with_few_messages() {
        let latencies = SortedSamples::new((0..10_000).map(f64::from));
        // 9990 and 6.2 messages at each side
        let (low, high) = interval(&latencies, 0.999).unwrap();
        assert!((9983.0..9986.0).contains(&low), "{low}");
        assert!((9994.0..9998.0).contains(&high.unwrap()), "{high:?}");
        let (_, high) = interval(&latencies, 0.9999).unwrap();
        assert_eq!(high, None);
        assert!(range(&latencies, 0.9999).ends_with("or more"));
    }
}
