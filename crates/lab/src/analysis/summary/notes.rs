//! Notes about the limits of the results.

use pillion_stats::report::number;
use pillion_trace::DirectionCounts;
use pillion_trace::measure::catalogue::{DistributionMeasure, distributions};
use pillion_trace::measure::{ClockSummary, Loss, Measures, Results, UnknownDelays};

use super::Summary;
use super::tables::has_unclear_losses;

pub(super) fn notes(summary: &Summary) -> Vec<String> {
    let results = summary.results;
    let mut notes: Vec<String> = summary.clocks().into_iter().collect();
    if results.connections.is_empty() {
        notes.push("the trace does not contain any matching TCP connection".to_owned());
    }
    let unrelated = |clock: &ClockSummary| clock.hull_there.is_none();
    if results.clock.as_ref().is_some_and(unrelated) {
        notes.push(
            "no packet of the sender's trace was found in the receiver's: check that both show \
             the same connections and times"
                .to_owned(),
        );
    }
    if looks_taken_at_receiver(results) {
        notes.push(
            "the trace was probably taken at the receiver of the data, because ACKs follow much \
             sooner than a round trip takes: latency and RTT are as seen from there. Give the \
             sender's trace first, and this one with --receiver"
                .to_owned(),
        );
    }
    let both = |of: fn(&DirectionCounts) -> u64| {
        let measures = [&results.all.main, &results.all.back];
        measures
            .map(|measures| of(&measures.sent.counts))
            .iter()
            .sum()
    };
    let offloaded = both(|counts| counts.offloaded_packets);
    if offloaded > 0 {
        notes.push(format!(
            "{} packets are larger than a segment: they were captured before segmentation, or \
             after receive offload joined them. For exact counts of packets and losses, capture \
             with `ethtool -K DEVICE tso off gso off gro off`",
            number::count(offloaded)
        ));
    }
    let missing = both(|counts| counts.missing_bytes);
    if missing > 0 {
        notes.push(format!(
            "{} were acknowledged, but the trace does not show their transmission: the capture \
             missed packets, or started while they were in transit",
            number::bytes(missing as f64)
        ));
    }
    notes.extend(limitation_notes(results));
    notes
}

/// Whether ACKs follow much sooner than a round trip takes: a handshake, the repair of a loss before
/// the capture, or an ACK in the other direction.
fn looks_taken_at_receiver(results: &Results) -> bool {
    let first_syns = results.connections.iter().filter(|single| single.syns == 1);
    let handshakes = first_syns.filter_map(|single| single.handshake_ms);
    let sent = &results.all.main.sent.counts;
    // At the sender, a capture that misses packets has holes as well, but most stay open.
    let repairs_ns = sent.shortest_hole_ns.filter(|_| sent.missing_bytes == 0);
    let acks_back_ns = results.all.back.latency.rtt.min();
    let others_ms = [
        repairs_ns.map(|ns| ns as f64),
        acks_back_ns.map(|ns| ns as f64),
    ];
    let others_ms = others_ms.into_iter().flatten().map(|ns| ns / 1e6);
    let shortest_ms = handshakes.chain(others_ms).fold(f64::INFINITY, f64::min);
    let rtt_ns = results.all.main.latency.rtt.quantile(0.5);
    let is_far_shorter = |ns: u64| (ns as f64 / 1e6) < shortest_ms / 10.0;
    results.clock.is_none() && shortest_ms.is_finite() && rtt_ns.is_some_and(is_far_shorter)
}

// Limitations: values that are excluded, and the precision of the others.

fn limitation_notes(results: &Results) -> Vec<String> {
    let main = &results.all.main;
    let unknown_delays = &main.delay.unknown_delays;
    let clock = clock(results, unknown_delays);
    let notes = [
        single_trace_note(results),
        clock,
        negative_delay_note(unknown_delays),
        ambiguous_note(unknown_delays),
        unseen_note(main),
        survivors(main),
        merged_note(main.loss.as_deref()),
        sampling_note(main),
    ];
    notes.into_iter().flatten().collect()
}

fn single_trace_note(results: &Results) -> Option<String> {
    let handshakes = results.all.handshakes;
    let (at_sender, at_receiver) = (handshakes.only_at_sender, handshakes.only_at_receiver);
    let connections = |number: u64| match number {
        1 => "1 connection is".to_owned(),
        _ => format!("{} connections are", number::count(number)),
    };
    let text = match (at_sender, at_receiver) {
        (0, 0) => return None,
        (_, 0) => format!("{} only in the sender's trace", connections(at_sender)),
        (0, _) => format!("{} only in the receiver's trace", connections(at_receiver)),
        _ => format!(
            "{} only in the sender's trace, and {} only in the receiver's",
            connections(at_sender),
            number::count(at_receiver)
        ),
    };
    Some(format!(
        "{text}: measured with one trace, so their losses and delays are unknown"
    ))
}

