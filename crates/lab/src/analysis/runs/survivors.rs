use pillion_stats::report::number::count;

use super::Totals;

/// The share of messages or of streams that may be missing before a run is in doubt: what is above
/// the highest percentile that is told beside the maximum, p99.9.
const MUCH: f64 = 0.001;

impl Totals {
    /// Messages that TCP took and the receiver's application never read.
    #[must_use]
    pub fn missing_messages(&self) -> u64 {
        self.sent_messages.saturating_sub(self.received_messages)
    }

    /// What to know of latencies where not all messages have one, as a sentence without a full
    /// stop; `None` where all arrived.
    #[must_use]
    pub fn survivors(&self) -> Option<String> {
        if self.missing_messages() == 0 && self.failed_streams == 0 {
            return None;
        }
        Some(format!(
            "{} of {} messages received, {} of {} streams failed; delivery latency is that of the \
             messages received",
            count(self.received_messages),
            count(self.sent_messages),
            count(self.failed_streams),
            count(self.streams),
        ))
    }

    /// Whether so much is missing that the percentiles are not those of all that was sent.
    #[must_use]
    pub fn is_much_missing(&self) -> bool {
        let is_much = |part: u64, whole: u64| part as f64 > whole as f64 * MUCH;
        is_much(self.missing_messages(), self.sent_messages)
            || is_much(self.failed_streams, self.streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(received_messages: u64, failed_streams: u64) -> Totals {
        Totals {
            streams: 30,
            failed_streams,
            sent_messages: 6000,
            received_messages,
            ..Totals::default()
        }
    }

    #[test]
    fn what_is_missing_is_told_and_nothing_where_all_arrived() {
        assert_eq!(totals(6000, 0).survivors(), None);
        let told = totals(2726, 24).survivors().unwrap().replace('\u{a0}', " ");
        assert!(
            told.starts_with("2 726 of 6 000 messages received, 24 of 30 streams failed;"),
            "{told}"
        );
    }

    #[test]
    fn what_would_move_a_percentile_is_much() {
        assert!(!totals(6000, 0).is_much_missing());
        assert!(!totals(5994, 0).is_much_missing());
        assert!(totals(5993, 0).is_much_missing());
        assert!(totals(6000, 1).is_much_missing());
        assert!(!Totals::default().is_much_missing());
    }
}
