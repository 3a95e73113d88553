use pillion_report::number;
use pillion_trace::Counts;

use super::Summary;

pub fn notes(summary: &Summary) -> Vec<String> {
    let results = summary.results;
    let mut notes: Vec<String> = summary.clocks().into_iter().collect();
    if results.connections.is_empty() {
        notes.push("there is no TCP connection in the trace, or none of those chosen".to_owned());
    }
    let unrelated = |clock: &pillion_trace::measure::Clocks| clock.hull_there.is_none();
    if results.clock.as_ref().is_some_and(unrelated) {
        notes.push(
            "no packet of the sender's trace was found in the receiver's: check that both are of \
             the same connections and times"
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
            "{} were acknowledged that the trace does not show as sent: the capture missed packets",
            number::bytes(missing as f64)
        ));
    }
    notes
}
