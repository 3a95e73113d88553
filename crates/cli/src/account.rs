//! The account of what was done, in words.

use pillion_bundler::{Outcome, Totals};

/// One line: segments, bundled, redundant bytes and their share, losses, the time
/// that their repair saved, reactions.
pub fn summary(totals: &Totals) -> String {
    let counters = &totals.counters;
    let mut line = format!(
        "{} connections, {} segments, {} bundled, {} redundant bytes ({:.1} %), \
         {} hidden losses, an estimated {} s saved, {} reactions",
        totals.connections,
        counters.segments(),
        counters.of(Outcome::Bundled),
        counters.redundant_bytes,
        counters.redundant_share() * 100.0,
        counters.hidden_losses,
        seconds(counters.saved_us),
        counters.reactions,
    );
    let retransmissions = counters.of(Outcome::RetransmissionBundled);
    if retransmissions > 0 {
        line += &format!(", {retransmissions} retransmissions bundled");
    }
    if let Some(decision) = totals.decision {
        line += &format!(
            ", {} spared (last time {} of {} bytes/s allowed)",
            counters.reactions_spared, decision.rate_sent, decision.rate_allowed
        );
    }
    if totals.connections_refused > 0 {
        line += &format!(
            "; {} connections not bundled for want of kernel memory",
            totals.connections_refused
        );
    }
    if totals.over_limit > 0 {
        line += &format!(
            "; {} times more connections than --max-connections allows",
            totals.over_limit
        );
    }
    line + &companions(totals)
}

/// Whole tenths, rounded down: an estimate that is to be never too high.
fn seconds(us: u64) -> String {
    let tenths = us / 100_000;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Why the others were not, most frequent first; empty if all were.
pub fn reasons(totals: &Totals) -> String {
    let mut reasons: Vec<_> = totals
        .counters
        .outcomes
        .iter()
        .filter(|(outcome, _)| {
            !matches!(outcome, Outcome::Bundled | Outcome::RetransmissionBundled)
        })
        .collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let words: Vec<_> = reasons
        .iter()
        .map(|(outcome, count)| format!("{} {count}", outcome.label()))
        .collect();
    words.join(", ")
}

/// How often each was set, and refused; empty if none was asked for.
fn companions(totals: &Totals) -> String {
    let parts = [
        ("set", &totals.companions_set),
        ("refused by the kernel", &totals.companions_refused),
    ];
    let parts = parts.iter().filter(|(_, counts)| !counts.is_empty());
    parts
        .map(|(what, counts)| {
            let counts = counts.iter();
            let words: Vec<_> = counts
                .map(|(companion, count)| format!("{} {count}", companion.label()))
                .collect();
            format!("; companions {what}: {}", words.join(", "))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_down() {
        assert_eq!(seconds(99_999), "0.0");
        assert_eq!(seconds(12_399_999), "12.3");
    }
}
