use serde::{Serialize, Serializer};

use super::measures::Measures;
use crate::pair::{Clock, LinearDelay};
use crate::{Endpoint, Outcome, Side};

/// All that was measured. Serialised, names give units.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// When the first packet was captured, in nanoseconds since 1970.
    pub begin_ns: i64,
    /// From the first packet to the last, in seconds.
    pub duration_s: f64,
    /// The width of slices, in seconds.
    pub slice_s: f64,
    /// How the clocks of two traces relate; none of one trace.
    pub clock: Option<Clocks>,
    /// All connections together.
    pub all: Together,
    /// Those of each group together.
    pub groups: Vec<Together>,
    /// Each connection, in the order of their first packets.
    pub connections: Vec<Single>,
}

/// Connections together.
#[derive(Debug, Clone, Serialize)]
pub struct Together {
    /// The group's name; none of all connections.
    pub name: Option<String>,
    /// How many there were and what became of them.
    pub handshakes: Handshakes,
    /// How evenly they shared, by their throughput over the whole trace.
    pub fairness: Fairness,
    /// The connections' main directions: of each connection the one in which more new bytes went.
    pub main: Measures,
    /// The connections' other directions.
    pub back: Measures,
}

/// One connection.
#[derive(Debug, Clone, Serialize)]
pub struct Single {
    /// 1 for the first in the trace.
    pub number: u64,
    /// Who sent more new bytes.
    #[serde(serialize_with = "as_text")]
    pub sender: Endpoint,
    /// The end that sent fewer new bytes.
    #[serde(serialize_with = "as_text")]
    pub receiver: Endpoint,
    /// Whether the sender opened the connection; where the trace does not show that, whether it
    /// sent the first packet.
    pub opened_by_sender: bool,
    /// The groups that it belongs to.
    pub groups: Vec<String>,
    /// The connection's first packet, in seconds since the trace's first.
    pub begin_s: f64,
    /// From the connection's first packet to its last, in seconds.
    pub duration_s: f64,
    /// What became of the attempt to connect.
    pub outcome: Outcome,
    /// The only one of two traces that shows it, though the other was to: then it is measured as if
    /// there were no other.
    pub only_at: Option<Side>,
    /// How often it was tried: SYNs of its originator.
    pub syns: u32,
    /// From its first SYN to the end of the handshake, in milliseconds.
    pub handshake_ms: Option<f64>,
    /// What it sent and received over the whole trace, with all headers, in its main direction:
    /// at the receiver if a trace there shows it.
    pub throughput_bit_per_s: f64,
    /// What it was due; as the caller gave it.
    pub optimum_bit_per_s: Option<f64>,
    /// The direction in which more new bytes went.
    pub main: Measures,
    /// The direction in which fewer new bytes went.
    pub back: Measures,
    /// Whether it lasted less than half of the trace or of the test.
    #[serde(skip)]
    pub(super) dropped: bool,
}

/// How many connections there were and what became of them (thesis, table 4.1 and section 3.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Handshakes {
    /// All of them.
    pub connections: u64,
    /// Those whose handshake the trace shows, completed or not.
    pub tried: u64,
    /// Those whose handshake was completed.
    pub completed: u64,
    /// Those that RST refused.
    pub refused: u64,
    /// Those whose handshake nobody answered or completed.
    pub unanswered: u64,
    /// Those that RST ended after the handshake.
    pub reset: u64,
    /// Those that needed more than one SYN.
    pub tried_again: u64,
    /// SYNs of their originators.
    pub syns: u64,
    /// Those that lasted less than half of the trace, or of the test, if it is said when that was:
    /// "dropped".
    pub dropped: u64,
    /// Those in which no payload arrived, or none was sent where no trace at the receiver shows them:
    /// "no data".
    pub without_data: u64,
    /// Those whose handshake was tried and not completed: "never established".
    pub never_established: u64,
    /// Those to which any of the last three applies.
    pub problematic: u64,
    /// Those that only the sender's trace shows, of two.
    pub only_at_sender: u64,
    /// Those that only the receiver's trace shows, of two.
    pub only_at_receiver: u64,
}

/// How the clocks of two traces relate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Clocks {
    /// Whether the caller said that both traces were taken by one clock; if not, the smallest
    /// delay is taken to be the same both ways.
    pub same: bool,
    /// By how much the receiver's clock was ahead of the sender's at the trace's begin.
    pub ahead_ms: Option<f64>,
    /// By how much it runs faster, in parts per million.
    pub drift_ppm: Option<f64>,
    /// To how much that is right, about, in parts per million; none where nothing tells of drift,
    /// and it is taken for none.
    pub drift_uncertainty_ppm: Option<f64>,
    /// The smallest delay there and back.
    pub round_trip_ms: Option<f64>,
    /// The smallest raw delays there.
    pub hull_there: Option<Fitted>,
    /// The smallest raw delays back by the lower hull.
    pub hull_back: Option<Fitted>,
}

