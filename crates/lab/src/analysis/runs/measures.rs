use std::collections::HashMap;
use std::net::SocketAddr;

use pillion_stats::measure::{Measure, Percentile, Unit, share};
use pillion_trace::{Connection, CopyKind, Direction, Observer, Range};

use super::Totals;

/// A measure of a group of streams, in one run or in several.
pub type RunMeasure = Measure<MeasureSource>;

/// The source of a measure's value.
#[derive(Debug, Clone, Copy)]
pub enum MeasureSource {
    /// A percentile of delivery latency.
    Delivery(Percentile),
    /// A function of totals.
    Totals(fn(&Totals) -> Option<f64>),
}

/// The definition of delivery latency, for tables and reports.
pub const DELIVERY_LATENCY: &str =
    "from one application's write to the other one's read, of each message";

/// All measures, in the order of the tables.
pub const MEASURES: [RunMeasure; 19] = [
    delivery("delivery_p50_ms", Percentile::P50),
    delivery("delivery_p90_ms", Percentile::P90),
    delivery("delivery_p97_ms", Percentile::P97),
    delivery("delivery_p99_ms", Percentile::P99),
    delivery("delivery_p99_9_ms", Percentile::P99_9),
    delivery("delivery_max_ms", Percentile::MAX),
    Measure {
        name: "missing_share",
        label: "missing",
        unit: Unit::Share,
        meaning: "messages that TCP accepted and the receiver's application never read, as a \
                  share of the accepted ones",
        of: MeasureSource::Totals(|it| share(it.missing_messages(), it.sent_messages)),
    },
    Measure {
        name: "failed_streams",
        label: "failed streams",
        unit: Unit::Number,
        meaning: "streams per run that never connected, or did not end with the receiver's close \
                  after all data was sent",
        of: MeasureSource::Totals(|it| per_run(it, it.failed_streams)),
    },
    Measure {
        name: "completion_ms",
        label: "completion",
        unit: Unit::Milliseconds,
        meaning: "mean time of completed flows, from the start of the connection attempt to the \
                  receiver's close",
        of: MeasureSource::Totals(|it| {
            (it.completed_flows > 0).then(|| it.completion_ms / it.completed_flows as f64)
        }),
    },
    Measure {
        name: "retransmissions",
        label: "retransmissions",
        unit: Unit::Number,
        meaning: "segments that TCP retransmitted, per run",
        of: MeasureSource::Totals(|it| if_reported(it, per_run(it, it.retransmissions)?)),
    },
    Measure {
        name: "loss_share",
        label: "loss",
        unit: Unit::Share,
        meaning: "packets toward the receiver, of all groups, that the bottleneck's queue \
                  dropped or the emulator lost, as a share",
        of: MeasureSource::Totals(|it| share(it.lost_packets, it.packets)),
    },
    Measure {
        name: "goodput_bit_per_s",
        label: "goodput",
        unit: Unit::BitPerSecond,
        meaning: "payload that the receiver's application read, per second of sending",
        of: MeasureSource::Totals(|it| {
            (it.seconds > 0.0).then(|| it.received_bytes as f64 * 8.0 / it.seconds)
        }),
    },
    Measure {
        name: "redundant_share",
        label: "redundant",
        unit: Unit::Share,
        meaning: "bytes sent again, bundled or retransmitted, as a share of all payload sent",
        of: MeasureSource::Totals(|it| {
            let repeated = it.retransmitted_bytes + it.bundled_bytes;
            if_reported(it, share(repeated, it.sent_bytes + it.bundled_bytes)?)
        }),
    },
    Measure {
        name: "hidden_losses",
        label: "hidden losses",
        unit: Unit::Number,
        meaning: "losses that bundles repaired before TCP saw them, per run; bundled groups only",
        of: MeasureSource::Totals(|it| per_bundled_run(it, it.hidden_losses)),
    },
    Measure {
        name: "reordered",
        label: "reordered",
        unit: Unit::Number,
        meaning: "segments counted as hidden losses that arrived late, per run; bundled groups \
                  only",
        of: MeasureSource::Totals(|it| per_bundled_run(it, it.reordered)),
    },
    Measure {
        name: "reactions",
        label: "reactions",
        unit: Unit::Number,
        meaning: "reactions of congestion control to hidden losses, per run; bundled groups only",
        of: MeasureSource::Totals(|it| per_bundled_run(it, it.reactions)),
    },
    Measure {
        name: "repaired_losses",
        label: "repaired",
        unit: Unit::Number,
        meaning: "lost segments that a bundle delivered first, by the traces of both ends, per \
                  run; bundled groups only",
        of: MeasureSource::Totals(|it| per_traced_run(it, it.repaired_losses)),
    },
    Measure {
        name: "missed_losses",
        label: "missed",
        unit: Unit::Number,
        meaning: "repaired losses in excess of the stream's hidden losses, per run: a lower \
                  bound of undetected losses",
        of: MeasureSource::Totals(|it| per_traced_run(it, it.missed_losses)),
    },
    Measure {
        name: "false_losses",
        label: "false",
        unit: Unit::Number,
        meaning: "hidden losses in excess of the stream's repaired losses, per run: a lower \
                  bound of false ones",
        of: MeasureSource::Totals(|it| per_traced_run(it, it.false_losses)),
    },
];

