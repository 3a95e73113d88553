//! What was measured as two tables: counts, and distributions by percentiles.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::catalogue::{self, Distributed, in_unit};
use pillion_trace::measure::{Loss, Measures, Together};

use super::Summary;

pub(super) fn counts_table(summary: &Summary) -> Table {
    let together: Vec<_> = summary.together().collect();
    let columns = together.iter().map(|(name, _)| Column::right(*name));
    let columns = std::iter::once(Column::left("")).chain(columns);
    let mut rows = Rows {
        table: Table::new("What was sent, and what became of it", columns),
        together: together.into_iter().map(|(_, together)| together).collect(),
    };
    rows.connections();
    rows.sent(summary.results.duration_s);
    rows.lost();
    rows.fairness();
    rows.table
}

struct Rows<'a> {
    table: Table,
    together: Vec<&'a Together>,
}

impl Rows<'_> {
    fn row(&mut self, name: &str, cell: impl Fn(&Together) -> String) {
        let cells = self.together.iter().map(|together| cell(together));
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(cells).collect();
        self.table.row(cells);
    }

    fn count(&mut self, name: &str, of: impl Fn(&Together) -> u64) {
        self.row(name, |together| number::count(of(together)));
    }

    /// Left out where it is 0 throughout.
    fn count_if_any(&mut self, name: &str, of: impl Fn(&Together) -> u64) {
        if self.together.iter().any(|together| of(together) > 0) {
            self.count(name, of);
        }
    }

    fn connections(&mut self) {
        self.table.section("connections");
        self.count("all", |all| all.handshakes.connections);
        self.row("handshake completed", |all| {
            let handshakes = all.handshakes;
            if handshakes.tried == 0 {
                return String::new();
            }
            let tried = number::count(handshakes.tried);
            format!("{} of {tried}", number::count(handshakes.completed))
        });
        self.count_if_any("refused", |all| all.handshakes.refused);
        self.count_if_any("unanswered", |all| all.handshakes.unanswered);
        self.count_if_any("reset", |all| all.handshakes.reset);
        self.count_if_any("without data", |all| all.handshakes.without_data);
    }

    fn sent(&mut self, duration_s: f64) {
        let rate = |bytes: u64| {
            let bits = bytes as f64 * 8.0;
            number::rate((duration_s > 0.0).then(|| bits / duration_s))
        };
        self.table.section("sent, each connection's main direction");
        self.count("packets with payload", |all| {
            all.main.sent.counts.data_packets
        });
        self.count("bundled", |all| all.main.sent.counts.bundled_packets);
        self.count("retransmitted", |all| {
            all.main.sent.counts.retransmitted_packets
        });
        self.row("new bytes", |all| {
            number::bytes(all.main.sent.counts.new_bytes as f64)
        });
        self.row("redundant bytes, of all payload", |all| {
            number::percent(all.main.sent.redundant_share)
        });
        self.row("on the wire, headers included", |all| {
            rate(all.main.sent.counts.wire_bytes)
        });
        self.row("new payload", |all| rate(all.main.sent.counts.new_bytes));
    }

    fn lost(&mut self) {
        if self.together.iter().all(|all| all.main.loss.is_none()) {
            self.table
                .section("lost, as retransmissions let one estimate it");
            self.row("packets with payload", |all| {
                number::percent(all.main.sent.estimated_loss_share)
            });
            return;
        }
        self.table.section("lost on the way");
        let of = |together: &Together, tell: fn(&Loss) -> String| {
            together.main.loss.as_deref().map_or_else(String::new, tell)
        };
        let mut row = |name: &str, tell: fn(&Loss) -> String| {
            self.row(name, |together| of(together, tell));
        };
        let lost = "packets with payload";
        row(lost, |loss| {
            if are_unclear(loss) {
                return String::new();
            }
            with_share(loss.passage.lost_data_packets, loss.lost_data_packets_share)
        });
        row("byte ranges, their first copy", |loss| {
            with_share(loss.lost_ranges, loss.lost_ranges_share)
        });
        row("repaired by a bundle", |loss| {
            number::count(loss.ranges_repaired_by_bundle)
        });
        row("repaired by a retransmission", |loss| {
            number::count(loss.ranges_repaired_by_retransmission)
        });
        row("bundles that repaired, of those arrived", |loss| {
            with_share(loss.passage.bundle_hits, loss.bundle_hit_share)
        });
        row("longest run of losses, packets", |loss| {
            if are_unclear(loss) {
                return String::new();
            }
            number::count(loss.passage.longest_loss_run.into())
        });
    }

    fn fairness(&mut self) {
        if self
            .together
            .iter()
            .all(|all| all.handshakes.connections < 2)
        {
            return;
        }
        let index =
            |index: Option<f64>| index.map_or_else(String::new, |index| format!("{index:.3}"));
        self.table.section("fairness, by throughput");
        self.row("Jain's index", |all| index(all.fairness.jain_index));
        let relative = |all: &Together| all.fairness.jain_index_relative_to_optimum;
        if self.together.iter().any(|all| relative(all).is_some()) {
            self.row("relative to what each is due", |all| index(relative(all)));
        }
    }
}

/// Whether it is not known of too many packets what became of them to say how many were lost:
/// they were joined or cut on the way.
pub(super) fn are_unclear(loss: &Loss) -> bool {
    loss.passage.unmatched_packets > 0 && loss.unknown_data_packets > loss.data_packets / 100
}

fn with_share(n: u64, share: Option<f64>) -> String {
    match share {
        Some(share) => format!("{} ({})", number::count(n), number::percent(share)),
        None => number::count(n),
    }
}

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

pub(super) fn times_table(summary: &Summary) -> Table {
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
