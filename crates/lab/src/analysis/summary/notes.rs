use pillion_stats::report::number;
use pillion_trace::Counts;
use pillion_trace::measure::{Clocks, Results};

use super::{Summary, worth};

pub fn notes(summary: &Summary) -> Vec<String> {
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
    notes.extend(worth::notes(results));
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
