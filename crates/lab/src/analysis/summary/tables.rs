//! Results as two tables: counts, and distributions by percentiles.

use pillion_stats::measure::Unit;
use pillion_stats::report::{Column, Table, number};
use pillion_trace::measure::catalogue::{self, DistributionMeasure, in_unit};
use pillion_trace::measure::{GroupResults, Loss, Measures};

use super::Summary;

pub(super) fn counts_table(summary: &Summary) -> Table {
    let results: Vec<_> = summary.all_and_groups().collect();
    let columns = results.iter().map(|(name, _)| Column::right(*name));
    let columns = std::iter::once(Column::left("")).chain(columns);
    let mut rows = Rows {
        table: Table::new("Sent packets and their disposition", columns),
        results: results.into_iter().map(|(_, results)| results).collect(),
    };
    rows.connections();
    rows.sent(summary.results.duration_s);
    rows.lost();
    rows.fairness();
    rows.table
}

struct Rows<'a> {
    table: Table,
    results: Vec<&'a GroupResults>,
}

impl Rows<'_> {
    fn row(&mut self, name: &str, cell: impl Fn(&GroupResults) -> String) {
        let cells = self.results.iter().map(|results| cell(results));
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(cells).collect();
        self.table.row(cells);
    }

    fn count(&mut self, name: &str, of: impl Fn(&GroupResults) -> u64) {
        self.row(name, |results| number::count(of(results)));
    }

    /// Adds a row, unless it is 0 in every column.
    fn count_if_any(&mut self, name: &str, of: impl Fn(&GroupResults) -> u64) {
        if self.results.iter().any(|results| of(results) > 0) {
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
        self.count_if_any("copies", |all| all.main.sent.counts.copied_packets);
        self.count_if_any("retransmitted needlessly", |all| {
            all.main.sent.counts.spurious_retransmissions
        });
        self.count_if_any("zero windows received", |all| {
            all.back.sent.counts.zero_windows
        });
        self.count_if_any("filled a hole", |all| {
            all.main.sent.counts.hole_filling_packets
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
        if self.results.iter().all(|all| all.main.loss.is_none()) {
            self.table.section("lost, estimated by retransmissions");
            self.row("packets with payload", |all| {
                number::percent(all.main.sent.estimated_loss_share)
            });
            return;
        }
        self.table.section("lost on the way");
        let of = |results: &GroupResults, format: fn(&Loss) -> String| {
            results
                .main
                .loss
                .as_deref()
                .map_or_else(String::new, format)
        };
        let mut row = |name: &str, format: fn(&Loss) -> String| {
            self.row(name, |results| of(results, format));
        };
        let lost = "packets with payload";
        row(lost, |loss| {
            if has_unclear_losses(loss) {
                return String::new();
            }
            with_share(
                loss.delivery_stats.lost_data_packets,
                loss.lost_data_packets_share,
            )
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
            with_share(loss.delivery_stats.bundle_hits, loss.bundle_hit_share)
        });
        row("longest run of losses, packets", |loss| {
            if has_unclear_losses(loss) {
                return String::new();
            }
            number::count(loss.delivery_stats.longest_loss_run.into())
        });
    }

    fn fairness(&mut self) {
        if self
            .results
            .iter()
            .all(|all| all.handshakes.connections < 2)
        {
            return;
        }
        let index =
            |index: Option<f64>| index.map_or_else(String::new, |index| format!("{index:.3}"));
        self.table.section("fairness, by throughput");
        self.row("Jain's index", |all| index(all.fairness.jain_index));
        let relative = |all: &GroupResults| all.fairness.jain_index_relative_to_optimum;
        if self.results.iter().any(|all| relative(all).is_some()) {
            self.row("relative to each one's optimum", |all| index(relative(all)));
        }
    }
}

/// Whether packets were joined or split in transit, and the disposition of more than 1 % is
/// unknown. The number of losses is then unknown, too.
pub(super) fn has_unclear_losses(loss: &Loss) -> bool {
    loss.delivery_stats.unmatched_packets > 0 && loss.unknown_data_packets > loss.data_packets / 100
}

fn with_share(n: u64, share: Option<f64>) -> String {
    match share {
        Some(share) => format!("{} ({})", number::count(n), number::percent(share)),
        None => number::count(n),
    }
}

/// The distributions in the table, in this order.
const SHOWN: [DistributionMeasure; 11] = [
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
    let mut table = Table::new("Distributions", columns);
    let has_groups = !summary.results.groups.is_empty();
    for (name, results) in summary.all_and_groups() {
        if has_groups {
            table.section(name);
        }
        rows(&mut table, &results.main, summary.percentiles);
    }
    table
}

fn rows(table: &mut Table, measures: &Measures, percentiles: &[f64]) {
    for measure in SHOWN {
        let distribution = (measure.of)(measures);
        if distribution.is_empty() {
            continue;
        }
        let show = |quantile: Option<u64>| value(quantile, measure.unit);
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

/// Formats a value of a distribution; empty for `None`.
pub fn value(value: Option<u64>, unit: Unit) -> String {
    match (value, unit) {
        (Some(value), Unit::Bytes | Unit::Number) => number::count(value),
        (value, unit) => number::millis(value.map(|value| in_unit(value, unit))),
    }
}
