//! What streams that share a bottleneck are due, as Jain's index has it (thesis, sections 2.7.1 and
//! 2.7.2).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::settings::experiment::{Plan, Streams};
use crate::traffic::Kind;

/// The goodput that each stream of a group is due while streams send, in bit/s: what it writes, or where
/// the bottleneck has less, its max-min fair share. Empty without a rate, and where it depends on the
/// network how much a group writes.
pub(super) fn due(plan: &Plan) -> BTreeMap<String, f64> {
    let demands = plan.streams.iter().map(|it| demand(&it.traffic.kind));
    let demands: Option<Vec<f64>> = demands.collect();
    let (Some(rate), Some(demands)) = (plan.bottleneck.rate, demands) else {
        return BTreeMap::new();
    };
    let spans: Vec<_> = plan.streams.iter().map(|it| span(it, plan)).collect();
    let mut times: Vec<Duration> = spans.iter().flat_map(|(from, to)| [*from, *to]).collect();
    times.sort();
    let mut due = vec![0.0; demands.len()];
    for pair in times.windows(2) {
        let sends = |place: &usize| spans[*place].0 <= pair[0] && pair[1] <= spans[*place].1;
        let active: Vec<usize> = (0..demands.len()).filter(sends).collect();
        let asked = active.iter().map(|place| {
            let streams = plan.streams[*place].traffic.streams;
            (streams as f64, demands[*place])
        });
        let shares = max_min(rate.bps() as f64, &asked.collect::<Vec<_>>());
        for (place, share) in active.iter().zip(shares) {
            due[*place] += share * (pair[1] - pair[0]).div_duration_f64(plan.duration);
        }
    }
    let names = plan.streams.iter().map(|it| it.traffic.name.clone());
    names.zip(due).collect()
}

/// From when to when streams send.
fn span(streams: &Streams, plan: &Plan) -> (Duration, Duration) {
    let end = streams.traffic.end(Some(plan.duration));
    (streams.traffic.start, end.unwrap_or(plan.duration))
}

/// What a stream of the kind writes, in bit/s; `None` where that depends on the network.
fn demand(kind: &Kind) -> Option<f64> {
    match kind {
        Kind::Thin { itt, size } => Some(size.mean() * 8e3 / itt.mean()),
        Kind::Isochronous { itt, size } => Some(f64::from(*size) * 8.0 / itt.as_secs_f64()),
        Kind::Greedy { .. } => Some(f64::INFINITY),
        Kind::Datagrams { rate, .. } => Some(*rate as f64),
        Kind::Burst { .. }
        | Kind::RequestResponse { .. }
        | Kind::Flow { .. }
        | Kind::Replay { .. } => None,
    }
}

/// Max-min fair shares of a capacity: of each group so many streams that each ask for so much.
fn max_min(capacity: f64, groups: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|one, other| groups[*one].1.total_cmp(&groups[*other].1));
    let mut streams: f64 = groups.iter().map(|(count, _)| count).sum();
    let mut left = capacity;
    let mut shares = vec![0.0; groups.len()];
    for place in order {
        let (count, demand) = groups[place];
        shares[place] = demand.min(left / streams);
        left -= shares[place] * count;
        streams -= count;
    }
    shares
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment::{Extent, of_text};

    use super::*;

    fn due_of(text: &str) -> BTreeMap<String, f64> {
        let experiment = of_text("a.toml", text, Extent::Full).unwrap();
        due(&experiment.runs[0].plan)
    }

    const TEXT: &str = "\
duration = 10
[bottleneck]
rate = 1
[group.thin]
size = 120
itt = 100
[group.greedy]
kind = \"greedy\"
";

    #[test]
    fn thin_streams_are_due_what_they_write_and_greedy_ones_the_rest() {
        let due = due_of(TEXT);
        assert!((due["thin"] - 9_600.0).abs() < 1e-6, "{due:?}");
        assert!((due["greedy"] - 990_400.0).abs() < 1e-6, "{due:?}");
    }

    #[test]
    fn where_there_is_less_than_they_write_all_are_due_the_same() {
        let due = due_of(&TEXT.replace("size = 120", "size = 120\nstreams = 199"));
        assert!((due["thin"] - 5_000.0).abs() < 1e-6, "{due:?}");
        assert!((due["greedy"] - 5_000.0).abs() < 1e-6, "{due:?}");
    }

    #[test]
    fn who_sends_for_a_part_of_the_time_is_due_a_part() {
        let due = due_of(&TEXT.replace("itt = 100", "itt = 100\nstart = 5"));
        assert!((due["thin"] - 4_800.0).abs() < 1e-6, "{due:?}");
        assert!((due["greedy"] - 995_200.0).abs() < 1e-6, "{due:?}");
    }

    #[test]
    fn without_a_rate_nobody_is_due_anything() {
        let thin = TEXT.replace("kind = \"greedy\"", "");
        assert!(due_of(&thin.replace("rate = 1", "")).is_empty());
    }
}
