use pillion_report::{Column, Table, number};
use pillion_trace::measure::Measures;

use super::Summary;

/// What people call the distributions that are shown, with their unit.
const LABELS: [(&str, &str, &str); 11] = [
    ("ack_latency_ms", "ACK latency", "ms"),
    ("transport_latency_ms", "transport latency", "ms"),
    ("application_latency_ms", "application latency", "ms"),
    ("head_of_line_wait_ms", "head-of-line blocking", "ms"),
    ("rtt_ms", "RTT", "ms"),
    ("one_way_delay_ms", "one-way delay", "ms"),
    ("delay_variation_ms", "queueing delay", "ms"),
    ("itt_ms", "ITT", "ms"),
    ("iat_ms", "IAT", "ms"),
    ("payload_bytes", "payload", "B"),
    ("in_flight_packets", "packets in flight", ""),
];

pub fn table(summary: &Summary) -> Table {
    let percentiles = summary.percentiles.iter();
    let percentiles = percentiles.map(|percentile| Column::right(format!("p{percentile}")));
    let columns = [
        Column::left(""),
        Column::right("number"),
        Column::right("min"),
    ]
    .into_iter()
    .chain(percentiles)
    .chain([Column::right("max")]);
    let mut table = Table::new("How long it took, and how much it was", columns);
    let has_groups = !summary.results.groups.is_empty();
    for (name, together) in summary.together() {
        if has_groups {
            table.section(name);
        }
        rows(&mut table, &together.main, summary.percentiles);
    }
    table
}

fn rows(table: &mut Table, measures: &Measures, percentiles: &[f64]) {
    let distributions = measures.distributions();
    for (name, label, unit) in LABELS {
        let found = distributions.iter().find(|(found, ..)| *found == name);
        let Some((_, distribution, in_unit)) = found.filter(|(_, d, _)| !d.is_empty()) else {
            continue;
        };
        let label = match unit {
            "" => label.to_owned(),
            unit => format!("{label}, {unit}"),
        };
        let show = |found: Option<u64>| value(found, *in_unit);
        let quantiles = percentiles.iter();
        let quantiles = quantiles.map(|percentile| show(distribution.quantile(percentile / 100.0)));
        let first = [
            label,
            number::count(distribution.len()),
            show(distribution.min()),
        ];
        table.row(
            first
                .into_iter()
                .chain(quantiles)
                .chain([show(distribution.max())]),
        );
    }
}

/// A value of a distribution; `in_unit` of its units are one of those shown.
pub fn value(value: Option<u64>, in_unit: f64) -> String {
    match value {
        Some(value) if in_unit == 1.0 => number::count(value),
        value => number::millis(value.map(|value| value as f64 / in_unit)),
    }
}
