use std::collections::BTreeSet;

use crate::analysis::reproduction::{
    PublishedCell, PublishedLine, PublishedTable, PublishedValue, Subject,
};
use crate::measure_ref::JAIN_OF_ALL;
use crate::run_key::{Part, RunKey};
use crate::settings::experiment::{Planned, Reproduction, Selector};

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
                lines.push(line(label, &parts, name));
            }
        }
    }
    (!lines.is_empty()).then(|| PublishedTable {
        title: "How streams that are not bundled fare at the bottleneck".to_owned(),
        source: "ours".to_owned(),
        columns: COLUMNS.map(|(label, _)| label.to_owned()).to_vec(),
        lines,
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

fn line(label: String, parts: &Selector, group: &str) -> PublishedLine {
    let cells = COLUMNS.map(|(_, measure)| PublishedCell {
        measure: measure.parse().expect("a test reads them"),
        subject: Subject {
            runs: parts.clone(),
            group: group.to_owned(),
        },
        factor: 1.0,
        published: PublishedValue::Words(String::new()),
    });
    PublishedLine {
        label,
        cells: cells.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::experiment::{Extent, of_text};

    use super::*;

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
