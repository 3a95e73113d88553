//! The numbers of one loss rate.

use pillion_lab::{GroupResult, QUANTILES};
use pillion_report::{Column, Table, number};

use crate::Outcome;
use crate::shared::{Lateness, counted, redundant_share};

const OTHERS: [&str; 6] = [
    "retransmissions",
    "redundant",
    "losses hidden",
    "reactions",
    "writes late p99",
    "path late p99",
];

/// The table, and how many of its rows have no numbers because none can be trusted.
pub fn of(outcomes: &[Outcome]) -> (Table, usize) {
    let names = QUANTILES.iter().map(|(name, _)| *name).chain(OTHERS);
    let columns = [Column::left("")]
        .into_iter()
        .chain(names.map(Column::right));
    let mut table = Table::new("", columns);
    let mut untrusted = 0;
    let mut scene = "";
    for outcome in outcomes {
        if scene != outcome.scene {
            scene = &outcome.scene;
            table.section(scene);
        }
        let name = &outcome.variant;
        match &outcome.result {
            Ok(group) if !Lateness::from(group).is_too_large() => {
                table.row([vec![name.clone()], cells(group)].concat());
            }
            Ok(group) => {
                untrusted += 1;
                let [send, path] = Lateness::from(group).cells();
                table.row([format!("{name}: too late, by {send} and {path} ms")]);
            }
            Err(error) => {
                untrusted += 1;
                table.row([format!("{name}: {error}")]);
            }
        }
    }
    (table, untrusted)
}

fn cells(group: &GroupResult) -> Vec<String> {
    let account = group.bundler.as_ref();
    let count = |key| counted(account, key).map_or_else(String::new, number::count);
    let share = redundant_share(account);
    let latency = |(_, q): &(&str, f64)| number::millis(group.latency.quantile(*q));
    let mut cells: Vec<String> = QUANTILES.iter().map(latency).collect();
    cells.extend([
        number::count(group.retransmissions),
        share.map_or_else(String::new, number::percent),
        count("hidden_losses"),
        count("reactions"),
    ]);
    cells.extend(Lateness::from(group).cells());
    cells
}