fn clock(results: &Results, unknown_delays: &UnknownDelays) -> Option<String> {
    if unknown_delays.packets_without_clock > 0 {
        return Some(format!(
            "delays and delivery latency of {} packets are unknown: the clocks cannot be \
             compared, because the traces have too little in common or a clock was set meanwhile. \
             If one clock took both traces, use --same-clock",
            number::count(unknown_delays.packets_without_clock)
        ));
    }
    let clock = results.clock.filter(|clock| !clock.same)?;
    let is_drift_known = clock.drift_uncertainty_ppm.is_some() || clock.hull_there.is_none();
    (!is_drift_known).then(|| {
        "the drift of the clocks is unknown and assumed to be 0: the traces have too little in \
         common, or the drift is above 1000 ppm"
            .to_owned()
    })
}

fn negative_delay_note(unknown_delays: &UnknownDelays) -> Option<String> {
    if unknown_delays.negative_delays == 0 && unknown_delays.negative_latencies > 0 {
        return Some(format!(
            "{} byte ranges arrived before the sender's trace shows them: it lacks their first \
             transmission. They are excluded from latencies",
            number::count(unknown_delays.negative_latencies)
        ));
    }
    (unknown_delays.negative_delays > 0).then(|| {
        format!(
            "{} packets arrived before they were sent: the traces do not have one clock, or it \
             was set meanwhile. They are excluded from delays, and {} byte ranges from latencies",
            number::count(unknown_delays.negative_delays),
            number::count(unknown_delays.negative_latencies)
        )
    })
}

fn ambiguous_note(unknown_delays: &UnknownDelays) -> Option<String> {
    (unknown_delays.ambiguous_packets > 0).then(|| {
        format!(
            "{} packets arrived while an equal packet was in transit, without IP identification: \
             which one arrived is unknown. They are excluded from delays",
            number::count(unknown_delays.ambiguous_packets)
        )
    })
}

fn unseen_note(main: &Measures) -> Option<String> {
    let bytes = main.loss.as_ref()?.delivery_stats.unseen_bytes;
    (bytes > 0).then(|| {
        format!(
            "{} arrived according to ACKs, but the receiver's trace does not show when; {} more \
             waited for them for an unknown time. Both are excluded from latencies",
            number::bytes(bytes as f64),
            number::bytes(main.delay.unknown_delays.bytes_read_unseen as f64)
        )
    })
}

fn survivors(main: &Measures) -> Option<String> {
    let unknown_delays = &main.delay.unknown_delays;
    let (bytes, state) = match (
        &main.loss,
        unknown_delays.bytes_never_read,
        unknown_delays.bytes_never_acked,
    ) {
        (Some(_), 1.., _) => (unknown_delays.bytes_never_read, "readable"),
        (None, _, 1..) => (unknown_delays.bytes_never_acked, "acknowledged"),
        _ => return None,
    };
    Some(format!(
        "{} were not {state} when the trace ended, and are excluded from latencies",
        number::bytes(bytes as f64)
    ))
}

fn merged_note(loss: Option<&Loss>) -> Option<String> {
    let loss = loss?;
    if loss.unattributed_ranges == 0 && !has_unclear_losses(loss) {
        return None;
    }
    Some(format!(
        "packets were joined or split between the traces, or equal ones were in transit: the arrival of {} packets with payload \
         is unknown, and the delivering copy of {} byte ranges",
        number::count(loss.unknown_data_packets),
        number::count(loss.unattributed_ranges)
    ))
}

fn sampling_note(main: &Measures) -> Option<String> {
    let sample_size = |measure: &DistributionMeasure| (measure.of)(main).sample();
    let measures: Vec<_> = distributions()
        .filter(|measure| sample_size(measure).is_some())
        .collect();
    let smallest = measures.iter().filter_map(sample_size).min()?;
    // Two standard deviations of a share in a sample of this size.
    let error = |share: f64| 200.0 * (share * (1.0 - share) / smallest as f64).sqrt();
    let labels: Vec<_> = measures.iter().map(|measure| measure.label).collect();
    Some(format!(
        "percentiles of {} come from a random sample of at least {} values: p50 is exact to {:.2} \
         percentage points, p99 to {:.2}, p99.9 to {:.2}. Number, minimum, maximum and mean are \
         exact",
        labels.join(", "),
        number::count(smallest),
        error(0.5),
        error(0.99),
        error(0.999)
    ))
}