const fn delivery(name: &'static str, percentile: Percentile) -> RunMeasure {
    Measure {
        name,
        label: percentile.label,
        unit: Unit::Milliseconds,
        meaning: "this percentile of delivery latency",
        of: MeasureSource::Delivery(percentile),
    }
}

fn per_run(totals: &Totals, number: u64) -> Option<f64> {
    (totals.runs > 0).then(|| number as f64 / totals.runs as f64)
}

/// Returns the value if TCP_INFO of all streams is available.
fn if_reported(totals: &Totals, value: f64) -> Option<f64> {
    (totals.without_tcp_info == 0).then_some(value)
}

fn per_bundled_run(totals: &Totals, number: u64) -> Option<f64> {
    let is_bundled = totals.bundled_runs == totals.runs;
    per_run(totals, number).filter(|_| is_bundled)
}

fn per_traced_run(totals: &Totals, number: u64) -> Option<f64> {
    let is_traced = totals.traced_runs == totals.runs;
    per_run(totals, number).filter(|_| is_traced)
}

/// An observer that counts, per sender of a stream, the lost segments that a bundle delivered
/// first. pillion should find these as hidden losses. It needs both traces.
#[derive(Debug, Default)]
pub struct RepairCounter(HashMap<SocketAddr, u64>);

impl RepairCounter {
    /// Returns the count of the stream from this sender.
    #[must_use]
    pub fn count_from(&self, sender: SocketAddr) -> u64 {
        self.0.get(&sender).copied().unwrap_or_default()
    }
}

impl Observer for RepairCounter {
    fn range(&mut self, connection: &Connection, direction: Direction, range: &Range) {
        let first = range.delivery.and_then(|delivery| delivery.copy());
        let first = first.and_then(|copy| range.copies.get(copy));
        if first.is_some_and(|copy| copy.kind == CopyKind::Bundled) {
            let sender = match direction {
                Direction::Forward => connection.originator,
                Direction::Backward => connection.responder,
            };
            *self.0.entry(sender.into()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_lists_each_measure() {
        let documentation = include_str!("../../../../../docs/lab/overview.md");
        for measure in MEASURES {
            let (name, label, meaning) = (measure.name, measure.label, measure.meaning);
            let row = format!("| `{name}` | {label} | {meaning} |\n");
            assert!(
                documentation.contains(&row),
                "expected in docs/lab/overview.md:\n{row}"
            );
        }
    }

    #[test]
    fn unknown_measures_have_no_value() {
        let value = |name: &str, totals: &Totals| {
            let measure = MEASURES.iter().find(|it| it.name == name).unwrap();
            match measure.of {
                MeasureSource::Totals(of) => of(totals),
                MeasureSource::Delivery(_) => unreachable!("{name}"),
            }
        };
        let plain = Totals {
            runs: 2,
            retransmissions: 3,
            sent_bytes: 1000,
            retransmitted_bytes: 100,
            ..Totals::default()
        };
        assert_eq!(value("retransmissions", &plain), Some(1.5));
        assert_eq!(value("redundant_share", &plain), Some(0.1));
        assert_eq!(value("hidden_losses", &plain), None);
        assert_eq!(value("completion_ms", &plain), None);
        assert_eq!(value("loss_share", &plain), None);
        assert_eq!(value("goodput_bit_per_s", &plain), None);
        let without_tcp_info = Totals {
            without_tcp_info: 1,
            ..plain
        };
        assert_eq!(value("retransmissions", &without_tcp_info), None);
    }
}
