use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::Measures;
use pillion_trace::measure::catalogue::{self, Distributed, in_unit};

use super::Summary;

/// The distributions that are shown.
const SHOWN: [Distributed; 11] = [
    catalogue::ACK_LATENCY,
    catalogue::TRANSPORT_LATENCY,
    catalogue::APPLICATION_LATENCY,
    catalogue::HEAD_OF_LINE_WAIT,
    catalogue::RTT,
    catalogue::ONE_WAY_DELAY,
    catalogue::DELAY_VARIATION,
    catalogue::ITT,
    catalogue::IAT,
    catalogue::PAYLOAD,
    catalogue::IN_FLIGHT,
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
    for measure in SHOWN {
        let distribution = (measure.of)(measures);
        if distribution.is_empty() {
            continue;
        }
        let show = |found: Option<u64>| value(found, measure.unit);
        let quantiles = percentiles.iter();
        let quantiles = quantiles.map(|percentile| show(distribution.quantile(percentile / 100.0)));
        let first = [
            measure.heading(),
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

/// A value of a distribution, for people.
pub fn value(value: Option<u64>, unit: Unit) -> String {
    match (value, unit) {
        (Some(value), Unit::Bytes | Unit::Number) => number::count(value),
        (value, unit) => number::millis(value.map(|value| in_unit(value, unit))),
    }
}
