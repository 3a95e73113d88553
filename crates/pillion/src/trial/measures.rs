use pillion_stats::measure::{Measure, Unit, share};

use crate::trial::Summary;

/// Where a measure's value is found in a summary.
pub type Of = fn(&Summary) -> Option<f64>;

const fn measure(
    name: &'static str,
    label: &'static str,
    unit: Unit,
    meaning: &'static str,
    of: Of,
) -> Measure<Of> {
    Measure {
        name,
        label,
        unit,
        meaning,
        of,
    }
}

fn of_segments(part: u64, summary: &Summary) -> Option<f64> {
    share(part, summary.segments)
}

/// What is told of connections. The first one decides a trial, and the one of what is cut short.
pub const MEASURES: [Measure<Of>; 10] = [
    measure(
        "late_ms",
        "lateness",
        Unit::Milliseconds,
        "time that a segment waited to be acknowledged beyond the least RTT and the grace, on average \
         over all segments",
        |all| of_segments(all.late_us, all).map(|us| us / 1e3),
    ),
    measure(
        "ack_latency_ms_p50",
        "ACK latency, p50",
        Unit::Milliseconds,
        "half of the segments were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.5),
    ),
    measure(
        "ack_latency_ms_p90",
        "ACK latency, p90",
        Unit::Milliseconds,
        "nine segments of ten were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.9),
    ),
    measure(
        "ack_latency_ms_p99",
        "ACK latency, p99",
        Unit::Milliseconds,
        "all segments but one in a hundred were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.99),
    ),
    measure(
        "ack_latency_ms_p999",
        "ACK latency, p99.9",
        Unit::Milliseconds,
        "all segments but one in a thousand were acknowledged within this time",
        |all| all.latencies.quantile_ms(0.999),
    ),
    measure(
        "stall_share",
        "stalls",
        Unit::Share,
        "segments that took longer than the threshold of a stall to be acknowledged",
        |all| of_segments(all.stalls, all),
    ),
    measure(
        "timeout_share",
        "time-outs",
        Unit::Share,
        "times that TCP's retransmission timer ran out, of the number of segments",
        |all| of_segments(all.timeouts, all),
    ),
    measure(
        "retransmitted_share",
        "retransmitted",
        Unit::Share,
        "packets that TCP retransmitted, of the number of segments",
        |all| {
            let all_kinds = all
                .after_timeout
                .saturating_add(all.fast)
                .saturating_add(all.probes);
            of_segments(all_kinds, all)
        },
    ),
    measure(
        "cut_share",
        "cut short",
        Unit::Share,
        "connections that an error ended while data was on its way or still to be sent, of the number \
         of segments",
        Summary::cut_share,
    ),
    measure(
        "added_share",
        "bytes added",
        Unit::Share,
        "redundant bytes, of the payload that was sent for the first time",
        |all| share(all.redundant_bytes, all.new_bytes),
    ),
];
