//! What streams that share a bottleneck are due, and how those that are not bundled fare.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::measure_ref::JAIN_OF_ALL;
use crate::run_key::{Part, RunKey};
use crate::settings::experiment::{
    Heading, Line, Plan, Planned, PublishedTable, Reproduction, Selector, Streams,
};
use crate::traffic::Kind;

/// What is shown of streams that share a bottleneck.
const COLUMNS: [(&str, &str); 5] = [
    (
        "Jain's index of all, relative to their optimum",
        JAIN_OF_ALL,
    ),
    (
        "of the group's goodputs",
        "received_goodput_bit_per_s of streams jain",
    ),
    ("goodput of all", "received_goodput_bit_per_s"),
    ("packets lost", "lost_data_packets_share"),
    ("ACK latency p90, ms", "ack_latency_ms p90"),
];

/// How streams that are not bundled fare beside others: a line for each group of them in each
/// variant. None where no streams share a bottleneck.
pub(super) fn table(reproduction: &Reproduction, runs: &[Planned]) -> Option<PublishedTable> {
    let mut seen = BTreeSet::new();
    let mut lines = Vec::new();
    for planned in runs {
        let plan = &planned.plan;
        let streams: usize = plan.streams.iter().map(|it| it.traffic.streams).sum();
        if plan.bottleneck.rate.is_none() || streams < 2 {
            continue;
        }
        let parts = variant(&planned.name, reproduction);
        for group in plan.streams.iter().filter(|it| it.bundling.is_none()) {
            let name = &group.traffic.name;
            let label = match parts.parts() {
                [] => name.clone(),
                _ => format!("{}: {name}", parts.to_string().replace(',', ", ")),
            };
            if seen.insert(label.clone()) {
                lines.push(Line {
                    label,
                    runs: parts.clone(),
                    group: name.clone(),
                    ..Line::default()
                });
            }
        }
    }
    let columns = COLUMNS.into_iter().map(|(label, measure)| Heading {
        label: label.to_owned(),
        measure: measure.to_owned(),
        ..Heading::default()
    });
    (!lines.is_empty()).then(|| PublishedTable {
        title: "How streams that are not bundled fare at the bottleneck".to_owned(),
        source: "ours".to_owned(),
        columns: columns.collect(),
        lines,
        ..PublishedTable::default()
    })
}

/// The parts of a run's name but its seed and what tells today from then.
fn variant(run: &RunKey, reproduction: &Reproduction) -> Selector {
    let causes = reproduction.causes.iter().map(|cause| &cause.runs);
    let kernels = std::iter::once(&reproduction.today).chain(causes);
    let kernels: Vec<&Part> = kernels.flat_map(Selector::parts).collect();
    let parts = run.without_seed();
    parts
        .filter(|part| !kernels.contains(part))
        .cloned()
        .collect()
}

// What streams that share a bottleneck are due, as Jain's index has it (thesis, sections 2.7.1 and
// 2.7.2).

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
    use super::*;
    use crate::settings::experiment::{Extent, of_text};

    const TEXT: &str = "\
duration = 10
[reproduction]
today = \"kernel=today\"
causes = [{ runs = \"kernel=linux-3.16\", is = \"it is as then\" }]
[bottleneck]
rate = 1
[group.thin]
streams = 2
[group.bundled]
[variant.plain]
[variant.bundled]
group.bundled.bundle = true
[axis.kernel.today]
[axis.kernel.\"linux-3.16\"]
group.thin.mechanisms.as-in = \"linux-3.16\"
";

    fn labels(text: &str) -> Vec<String> {
        let experiment = of_text("a.toml", text, Extent::Full).unwrap();
        let table = table(experiment.reproduction.as_ref().unwrap(), &experiment.runs);
        let lines = table.map_or_else(Vec::new, |it| it.lines);
        lines.into_iter().map(|line| line.label).collect()
    }

    #[test]
    fn each_group_that_is_not_bundled_has_a_line_for_each_variant() {
        assert_eq!(
            labels(TEXT),
            ["plain: bundled", "plain: thin", "bundled: thin"]
        );
    }

    #[test]
    fn without_a_bottleneck_or_company_there_is_nothing_to_share() {
        assert!(labels(&TEXT.replace("rate = 1", "")).is_empty());
        let alone = TEXT
            .replace("[group.bundled]\n", "")
            .replace("streams = 2", "");
        let alone = alone.replace("[variant.plain]\n[variant.bundled]\n", "");
        let alone = alone.replace("group.bundled.bundle = true\n", "");
        assert!(labels(&alone).is_empty());
    }
}

#[cfg(test)]
mod due_tests {
    use super::*;
    use crate::settings::experiment::{Extent, of_text};

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
