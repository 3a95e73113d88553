use std::collections::HashMap;
use std::net::SocketAddr;

use pillion_stats::measure::{Measure, Percentile, Unit, share};
use pillion_trace::{Connection, CopyKind, Direction, Observer, Range};

use super::Totals;

/// A measure of a group of streams, in one run or in several.
pub type RunMeasure = Measure<Of>;

/// Where to find a measure.
#[derive(Debug, Clone, Copy)]
pub enum Of {
    /// Delivery latency.
    Delivery(Percentile),
    /// Sums.
    Totals(fn(&Totals) -> Option<f64>),
}

/// The latency that is meant, wherever a run's is told.
pub const DELIVERY_LATENCY: &str =
    "from one application's write to the other one's read, of each message";

/// All measures, in the order in which they are shown.
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
        meaning: "messages that TCP took and the receiver's application never read, of all that \
                  TCP took; delivery latency is that of the others",
        of: Of::Totals(|it| share(it.missing_messages(), it.sent_messages)),
    },
    Measure {
        name: "failed_streams",
        label: "failed streams",
        unit: Unit::Number,
        meaning: "streams that never connected, or did not end with the receiver's close after \
                  all was sent, in each run",
        of: Of::Totals(|it| per_run(it, it.failed_streams)),
    },
    Measure {
        name: "completion_ms",
        label: "completion",
        unit: Unit::Milliseconds,
        meaning: "of flows that ended well, the mean time from when each began to connect until \
                  the receiver's close had come",
        of: Of::Totals(|it| {
            (it.completed_flows > 0).then(|| it.completion_ms / it.completed_flows as f64)
        }),
    },
    Measure {
        name: "retransmissions",
        label: "retransmissions",
        unit: Unit::Number,
        meaning: "segments that TCP retransmitted, in each run",
        of: Of::Totals(|it| told(it, per_run(it, it.retransmissions)?)),
    },
    Measure {
        name: "loss_share",
        label: "loss",
        unit: Unit::Share,
        meaning: "packets that the bottleneck's queue dropped or the emulator lost, of those on \
                  the way to the receiver, of all groups of the run",
        of: Of::Totals(|it| share(it.lost_packets, it.packets)),
    },
    Measure {
        name: "goodput_bit_per_s",
        label: "goodput",
        unit: Unit::BitPerSecond,
        meaning: "payload that the receiver's application read, over the time that streams were \
                  to send",
        of: Of::Totals(|it| {
            (it.seconds > 0.0).then(|| it.received_bytes as f64 * 8.0 / it.seconds)
        }),
    },
    Measure {
        name: "redundant_share",
        label: "redundant",
        unit: Unit::Share,
        meaning: "bytes sent again, bundled or retransmitted, of all payload sent",
        of: Of::Totals(|it| {
            let again = it.retransmitted_bytes + it.bundled_bytes;
            told(it, share(again, it.sent_bytes + it.bundled_bytes)?)
        }),
    },
    Measure {
        name: "hidden_losses",
        label: "hidden losses",
        unit: Unit::Number,
        meaning: "losses that bundles repaired before TCP saw them, in each run; of groups that \
                  are bundled",
        of: Of::Totals(|it| bundled(it, it.hidden_losses)),
    },
    Measure {
        name: "reordered",
        label: "late",
        unit: Unit::Number,
        meaning: "segments that were taken for such losses and came after all, only late, in each \
                  run; of groups that are bundled",
        of: Of::Totals(|it| bundled(it, it.reordered)),
    },
    Measure {
        name: "reactions",
        label: "reactions",
        unit: Unit::Number,
        meaning: "reactions of congestion control to hidden losses, in each run; of groups that \
                  are bundled",
        of: Of::Totals(|it| bundled(it, it.reactions)),
    },
    Measure {
        name: "repaired_losses",
        label: "repaired",
        unit: Unit::Number,
        meaning: "segments that were lost and that bundles brought after all, as the traces of \
                  both ends show, in each run; of groups that are bundled",
        of: Of::Totals(|it| traced(it, it.repaired_losses)),
    },
    Measure {
        name: "missed_losses",
        label: "missed",
        unit: Unit::Number,
        meaning: "of these, what is more than the stream's hidden losses: at least so many were \
                  not found",
        of: Of::Totals(|it| traced(it, it.missed_losses)),
    },
    Measure {
        name: "false_losses",
        label: "false",
        unit: Unit::Number,
        meaning: "what of a stream's hidden losses is more than these: at least so many were none",
        of: Of::Totals(|it| traced(it, it.false_losses)),
    },
];

const fn delivery(name: &'static str, percentile: Percentile) -> RunMeasure {
    Measure {
        name,
        label: percentile.label,
        unit: Unit::Milliseconds,
        meaning: "this percentile of delivery latency",
        of: Of::Delivery(percentile),
    }
}

fn per_run(totals: &Totals, number: u64) -> Option<f64> {
    (totals.runs > 0).then(|| number as f64 / totals.runs as f64)
}

/// What TCP told of, unless it was silent about a stream.
fn told(totals: &Totals, value: f64) -> Option<f64> {
    (totals.untold == 0).then_some(value)
}

fn bundled(totals: &Totals, number: u64) -> Option<f64> {
    let is_bundled = totals.bundled_runs == totals.runs;
    per_run(totals, number).filter(|_| is_bundled)
}

fn traced(totals: &Totals, number: u64) -> Option<f64> {
    let is_traced = totals.traced_runs == totals.runs;
    per_run(totals, number).filter(|_| is_traced)
}

/// Of each sender of a stream, the segments that were lost and that a bundle brought after all:
/// what pillion is to find as hidden losses. Two traces show it.
#[derive(Debug, Default)]
pub struct Repairs(HashMap<SocketAddr, u64>);

impl Repairs {
    /// The number of such segments of the stream that comes from here.
    #[must_use]
    pub fn of(&self, sender: SocketAddr) -> u64 {
        self.0.get(&sender).copied().unwrap_or_default()
    }
}

impl Observer for Repairs {
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
    fn the_documentation_has_each_measure() {
        let documentation = include_str!("../../../../../docs/lab.md");
        for measure in MEASURES {
            let (name, label, meaning) = (measure.name, measure.label, measure.meaning);
            let row = format!("| `{name}` | {label} | {meaning} |\n");
            assert!(
                documentation.contains(&row),
                "expected in docs/lab.md:\n{row}"
            );
        }
    }

    #[test]
    fn what_is_not_known_has_no_value() {
        let value = |name: &str, totals: &Totals| {
            let measure = MEASURES.iter().find(|it| it.name == name).unwrap();
            match measure.of {
                Of::Totals(of) => of(totals),
                Of::Delivery(_) => unreachable!("{name}"),
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
        let untold = Totals { untold: 1, ..plain };
        assert_eq!(value("retransmissions", &untold), None);
    }
}
