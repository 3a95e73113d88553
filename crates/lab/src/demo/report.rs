//! Results of the demo as a table and as a page.

use pillion_bpf::Counters;
use pillion_stats::measure::Percentile;
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, SortedSamples, Table, number};
use serde_json::json;

use super::{Demo, DemoSettings, GROUPS, GroupOutcome};

/// Returns the demo's numbers, the groups next to each other.
#[must_use]
pub fn demo_table(demo: &Demo) -> Table {
    let [plain, published, pillion] = GROUPS.map(Column::right);
    let ratio = Column::right("plain / pillion");
    let rating = Column::left("pillion is");
    let columns = [Column::left(""), plain, published, pillion, ratio, rating];
    let mut table = Table::new("Plain TCP, bundling as published, and pillion", columns);
    let groups = demo.groups();
    let counts = |name: &str, count: fn(&GroupOutcome) -> u64, is_cost: bool| {
        let [plain, .., pillion] = groups.map(count);
        let ratio = (pillion > 0).then(|| plain as f64 / pillion as f64);
        let counts = groups.map(|group| number::count(count(group)));
        row(name, counts, ratio, is_cost)
    };
    table.row(counts("messages", |it| it.messages, false));
    table.section("delivery latency, ms");
    for Percentile { label, share, .. } in Percentile::LATENCY {
        let quantiles = groups.map(|group| group.latency.quantile(share));
        let ratio = quantiles[0].zip(quantiles[2]).map(|(a, b)| a / b);
        let is_significant = is_significant(&demo.plain, &demo.pillion, share);
        table.row(row(
            label,
            quantiles.map(number::millis),
            ratio,
            is_significant,
        ));
        if share > TAIL_SHARE && share < 1.0 {
            let ranges = groups.map(|group| range(&group.latency, share));
            table.row(row("95 % interval", ranges, None, false));
        }
    }
    table.section("cost");
    table.row(counts("retransmissions", |it| it.retransmissions, true));
    table.row(counts(
        "packets on the wire",
        |it| it.path.received.packets,
        true,
    ));
    let bytes = groups.map(|group| group.path.received.bytes as f64);
    let ratio = bytes[0] / bytes[2];
    table.row(row(
        "bytes on the wire",
        bytes.map(number::bytes),
        Some(ratio),
        true,
    ));
    let counted = |name: &str, counter: fn(&Counters) -> u64| {
        let counts = groups.map(|group| {
            let counters = group.bundler.as_ref().map(|it| &it.totals.counters);
            counters.map_or_else(String::new, |it| number::count(counter(it)))
        });
        row(name, counts, None, false)
    };
    table.row(counted("hidden losses", |it| it.hidden_losses));
    table.row(counted("window reductions for them", |it| it.reactions));
    table
}

/// Returns the cells of a row: the value of each group, and the ratio of plain TCP to pillion with
/// its rating.
fn row(name: &str, values: [String; 3], ratio: Option<f64>, is_rated: bool) -> [String; 6] {
    let [plain, published, pillion] = values;
    let rating = rating(ratio.filter(|_| is_rated)).to_owned();
    let ratio = number::ratio(ratio);
    [name.to_owned(), plain, published, pillion, ratio, rating]
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
    let groups = demo.groups();
    let series: [_; 3] = std::array::from_fn(|i| (GROUPS[i], &groups[i].latency));
    let latency = Axis {
        min: Some(0.0),
        ..Axis::linear("delivery latency", "ms")
    };
    let p99 = series.map(|(_, distribution)| number::millis(distribution.quantile(0.99)));
    Page {
        title: format!("p99: plain TCP {} ms → pillion {} ms", p99[0], p99[2]),
        lead: format!(
            "With {} loss, one message in a hundred took longer than {} ms with plain TCP, {} ms \
             with bundling as published, and {} ms with pillion: {} thin streams in each group, \
             side by side.",
            number::percent(settings.loss),
            p99[0],
            p99[1],
            p99[2],
            settings.streams,
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
    let fewest = demo.groups().map(|group| group.messages).into_iter().min();
    let few = MIN_TAIL_MESSAGES / fewest.unwrap_or(0).max(1) as f64;
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
                      is higher and further left. Up to the 99th percentile of the slowest group; the \
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
    let late = demo.groups().map(|group| group.send_error_p99_us.round());
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
            format!(
                "p99 {} us plain TCP, {} us as published, {} us pillion",
                late[0], late[1], late[2]
            ),
        ),
        Fact::verbatim(
            "pillion's run, as a file for `pillion-lab run --engine live`",
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