/// The smallest raw delay as it changes over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fitted {
    /// At the trace's begin.
    pub raw_delay_ms: f64,
    /// By how much it grows, in parts per million.
    pub slope_ppm: f64,
}

impl Clocks {
    pub(super) fn of(clock: &Clock, begin_ns: i64) -> Self {
        let fitted = |line: Option<LinearDelay>| {
            line.map(|line| Fitted {
                raw_delay_ms: line.at(begin_ns) / 1e6,
                slope_ppm: line.slope * 1e6,
            })
        };
        Self {
            same: clock.same,
            ahead_ms: clock.offset_ns(begin_ns).map(|ns| ns / 1e6),
            drift_ppm: clock.drift_ppm(),
            drift_uncertainty_ppm: clock.drift_uncertainty.map(|it| it * 1e6),
            round_trip_ms: clock.round_trip_ns(begin_ns).map(|ns| ns / 1e6),
            hull_there: fitted(clock.there),
            hull_back: fitted(clock.back),
        }
    }
}

impl Handshakes {
    pub(super) fn add(&mut self, connection: &Single) {
        let outcome = connection.outcome;
        let completed = matches!(outcome, Outcome::Completed | Outcome::Reset);
        let tried = outcome != Outcome::NotSeen;
        let dropped = connection.dropped;
        let has_data = [&connection.main, &connection.back]
            .iter()
            .any(|measures| measures.brought_data());
        self.connections += 1;
        self.tried += u64::from(tried);
        self.completed += u64::from(completed);
        self.refused += u64::from(outcome == Outcome::Refused);
        self.unanswered += u64::from(outcome == Outcome::Unanswered);
        self.reset += u64::from(outcome == Outcome::Reset);
        self.tried_again += u64::from(connection.syns > 1);
        self.syns += u64::from(connection.syns);
        self.dropped += u64::from(dropped);
        self.without_data += u64::from(!has_data);
        self.never_established += u64::from(tried && !completed);
        self.only_at_sender += u64::from(connection.only_at == Some(Side::Sender));
        self.only_at_receiver += u64::from(connection.only_at == Some(Side::Receiver));
        self.problematic += u64::from(dropped || !has_data || tried && !completed);
    }
}

fn as_text<S: Serializer>(endpoint: &Endpoint, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(endpoint)
}

/// How evenly connections share a resource.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Fairness {
    /// Jain's index over throughput, from 1 / n to 1, where each is due the same.
    pub jain_index: Option<f64>,
    /// Jain's index over throughput relative to each connection's optimum (thesis, section
    /// 2.7.2); none unless all of them have one.
    pub jain_index_relative_to_optimum: Option<f64>,
}

impl Fairness {
    /// Of connections' throughput and, where it is known, optimum, both in the same unit.
    pub(super) fn of(shares: impl Iterator<Item = (f64, Option<f64>)> + Clone) -> Self {
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

/// Jain's fairness index of received shares (thesis, equation 2.6): from 1 / n if one receives
/// all to 1 if all receive the same. None of no shares, or if all are 0.
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
    fn the_worked_example_of_the_thesis_gives_51_percent_and_1() {
        let absolute = jain_index([9.6, 990.4]).unwrap();
        assert!((absolute - 0.51).abs() < 0.005, "{absolute}");
        let shares = [(9.6, Some(9.6)), (990.4, Some(990.4))];
        let fairness = Fairness::of(shares.into_iter());
        assert_eq!(fairness.jain_index, Some(absolute));
        assert_eq!(fairness.jain_index_relative_to_optimum, Some(1.0));
    }

    #[test]
    fn k_that_share_equally_of_n_give_k_of_n() {
        assert_eq!(jain_index([5.0, 0.0, 5.0, 5.0]), Some(0.75));
        assert_eq!(jain_index([0.0, 0.0]), None);
        assert_eq!(jain_index([]), None);
    }

    #[test]
    fn without_an_optimum_for_each_there_is_no_relative_index() {
        let fairness = Fairness::of([(1.0, Some(1.0)), (1.0, None)].into_iter());
        assert_eq!(fairness.jain_index, Some(1.0));
        assert_eq!(fairness.jain_index_relative_to_optimum, None);
    }
}
