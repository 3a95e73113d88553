//! What one has to know of the traces to take the results right.

use pillion_stats::report::number;
use pillion_trace::Counts;
use pillion_trace::measure::catalogue::{Distributed, distributions};
use pillion_trace::measure::{Clocks, Loss, Measures, Results, Untold};

use super::Summary;
use super::tables::are_unclear;

pub(super) fn notes(summary: &Summary) -> Vec<String> {
    let results = summary.results;
    let mut notes: Vec<String> = summary.clocks().into_iter().collect();
    if results.connections.is_empty() {
        notes.push("there is no TCP connection in the trace, or none of those chosen".to_owned());
    }
    let unrelated = |clock: &Clocks| clock.hull_there.is_none();
    if results.clock.as_ref().is_some_and(unrelated) {
        notes.push(
            "no packet of the sender's trace was found in the receiver's: check that both are of \
             the same connections and times"
                .to_owned(),
        );
    }
    if seems_taken_at_receiver(results) {
        notes.push(
            "the trace seems to have been taken at the receiver of the data, for ACKs follow far \
             sooner than handshakes take: latency and RTT are those seen from there. Give the \
             sender's trace first, and this one with --receiver"
                .to_owned(),
        );
    }
    let both = |of: fn(&Counts) -> u64| {
        let measures = [&results.all.main, &results.all.back];
        measures
            .map(|measures| of(&measures.sent.counts))
            .iter()
            .sum()
    };
    let offloaded = both(|counts| counts.offloaded_packets);
    if offloaded > 0 {
        notes.push(format!(
            "{} packets are larger than a segment can be: they were captured before they were cut, \
             or after they were joined. For exact numbers of packets and losses capture with \
             `ethtool -K DEVICE tso off gso off gro off`",
            number::count(offloaded)
        ));
    }
    let missing = both(|counts| counts.missing_bytes);
    if missing > 0 {
        notes.push(format!(
            "{} were acknowledged that the trace does not show as sent: the capture missed \
             packets, or began while they were on their way",
            number::bytes(missing as f64)
        ));
    }
    notes.extend(notes_on_worth(results));
    notes
}

/// At the sender, an ACK takes as long as a handshake does.
fn seems_taken_at_receiver(results: &Results) -> bool {
    let at_once = results.connections.iter().filter(|single| single.syns == 1);
    let handshakes = at_once.filter_map(|single| single.handshake_ms);
    let shortest_ms = handshakes.fold(f64::INFINITY, f64::min);
    let rtt_ns = results.all.main.latency.rtt.quantile(0.5);
    let far_sooner = |ns: u64| (ns as f64 / 1e6) < shortest_ms / 10.0;
    results.clock.is_none() && shortest_ms.is_finite() && rtt_ns.is_some_and(far_sooner)
}

// What numbers are worth: what is in none of them, and what they rest on.

fn notes_on_worth(results: &Results) -> Vec<String> {
    let main = &results.all.main;
    let untold = &main.delay.untold;
    let clock = clock(results, untold);
    let notes = [
        shown_by_one(results),
        clock,
        negative(untold),
        unseen(main),
        survivors(main),
        merged(main.loss.as_deref()),
        sample(main),
    ];
    notes.into_iter().flatten().collect()
}

fn shown_by_one(results: &Results) -> Option<String> {
    let handshakes = results.all.handshakes;
    let (at_sender, at_receiver) = (handshakes.only_at_sender, handshakes.only_at_receiver);
    let connections = |number: u64| match number {
        1 => "1 connection is".to_owned(),
        _ => format!("{} connections are", number::count(number)),
    };
    let told = match (at_sender, at_receiver) {
        (0, 0) => return None,
        (_, 0) => format!("{} in the sender's trace alone", connections(at_sender)),
        (0, _) => format!("{} in the receiver's trace alone", connections(at_receiver)),
        _ => format!(
            "{} in the sender's trace alone, and {} in the receiver's",
            connections(at_sender),
            number::count(at_receiver)
        ),
    };
    Some(format!(
        "{told}: measured as of one trace, and of what was lost and how long the way took nothing \
         is known"
    ))
}

