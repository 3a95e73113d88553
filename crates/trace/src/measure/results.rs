use serde::{Serialize, Serializer};

use super::measures::Measures;
use crate::pair::{Clock, LinearDelay};
use crate::{ConnectionOutcome, Endpoint, Side};

/// All results. Names of serialised fields end in the unit.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// Capture time of the first packet, in nanoseconds since 1970.
    pub start_ns: i64,
    /// First packet to last, in seconds.
    pub duration_s: f64,
    /// Slice width in seconds.
    pub slice_s: f64,
    /// Relation of the clocks; `None` with one trace.
    pub clock: Option<ClockSummary>,
    /// All connections.
    pub all: GroupResults,
    /// Each group.
    pub groups: Vec<GroupResults>,
    /// Each connection, in order of their first packets.
    pub connections: Vec<ConnectionResults>,
}

/// Results of a group of connections.
#[derive(Debug, Clone, Serialize)]
pub struct GroupResults {
    /// The group's name; `None` for all connections.
    pub name: Option<String>,
    /// Number of connections by outcome.
    pub handshakes: Handshakes,
    /// Fairness of throughput over the whole trace.
    pub fairness: Fairness,
    /// The main directions: of each connection the one with more new bytes.
    pub main: Measures,
    /// The other directions.
    pub back: Measures,
}

/// Results of one connection.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionResults {
    /// 1 for the first in the trace.
    pub number: u64,
    /// The end that sent more new bytes.
    #[serde(serialize_with = "as_text")]
    pub sender: Endpoint,
    /// The end that sent fewer new bytes.
    #[serde(serialize_with = "as_text")]
    pub receiver: Endpoint,
    /// Whether the sender opened the connection; if not in the trace, whether it sent the first
    /// packet.
    pub opened_by_sender: bool,
    /// The groups of the connection.
    pub groups: Vec<String>,
    /// Time of the connection's first packet, in seconds since the trace's first.
    pub start_s: f64,
    /// The connection's first packet to its last, in seconds.
    pub duration_s: f64,
    /// Outcome of the connection attempt.
    pub outcome: ConnectionOutcome,
    /// The only one of two traces that shows it; then it is measured as with one trace.
    pub only_at: Option<Side>,
    /// SYNs of the originator.
    pub syns: u32,
    /// First SYN to the end of the handshake, in milliseconds.
    pub handshake_ms: Option<f64>,
    /// Throughput of the main direction over the whole trace, headers included; at the receiver if
    /// its trace shows the connection.
    pub throughput_bit_per_s: f64,
    /// The rate that the connection is due, from the options.
    pub optimum_bit_per_s: Option<f64>,
    /// The direction with more new bytes.
    pub main: Measures,
    /// The direction with fewer new bytes.
    pub back: Measures,
    /// Whether it lasted less than half of the trace or of the test.
    #[serde(skip)]
    pub(super) dropped: bool,
}

/// Number of connections by outcome (thesis, table 4.1 and section 3.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Handshakes {
    /// All connections; streams, if connections with the same addresses and ports are one stream
    /// ([`MeterOptions::streams_by_address`]).
    ///
    /// [`MeterOptions::streams_by_address`]: super::MeterOptions::streams_by_address
    pub connections: u64,
    /// Handshakes in the trace, completed or not.
    pub tried: u64,
    /// Completed handshakes.
    pub completed: u64,
    /// Refused by RST.
    pub refused: u64,
    /// Unanswered or incomplete handshakes.
    pub unanswered: u64,
    /// Reset by RST after the handshake.
    pub reset: u64,
    /// Connections with more than one SYN.
    pub tried_again: u64,
    /// SYNs of the originators.
    pub syns: u64,
    /// Connections that lasted less than half of the trace, or of the test period if given:
    /// "dropped". This count and the next three are of streams, as `connections`.
    pub dropped: u64,
    /// Connections without arrived payload, or without sent payload if no receiver's trace shows
    /// them: "no data".
    pub without_data: u64,
    /// Connections whose handshake was tried but not completed: "never established".
    pub never_established: u64,
    /// Connections to which any of the last three applies.
    pub problematic: u64,
    /// Connections that only the sender's trace shows, of two traces.
    pub only_at_sender: u64,
    /// Connections that only the receiver's trace shows, of two traces.
    pub only_at_receiver: u64,
}

/// Relation of the clocks of two traces.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ClockSummary {
    /// Whether one clock took both traces, according to the caller. Otherwise the smallest delay is
    /// assumed to be equal in both directions.
    pub same: bool,
    /// Offset of the receiver's clock ahead of the sender's at the trace's start.
    pub ahead_ms: Option<f64>,
    /// Drift of the receiver's clock relative to the sender's, in parts per million.
    pub drift_ppm: Option<f64>,
    /// Approximate accuracy of the drift, in parts per million. `None` if drift cannot be measured
    /// and is assumed to be 0.
    pub drift_uncertainty_ppm: Option<f64>,
    /// The smallest round trip.
    pub round_trip_ms: Option<f64>,
    /// Lower hull of the raw delays to the receiver.
    pub hull_there: Option<FittedLine>,
    /// Lower hull of the raw delays to the sender.
    pub hull_back: Option<FittedLine>,
}

