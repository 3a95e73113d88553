//! The numbers of one congestion control.

use std::time::Duration;

use pillion_report::{Column, Table, number};

use crate::Outcome;
use crate::shared::{Lateness, counted, redundant_share};

const COLUMNS: [&str; 13] = [
    "greedy Mbit/s",
    "thin Mbit/s",
    "greedy lost",
    "thin lost",
    "p50",
    "p90",
    "p99",
    "max",
    "retransmissions",
    "redundant",
    "reactions",
    "writes late p99",
    "path late p99",
];

pub fn empty() -> Table {
    let columns = COLUMNS.map(Column::right);
    Table::new(
        "",
        [Column::left("thin streams")].into_iter().chain(columns),
    )
}

/// Adds a row; false if it has no numbers, because they cannot be trusted.
pub fn add(table: &mut Table, name: &str, outcome: &Outcome, duration: Duration) -> bool {
    let group = &outcome.thin_group;
    let lateness = Lateness::from(group);
    if lateness.is_too_large() {
        let [send, path] = lateness.cells();
        table.row([format!("{name}: too late, by {send} and {path} ms")]);
        return false;
    }
    let account = group.bundler.as_ref();
    let latency = |q| number::millis(group.latency.quantile(q));
    let rate = |mbit: f64| format!("{mbit:.3}");
    let count = |key| counted(account, key).map_or_else(String::new, number::count);
    let redundant = redundant_share(account);
    let [send, path] = lateness.cells();
    table.row([
        name.to_owned(),
        rate(outcome.greedy.mbit_per_s(duration)),
        rate(outcome.thin.mbit_per_s(duration)),
        number::percent(outcome.greedy.loss()),
        number::percent(outcome.thin.loss()),
        latency(0.5),
        latency(0.9),
        latency(0.99),
        latency(1.0),
        number::count(group.retransmissions),
        redundant.map_or_else(String::new, number::percent),
        count("reactions"),
        send,
        path,
    ]);
    true
}
