use std::collections::BTreeMap;
use std::fmt::Write;

use pillion_lab::queue::measure::{Account, Drops, Quantiles, Stream, Summary};
use pillion_stats::names::without_steering;
use pillion_stats::report::{Column, Table, number};

/// Number of streams that are shown; JSON has all.
const STREAMS: usize = 20;

/// The measures of a queue as text, for people.
pub fn text(summary: &Summary) -> String {
    let mut text = accounts(summary).to_text();
    text += "\n";
    text += &lengths(summary).to_text();
    for line in lines(summary) {
        let _ = write!(text, "\n{line}");
    }
    text + "\n"
}

fn accounts(summary: &Summary) -> Table {
    let mut table = Table::new(
        "What became of the packets",
        [
            Column::left(""),
            Column::right("offered"),
            Column::right("sent"),
            Column::right("refused"),
            Column::right("dropped"),
            Column::right("loss"),
            Column::right("delay mean").unit("ms"),
            Column::right("p50").unit("ms"),
            Column::right("p90").unit("ms"),
            Column::right("p99").unit("ms"),
            Column::right("max").unit("ms"),
        ],
    );
    table.row(cells("all packets".to_owned(), &summary.all));
    let mut streams: Vec<&Stream> = summary.streams.iter().collect();
    streams.sort_by_key(|it| {
        std::cmp::Reverse((it.account.refused + it.account.dropped, it.account.offered))
    });
    for stream in streams.iter().take(STREAMS) {
        table.row(cells(name(stream), &stream.account));
    }
    table
}

fn name(stream: &Stream) -> String {
    let (source, destination) = (stream.ends.source, stream.ends.destination);
    let protocol = match stream.ends.protocol {
        6 => String::new(),
        17 => "UDP ".to_owned(),
        other => format!("protocol {other} "),
    };
    match stream.ends.protocol {
        6 | 17 => format!("{protocol}{source} > {destination}"),
        _ => format!("{protocol}{} > {}", source.ip(), destination.ip()),
    }
}

fn cells(name: String, account: &Account) -> Vec<String> {
    let delay = &account.delay_ms;
    let counts = [
        account.offered,
        account.sent,
        account.refused,
        account.dropped,
    ];
    let delays = [delay.mean, delay.p50, delay.p90, delay.p99, delay.max];
    std::iter::once(name)
        .chain(counts.map(number::count))
        .chain([number::percent(account.loss())])
        .chain(delays.map(number::millis))
        .collect()
}

fn lengths(summary: &Summary) -> Table {
    let headers = ["mean", "p50", "p90", "p99", "p99.9", "max"];
    let columns = headers.map(Column::right);
    let columns = std::iter::once(Column::left("queue length")).chain(columns);
    let mut table = Table::new("How long the queue was", columns);
    let mut row = |name: &str, of: &Quantiles, show: fn(f64) -> String| {
        let values = [of.mean, of.p50, of.p90, of.p99, of.p99_9, of.max];
        let cells = values.map(|value| value.map_or_else(|| number::count(0), show));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("packets", &summary.length.packets, |value| {
        format!("{value:.1}")
    });
    row("bytes", &summary.length.bytes, |value| {
        format!("{value:.0}")
    });
    table
}

fn lines(summary: &Summary) -> Vec<String> {
    let mut lines = vec![format!("watched for {:.1} s", summary.duration_s)];
    if summary.missed > 0 {
        let missed = number::count(summary.missed);
        lines.push(format!(
            "{missed} packets, or ends of packets, could not be noted"
        ));
    }
    let all = &summary.all;
    if all.unseen > 0 {
        let unseen = number::count(all.unseen);
        lines.push(format!(
            "{unseen} packets had no end: still in the queue, or split by it"
        ));
    }
    if all.unannounced > 0 {
        let sent = number::count(all.unannounced);
        lines.push(format!(
            "{sent} more were sent that had not been seen to arrive"
        ));
    }
    if !all.reasons.is_empty() {
        let reasons = all.reasons.iter();
        // A file of packets may say anything.
        let reasons = reasons
            .map(|(name, count)| format!("{} {}", without_steering(name), number::count(*count)));
        lines.push(format!(
            "why dropped: {}",
            reasons.collect::<Vec<_>>().join(", ")
        ));
        lines.extend(drops(&summary.drops));
    }
    lines
}

fn drops(drops: &Drops) -> Vec<String> {
    let mut lines = vec![
        format!("drops in a row: {}", runs(&drops.runs)),
        format!(
            "drops in a row within a stream: {}",
            runs(&drops.runs_of_streams)
        ),
    ];
    let gaps = [
        ("between drops", &drops.gaps_ms),
        ("between drops of a stream", &drops.gaps_of_streams_ms),
    ];
    for (name, of) in gaps {
        if of.p50.is_some() {
            let [p50, p90, max] = [of.p50, of.p90, of.max].map(number::millis);
            lines.push(format!(
                "time {name}: p50 {p50} ms, p90 {p90} ms, max {max} ms"
            ));
        }
    }
    let dispersion = drops.dispersion.iter();
    let dispersion = dispersion.filter_map(|it| {
        Some(format!(
            "{} in {} ms",
            number::ratio(it.index?),
            it.window_ms
        ))
    });
    let dispersion: Vec<_> = dispersion.collect();
    if !dispersion.is_empty() {
        lines.push(format!(
            "dispersion of drops (1: at random): {}",
            dispersion.join(", ")
        ));
    }
    if let Some(period) = drops.period {
        let correlation = number::ratio(period.correlation);
        lines.push(format!(
            "drops recur after {} ms (correlation {correlation})",
            period.lag_ms
        ));
    }
    if let Some(spread) = drops.spread_over_streams {
        let spread = number::ratio(spread);
        lines.push(format!(
            "spread of drops over streams (1: all lose alike): {spread}"
        ));
    }
    lines
}

fn runs(runs: &BTreeMap<u64, u64>) -> String {
    const SHOWN: u64 = 5;
    let mut parts: Vec<_> = runs
        .range(..=SHOWN)
        .map(|(length, count)| format!("{length}: {}", number::count(*count)))
        .collect();
    let longer: u64 = runs.range(SHOWN + 1..).map(|(_, count)| count).sum();
    if let (Some(longest), 1..) = (runs.keys().last(), longer) {
        parts.push(format!(
            "more: {} (longest {longest})",
            number::count(longer)
        ));
    }
    parts.join(", ")
}
