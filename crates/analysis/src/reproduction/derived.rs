//! Measures that follow from those that are kept of a group.

use super::GroupDigest;

/// The value of a measure that is not kept itself; none if what it follows from was not measured.
pub(super) fn value(group: &GroupDigest, measure: &str) -> Option<f64> {
    let kept = |name: &str| group.values.get(name).copied();
    match measure {
        "redundant_bytes" => Some(kept("data_bytes")? - kept("new_bytes")?),
        "messages_per_s" => Some(1e3 / kept("message_gap_ms mean")?),
        _ => None,
    }
}
