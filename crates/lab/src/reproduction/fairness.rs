//! The optimal goodput of streams that share a bottleneck, and how streams without bundling fare.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::measure_ref::JAIN_OF_ALL;
use crate::run_key::{Part, RunKey};
use crate::settings::experiment::{
    Heading, Line, Plan, PlannedRun, PublishedTable, Reproduction, Selector, Streams,
};
use crate::traffic::Kind;

/// Columns of the table of streams that share a bottleneck: label and measure.
const COLUMNS: [(&str, &str); 5] = [
    (
        "Jain's index of all, relative to their optimum",
        JAIN_OF_ALL,
    ),
    (
        "Jain's index of the group's goodputs",
        "received_goodput_bit_per_s of streams jain",
    ),
    ("total goodput", "received_goodput_bit_per_s"),
    ("packets lost", "lost_data_packets_share"),
    ("ACK latency p90, ms", "ack_latency_ms p90"),
];

/// Returns a table with a line per group without bundling and variant; `None` if no streams share a
/// bottleneck.
pub(super) fn table(reproduction: &Reproduction, runs: &[PlannedRun]) -> Option<PublishedTable> {
    let mut labels_seen = BTreeSet::new();
    let mut lines = Vec::new();
    for planned in runs {
        let plan = &planned.plan;
        let streams: usize = plan.streams.iter().map(|it| it.traffic.streams).sum();
        if plan.bottleneck.mean_bps().is_none() || streams < 2 {
            continue;
        }
        let parts = variant(&planned.name, reproduction);
        for group in plan.streams.iter().filter(|it| it.bundling.is_none()) {
            let name = &group.traffic.name;
            let label = match parts.parts() {
                [] => name.clone(),
                _ => format!("{}: {name}", parts.to_string().replace(',', ", ")),
            };
            if labels_seen.insert(label.clone()) {
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
        title: "Streams without bundling at the bottleneck".to_owned(),
        source: "pillion".to_owned(),
        columns: columns.collect(),
        lines,
        ..PublishedTable::default()
    })
}

/// Returns the parts of a run's name, except its seed and those of the baseline and of causes.
fn variant(run: &RunKey, reproduction: &Reproduction) -> Selector {
    let causes = reproduction.causes.iter().map(|cause| &cause.runs);
    let kernels = std::iter::once(&reproduction.baseline).chain(causes);
    let kernels: Vec<&Part> = kernels.flat_map(Selector::parts).collect();
    let parts = run.without_seed();
    parts
        .filter(|part| !kernels.contains(part))
        .cloned()
        .collect()
}

// The optimum of streams that share a bottleneck, for Jain's index (thesis, sections 2.7.1 and
// 2.7.2).

/// Returns each group's optimal goodput per stream during the sending time, in bit/s. It is the
/// stream's demand, limited by its max-min fair share of the bottleneck, of a recorded link of its
/// mean rate. Empty without a rate, or if a group's demand depends on the network.
pub(super) fn optimum(plan: &Plan) -> BTreeMap<String, f64> {
    let demands = plan.streams.iter().map(|it| demand(&it.traffic.kind));
    let demands: Option<Vec<f64>> = demands.collect();
    let (Some(bps), Some(demands)) = (plan.bottleneck.mean_bps(), demands) else {
        return BTreeMap::new();
    };
    let spans: Vec<_> = plan.streams.iter().map(|it| span(it, plan)).collect();
    let mut times: Vec<Duration> = spans.iter().flat_map(|(from, to)| [*from, *to]).collect();
    times.sort();
    let mut optimum = vec![0.0; demands.len()];
    for pair in times.windows(2) {
        let sends = |index: &usize| spans[*index].0 <= pair[0] && pair[1] <= spans[*index].1;
        let active: Vec<usize> = (0..demands.len()).filter(sends).collect();
        let requests = active.iter().map(|index| {
            let streams = plan.streams[*index].traffic.streams;
            (streams as f64, demands[*index])
        });
        let shares = max_min(bps as f64, &requests.collect::<Vec<_>>());
        for (index, share) in active.iter().zip(shares) {
            optimum[*index] += share * (pair[1] - pair[0]).div_duration_f64(plan.duration);
        }
    }
    let names = plan.streams.iter().map(|it| it.traffic.name.clone());
    names.zip(optimum).collect()
}

/// Returns when streams start and stop sending.
fn span(streams: &Streams, plan: &Plan) -> (Duration, Duration) {
    let end = streams.traffic.end(Some(plan.duration));
    (streams.traffic.start, end.unwrap_or(plan.duration))
}

/// Returns the demand of a stream in bit/s; `None` if it depends on the network.
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

/// Returns the max-min fair share of a capacity for each group. A group is its number of streams
/// and the demand of each.
fn max_min(capacity: f64, groups: &[(f64, f64)]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|one, other| groups[*one].1.total_cmp(&groups[*other].1));
    let mut streams: f64 = groups.iter().map(|(count, _)| count).sum();
    let mut remaining = capacity;
    let mut shares = vec![0.0; groups.len()];
    for index in order {
        let (count, demand) = groups[index];
        shares[index] = demand.min(remaining / streams);
        remaining -= shares[index] * count;
        streams -= count;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::experiment::{RunScale, of_text};

    const TEXT: &str = "\
duration = 10
[reproduction]
baseline = \"kernel=current\"
causes = [{ runs = \"kernel=linux-3.16\", description = \"the kernel is old\" }]
[bottleneck]
rate = 1
[group.thin]
streams = 2
[group.bundled]
[variant.plain]
[variant.bundled]
group.bundled.bundle = true
[axis.kernel.current]
[axis.kernel.\"linux-3.16\"]
group.thin.mechanisms.like = \"linux-3.16\"
";

    fn labels(text: &str) -> Vec<String> {
        let experiment = of_text("a.toml", text, RunScale::Full).unwrap();
        let table = table(experiment.reproduction.as_ref().unwrap(), &experiment.runs);
        let lines = table.map_or_else(Vec::new, |it| it.lines);
        lines.into_iter().map(|line| line.label).collect()
    }

    #[test]
    fn table_has_a_line_per_plain_group_and_variant() {
        assert_eq!(
            labels(TEXT),
            ["plain: bundled", "plain: thin", "bundled: thin"]
        );
    }

    #[test]
    fn table_is_absent_without_shared_bottleneck() {
        assert!(labels(&TEXT.replace("rate = 1", "")).is_empty());
        let single = TEXT
            .replace("[group.bundled]\n", "")
            .replace("streams = 2", "");
        let single = single.replace("[variant.plain]\n[variant.bundled]\n", "");
        let single = single.replace("group.bundled.bundle = true\n", "");
        assert!(labels(&single).is_empty());
    }
}

#[cfg(test)]
mod optimum_tests {
    use super::*;
    use crate::settings::experiment::{RunScale, of_text};

    fn optimum_of(text: &str) -> BTreeMap<String, f64> {
        let experiment = of_text("a.toml", text, RunScale::Full).unwrap();
        optimum(&experiment.runs[0].plan)
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
    fn optimum_is_demand_of_thin_and_rest_for_greedy() {
        let optimum = optimum_of(TEXT);
        assert!((optimum["thin"] - 9_600.0).abs() < 1e-6, "{optimum:?}");
        assert!((optimum["greedy"] - 990_400.0).abs() < 1e-6, "{optimum:?}");
    }

    #[test]
    fn optimum_is_equal_share_under_overload() {
        let optimum = optimum_of(&TEXT.replace("size = 120", "size = 120\nstreams = 199"));
        assert!((optimum["thin"] - 5_000.0).abs() < 1e-6, "{optimum:?}");
        assert!((optimum["greedy"] - 5_000.0).abs() < 1e-6, "{optimum:?}");
    }

    #[test]
    fn optimum_is_proportional_to_sending_time() {
        let optimum = optimum_of(&TEXT.replace("itt = 100", "itt = 100\nstart = 5"));
        assert!((optimum["thin"] - 4_800.0).abs() < 1e-6, "{optimum:?}");
        assert!((optimum["greedy"] - 995_200.0).abs() < 1e-6, "{optimum:?}");
    }

    #[test]
    fn optimum_is_empty_without_rate() {
        let thin = TEXT.replace("kind = \"greedy\"", "");
        assert!(optimum_of(&thin.replace("rate = 1", "")).is_empty());
    }
}
