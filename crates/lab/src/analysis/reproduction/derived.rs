//! Measures computed from others; `None` if one of these was not measured.

use super::GroupDigest;
use crate::analysis::people::{typing, voice};
use crate::measure_ref::{DELIVERY_LATENCY, PlayOut, Statistic};

pub(super) fn redundant_bytes(group: &GroupDigest) -> Option<f64> {
    let kept = |name: &str| group.values.get(name).copied();
    Some(kept("data_bytes")? - kept("new_bytes")?)
}

pub(super) fn messages_per_second(group: &GroupDigest) -> Option<f64> {
    Some(1e3 / group.mean("message_gap_ms")?)
}

pub(super) fn typing_stalls(group: &GroupDigest, back_ms: f64) -> Option<f64> {
    let late = late(group, typing::bound_ms(back_ms))?;
    Some(typing::stalls_per_1000(late))
}

pub(super) fn voice_opinion(group: &GroupDigest, play_out: PlayOut) -> Option<f64> {
    Some(voice::opinion(voice_rating(group, play_out)?))
}

pub(super) fn voice_rating(group: &GroupDigest, play_out: PlayOut) -> Option<f64> {
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

/// The share of messages that take longer.
fn late(group: &GroupDigest, than_ms: f64) -> Option<f64> {
    group.statistic(DELIVERY_LATENCY, Statistic::Above(than_ms))
}