fn clock(results: &Results, untold: &Untold) -> Option<String> {
    if untold.packets_without_clock > 0 {
        return Some(format!(
            "delays and delivery latency of {} packets are not told: nothing tells how the clocks \
             relate, or they contradict each other because one of them was set meanwhile. If both \
             traces were taken by one clock, say so with --same-clock",
            number::count(untold.packets_without_clock)
        ));
    }
    let clock = results.clock.filter(|clock| !clock.same)?;
    let told = clock.drift_uncertainty_ppm.is_some() || clock.hull_there.is_none();
    (!told).then(|| {
        "whether the clocks drift apart cannot be told, and it is taken that they do not: the \
         traces have too little in common, or a drift above 1000 ppm"
            .to_owned()
    })
}

fn negative(untold: &Untold) -> Option<String> {
    if untold.negative_delays == 0 && untold.negative_latencies > 0 {
        return Some(format!(
            "{} byte ranges arrived before the sender's trace shows them: it misses when they were \
             first sent. They are in no latency",
            number::count(untold.negative_latencies)
        ));
    }
    (untold.negative_delays > 0).then(|| {
        format!(
            "{} packets arrived before they were sent: the traces were not taken by one clock, or \
             it was set meanwhile. They are in no delay, nor {} byte ranges in any latency",
            number::count(untold.negative_delays),
            number::count(untold.negative_latencies)
        )
    })
}

fn unseen(main: &Measures) -> Option<String> {
    let unseen = main.loss.as_ref()?.passage.unseen_bytes;
    (unseen > 0).then(|| {
        format!(
            "{} arrived, as ACKs say, and the receiver's trace does not show when; {} more waited \
             behind them for a time that is not known. Both are in no latency",
            number::bytes(unseen as f64),
            number::bytes(main.delay.untold.bytes_read_unseen as f64)
        )
    })
}

fn survivors(main: &Measures) -> Option<String> {
    let untold = &main.delay.untold;
    let (bytes, what) = match (
        &main.loss,
        untold.bytes_never_read,
        untold.bytes_never_acked,
    ) {
        (Some(_), 1.., _) => (untold.bytes_never_read, "readable"),
        (None, _, 1..) => (untold.bytes_never_acked, "acknowledged"),
        _ => return None,
    };
    Some(format!(
        "{} had not become {what} when the trace ended: latencies are of what had",
        number::bytes(bytes as f64)
    ))
}

fn merged(loss: Option<&Loss>) -> Option<String> {
    let loss = loss?;
    if loss.unattributed_ranges == 0 && !are_unclear(loss) {
        return None;
    }
    Some(format!(
        "packets were joined or cut between the traces: of {} packets with payload it is not known \
         whether they arrived, and of {} byte ranges which copy did",
        number::count(loss.unknown_data_packets),
        number::count(loss.unattributed_ranges)
    ))
}

fn sample(main: &Measures) -> Option<String> {
    let rests_on = |measure: &Distributed| (measure.of)(main).sample();
    let measures: Vec<_> = distributions()
        .filter(|measure| rests_on(measure).is_some())
        .collect();
    let least = measures.iter().filter_map(rests_on).min()?;
    // Two standard deviations of a share among so many.
    let error = |share: f64| 200.0 * (share * (1.0 - share) / least as f64).sqrt();
    let labels: Vec<_> = measures.iter().map(|measure| measure.label).collect();
    Some(format!(
        "percentiles of {} rest on a random sample of {} values or more: p50 is right to {:.2} \
         percentage points, p99 to {:.2}, p99.9 to {:.2}. Number, least, most and mean are of all",
        labels.join(", "),
        number::count(least),
        error(0.5),
        error(0.99),
        error(0.999)
    ))
}