/// The smallest raw delay as a linear function of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FittedLine {
    /// Value at the trace's start.
    pub raw_delay_ms: f64,
    /// Growth in parts per million.
    pub slope_ppm: f64,
}

impl ClockSummary {
    pub(super) fn new(clock: &Clock, start_ns: i64) -> Self {
        let fitted = |line: Option<LinearDelay>| {
            line.map(|line| FittedLine {
                raw_delay_ms: line.at(start_ns) / 1e6,
                slope_ppm: line.slope * 1e6,
            })
        };
        Self {
            same: clock.same,
            ahead_ms: clock.offset_ns(start_ns).map(|ns| ns / 1e6),
            drift_ppm: clock.drift_ppm(),
            drift_uncertainty_ppm: clock.drift_uncertainty.map(|it| it * 1e6),
            round_trip_ms: clock.round_trip_ns(start_ns).map(|ns| ns / 1e6),
            hull_there: fitted(clock.there),
            hull_back: fitted(clock.back),
        }
    }
}

impl Handshakes {
    /// Adds the connections of one stream: one, or several if it connected again.
    pub(super) fn add_stream(&mut self, connections: &[&ConnectionResults]) {
        self.connections += 1;
        connections.iter().for_each(|it| self.add(it));
        let was_dropped = connections.iter().all(|it| it.dropped);
        let has_data = connections.iter().any(|it| it.delivered_data());
        let tried = connections.iter().any(|it| it.was_tried());
        let never_established = tried && !connections.iter().any(|it| it.was_established());
        self.dropped += u64::from(was_dropped);
        self.without_data += u64::from(!has_data);
        self.never_established += u64::from(never_established);
        self.problematic += u64::from(was_dropped || !has_data || never_established);
    }

    fn add(&mut self, connection: &ConnectionResults) {
        let outcome = connection.outcome;
        self.tried += u64::from(connection.was_tried());
        self.completed += u64::from(connection.was_established());
        self.refused += u64::from(outcome == ConnectionOutcome::Refused);
        self.unanswered += u64::from(outcome == ConnectionOutcome::Unanswered);
        self.reset += u64::from(outcome == ConnectionOutcome::Reset);
        self.tried_again += u64::from(connection.syns > 1);
        self.syns += u64::from(connection.syns);
        self.only_at_sender += u64::from(connection.only_at == Some(Side::Sender));
        self.only_at_receiver += u64::from(connection.only_at == Some(Side::Receiver));
    }
}

impl ConnectionResults {
    /// Whether the trace shows a handshake, completed or not.
    fn was_tried(&self) -> bool {
        self.outcome != ConnectionOutcome::NotSeen
    }

    fn was_established(&self) -> bool {
        matches!(
            self.outcome,
            ConnectionOutcome::Completed | ConnectionOutcome::Reset
        )
    }

    fn delivered_data(&self) -> bool {
        let directions = [&self.main, &self.back];
        directions.iter().any(|measures| measures.delivered_data())
    }
}

fn as_text<S: Serializer>(endpoint: &Endpoint, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(endpoint)
}

/// Fairness between connections.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Fairness {
    /// Jain's index of throughput, from 1 / n to 1.
    pub jain_index: Option<f64>,
    /// Jain's index of throughput relative to each connection's optimum (thesis, section 2.7.2).
    /// `None` unless all have an optimum.
    pub jain_index_relative_to_optimum: Option<f64>,
}

impl Fairness {
    /// Computes it from throughput and optional optimum per connection, in the same unit.
    pub(super) fn new(shares: impl Iterator<Item = (f64, Option<f64>)> + Clone) -> Self {
        let relative = shares
            .clone()
            .map(|(throughput, optimum)| Some(throughput / optimum?))
            .collect::<Option<Vec<f64>>>();
        Self {
            jain_index: jain_index(shares.map(|(throughput, _)| throughput)),
            jain_index_relative_to_optimum: relative.and_then(jain_index),
        }
    }
}

/// Jain's fairness index of shares (thesis, equation 2.6): from 1 / n if one receives everything,
/// to 1 if all receive the same. `None` without shares, or if all are 0.
#[must_use]
pub fn jain_index(shares: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut sum_of_squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        sum_of_squares += share * share;
    }
    (sum_of_squares > 0.0).then(|| sum * sum / (count * sum_of_squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_index_equals_thesis_example() {
        let absolute = jain_index([9.6, 990.4]).unwrap();
        assert!((absolute - 0.51).abs() < 0.005, "{absolute}");
        let shares = [(9.6, Some(9.6)), (990.4, Some(990.4))];
        let fairness = Fairness::new(shares.into_iter());
        assert_eq!(fairness.jain_index, Some(absolute));
        assert_eq!(fairness.jain_index_relative_to_optimum, Some(1.0));
    }

    #[test]
    fn jain_index_of_k_equal_shares_in_n_is_k_over_n() {
        assert_eq!(jain_index([5.0, 0.0, 5.0, 5.0]), Some(0.75));
        assert_eq!(jain_index([0.0, 0.0]), None);
        assert_eq!(jain_index([]), None);
    }

    #[test]
    fn missing_optimum_gives_no_relative_jain_index() {
        let fairness = Fairness::new([(1.0, Some(1.0)), (1.0, None)].into_iter());
        assert_eq!(fairness.jain_index, Some(1.0));
        assert_eq!(fairness.jain_index_relative_to_optimum, None);
    }
}
