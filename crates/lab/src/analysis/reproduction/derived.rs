//! Measures that follow from those that are kept of a group.

use super::GroupDigest;
use crate::analysis::people::{typing, voice};
use crate::measure_ref::{DELIVERY_LATENCY, Kind, MeasureRef, PlayOut, Statistic};

/// The value of a measure that is not kept itself; none if what it follows from was not measured.
pub(super) fn value(group: &GroupDigest, measure: &MeasureRef) -> Option<f64> {
    let kept = |name: &str| group.values.get(name).copied();
    match measure.kind {
        Kind::RedundantBytes => Some(kept("data_bytes")? - kept("new_bytes")?),
        Kind::MessagesPerSecond => Some(1e3 / group.statistic("message_gap_ms", Statistic::Mean)?),
        Kind::VoiceRating(play_out) => rating(group, play_out),
        Kind::VoiceOpinion(play_out) => Some(voice::opinion(rating(group, play_out)?)),
        Kind::TypingStalls(back_ms) => {
            let late = late(group, typing::bound_ms(back_ms))?;
            Some(typing::stalls_per_1000(late))
        }
        _ => None,
    }
}

/// The share of messages, by which people are served well or badly, that take longer.
fn late(group: &GroupDigest, than_ms: f64) -> Option<f64> {
    group.statistic(DELIVERY_LATENCY, Statistic::Above(than_ms))
}

fn rating(group: &GroupDigest, play_out: PlayOut) -> Option<f64> {
    let at = |ms: f64| Some(voice::rating(ms, late(group, ms)?));
    match play_out {
        PlayOut::At(ms) => at(ms),
        PlayOut::Best => {
            let longest = group.distributions.get(DELIVERY_LATENCY)?.last()?.ceil();
            // Much later than that nothing is understood, whatever comes in time.
            let longest_ms = longest.clamp(1.0, 1000.0) as u32;
            let ratings = (1..=longest_ms).filter_map(|ms| at(ms.into()));
            ratings.max_by(f64::total_cmp)
        }
    }
}
