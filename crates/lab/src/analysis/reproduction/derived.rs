//! Measures that follow from those that are kept of a group.

use super::{GroupDigest, asked};
use crate::analysis::people::{typing, voice};

/// The latency of messages, from writing to reading, by which people are served well or badly.
const LATENCY: &str = "delivery_latency_ms";

/// The value of a measure that is not kept itself; none if what it follows from was not measured.
pub(super) fn value(group: &GroupDigest, measure: &str) -> Option<f64> {
    let kept = |name: &str| group.values.get(name).copied();
    let late = |than_ms: f64| group.value(&format!("{LATENCY} above {than_ms}"));
    let words: Vec<&str> = measure.split(' ').collect();
    match words.as_slice() {
        ["redundant_bytes"] => Some(kept("data_bytes")? - kept("new_bytes")?),
        ["messages_per_s"] => Some(1e3 / kept("message_gap_ms mean")?),
        ["voice_rating", "at", playout] => {
            let playout_ms = asked::number(playout)?;
            Some(voice::rating(playout_ms, late(playout_ms)?))
        }
        ["voice_rating", "best"] => best_rating(group),
        ["voice_mos", how @ ..] => {
            let rating = format!("voice_rating {}", how.join(" "));
            Some(voice::opinion(value(group, &rating)?))
        }
        ["typing_stalls_per_1000", "back", way_back] => {
            let bound_ms = typing::bound_ms(asked::number(way_back)?);
            Some(typing::stalls_per_1000(late(bound_ms)?))
        }
        _ => None,
    }
}

/// The rating with the play-out time that suits best, in whole milliseconds.
fn best_rating(group: &GroupDigest) -> Option<f64> {
    let longest = group.quantiles(LATENCY)?.last()?.ceil();
    // Much later than that nothing is understood, whatever comes in time.
    let longest_ms = longest.clamp(1.0, 1000.0) as u32;
    let ratings = (1..=longest_ms).filter_map(|playout| {
        let measure = format!("voice_rating at {playout}");
        value(group, &measure)
    });
    ratings.max_by(f64::total_cmp)
}
