use std::time::Duration;

use pillion_traffic::Distribution;

/// Round-trip times of the streams of a group, where they are not the path's.
///
/// Only the part that the path delays on the way back differs; what a group's streams share with
/// others, the bottleneck before all, stays shared.
#[derive(Debug, Clone, PartialEq)]
pub enum RoundTrips {
    /// The first stream's, and how much more each next one has (thesis, section 3.2.3).
    Steps {
        /// Of the first stream.
        first: Duration,
        /// What each next one has more.
        step: Duration,
    },
    /// Drawn for each stream, in milliseconds, from the run's seed.
    Drawn(Distribution),
}
