//! Results of a trial as text, table and page.

use pillion_bpf::AssignBy;
use pillion_stats::measure::Unit;
use pillion_stats::report::number::{self, counted};
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, StreamKind, Table};
use serde_json::json;

use crate::trial::{
    ArmResults, Comparison, ERROR_RATE, Estimate, InterimAnalysis, MEASURES, Results, Setting,
    Summary, Verdict, estimate_text,
};

/// Returns the name of the units of assignment.
fn unit_plural(assign_by: AssignBy) -> &'static str {
    match assign_by {
        AssignBy::Peer => "peers",
        AssignBy::Connection => "connections",
    }
}

/// Returns the page with all results and the latencies of both arms as a figure.
pub fn page(results: &Results, setting: &Setting) -> Page {
    let units = unit_plural(setting.assign_by);
    let interim_analyses = results
        .interim_analyses
        .iter()
        .map(|analysis| analysis_line(analysis, units));
    Page {
        title: "Trial of bundling".to_owned(),
        lead: verdict(results, setting),
        parts: vec![table(results, setting).into(), latencies(results).into()],
        method: vec![
            Fact::new("connections", setting.connections_text.as_str()),
            Fact::new(
                "bundled",
                number::percent(f64::from(setting.bundled_ppm) / 1e6),
            ),
            Fact::new("assigned by", setting.assign_by.to_string()),
            Fact::new(
                "intervals",
                format!("95 % confidence, by bootstrap over {units}; differences: at all analyses"),
            ),
            Fact::verbatim(
                "interim analyses",
                interim_analyses.collect::<Vec<_>>().join("\n"),
            ),
        ],
        data: json!({ "results": results }),
    }
}

fn latencies(results: &Results) -> Figure {
    let line = |name, arm: &ArmResults, stream: StreamKind| {
        let points = arm.summary.latencies.cumulative().into_iter();
        let longer = points.map(|(ms, share)| (ms, 1.0 - share));
        Line::step(name, longer.collect()).styled(Some(stream.style()))
    };
    Figure {
        title: "Distribution of ACK latency".to_owned(),
        caption: "Share of segments with a longer ACK latency, on a logarithmic scale.".to_owned(),
        x: Axis::log("ACK latency", "ms"),
        y: Axis::log("share of segments with longer latency", ""),
        side: None,
        lines: vec![
            line("bundled", &results.bundled, StreamKind::Bundled),
            line("plain", &results.plain, StreamKind::Plain),
        ],
    }
}

fn analysis_line(analysis: &InterimAnalysis, units: &str) -> String {
    format!(
        "{} segments, {} {units}: chance of better {:.4}, of worse {:.4}, of more cut short {:.4}; \
         threshold {:.5}",
        analysis.segments,
        analysis.units,
        analysis.chance_of_better,
        analysis.chance_of_worse,
        analysis.chance_of_more_cut,
        analysis.threshold
    )
}

/// Returns the data that the first interim analysis still needs, or `None` after it.
fn missing_for_first_analysis(results: &Results, setting: &Setting) -> Option<String> {
    let first = setting.first_analysis();
    let arms = [&results.bundled, &results.plain];
    let sum = |of: fn(&ArmResults) -> u64| arms.into_iter().map(of).sum::<u64>();
    let units = unit_plural(setting.assign_by);
    let each = format!("{units} with {} segments or more", first.segments_each);
    let requirements = [
        (
            first.segments,
            sum(|arm| arm.summary.segments),
            "segments".to_owned(),
        ),
        (first.units, sum(|arm| arm.compared), each),
    ];
    let missing = requirements
        .into_iter()
        .filter(|(required, seen, _)| seen < required);
    let missing = missing.map(|(required, seen, of)| {
        let [required, seen] = [required, seen].map(number::count);
        format!("{required} {of} ({seen} seen)")
    });
    let missing: Vec<_> = missing.collect();
    (results.interim_analyses.is_empty() && !missing.is_empty()).then(|| missing.join(", and "))
}

/// Returns the state of a running trial as one line.
pub fn progress_line(results: &Results, setting: &Setting) -> String {
    let arm = |name: &str, of: fn(&Comparison) -> Option<Estimate>, arm: &ArmResults| {
        let value = |name: &str| {
            let comparison = results.measures.iter().find(|it| it.measure.name == name);
            estimate_text(comparison.and_then(of), Unit::Milliseconds)
        };
        format!(
            "{name} {} units, {} segments, wait {} ms, p99 {} ms",
            arm.units,
            number::count(arm.summary.segments),
            value("wait_ms"),
            value("ack_latency_ms_p99"),
        )
    };
    let interim_analyses = missing_for_first_analysis(results, setting).map_or_else(
        || analysis_count(results),
        |missing| format!("no analysis before {missing}"),
    );
    format!(
        "{}; {}; {interim_analyses}, not clear yet{}",
        arm("bundled", |it| it.bundled, &results.bundled),
        arm("plain", |it| it.plain, &results.plain),
        left_out(results),
    )
}

/// Returns the number of interim analyses, as in `2 analyses`.
fn analysis_count(results: &Results) -> String {
    match results.interim_analyses.len() {
        1 => "1 analysis".to_owned(),
        count => format!("{count} analyses"),
    }
}

/// Returns the connections beyond the maximum number of units as a clause.
fn left_out(results: &Results) -> String {
    match results.left_out {
        0 => String::new(),
        connections => format!(
            "; {} left out, beyond the maximum number of units",
            counted(connections, "connection")
        ),
    }
}

pub fn table(results: &Results, setting: &Setting) -> Table {
    let mut table = Table::new(
        "Both arms, with intervals of 95 % confidence",
        [
            Column::left(""),
            Column::right("bundled"),
            Column::right("plain"),
            Column::right("difference"),
        ],
    );
    let arms = [&results.bundled, &results.plain];
    let each = setting.first_analysis().segments_each;
    let compared = format!("of these compared, with {each} segments or more");
    for (name, counts) in [
        (unit_plural(setting.assign_by), arms.map(|arm| arm.units)),
        (compared.as_str(), arms.map(|arm| arm.compared)),
        ("segments", arms.map(|arm| arm.summary.segments)),
        (
            "losses repaired by bundles",
            arms.map(|arm| arm.summary.hidden_losses),
        ),
    ] {
        let [bundled, plain] = counts.map(number::count);
        table.row([name.to_owned(), bundled, plain, String::new()]);
    }
    for it in &results.measures {
        let unit = it.measure.unit;
        table.row([
            it.measure.heading(),
            estimate_text(it.bundled, unit),
            estimate_text(it.plain, unit),
            estimate_text(it.difference, unit),
        ]);
    }
    table
}

/// Explains a verdict that contradicts the mean values.
const RANK_NOTE: &str = " The times cover all messages, and a single unit may have the longest ones; \
                       the verdict compares ranks of the units' lateness.";

/// Returns how many connections of either arm ended with an error.
fn cut_short(results: &Results) -> String {
    let arm = |arm: &ArmResults| {
        let Summary { cut, sent, .. } = arm.summary;
        let (connections, segments) = (counted(cut, "connection"), counted(sent, "segment"));
        format!("{connections} in {segments}")
    };
    format!(
        "errors cut {} short with bundles, and {} without",
        arm(&results.bundled),
        arm(&results.plain)
    )
}

/// Returns the segments that TCP retransmitted, except needlessly.
fn retransmitted(arm: &ArmResults) -> u64 {
    arm.summary.lost.saturating_sub(arm.summary.spurious)
}

/// Returns the verdict in words, with its error rate.
pub fn verdict(results: &Results, setting: &Setting) -> String {
    let wait = &results.measures[0];
    let in_ms = |of: Option<Estimate>| estimate_text(of, Unit::Milliseconds);
    let error_note = format!(
        "such a verdict occurs in at most {} of trials without a difference",
        number::percent(ERROR_RATE)
    );
    let longer = wait.difference.map_or(0.0, |it| it.value);
    let waits = format!(
        "a message waits {} ms with it and {} ms without, a difference of {} ms",
        in_ms(wait.bundled),
        in_ms(wait.plain),
        in_ms(wait.difference)
    );
    let note = match results.verdict {
        Verdict::Helps if longer > 0.0 => RANK_NOTE,
        Verdict::Harms if longer < 0.0 => RANK_NOTE,
        _ => "",
    };
    let cut = results
        .interim_analyses
        .last()
        .is_some_and(InterimAnalysis::is_cut_clear);
    let segments = results.plain.summary.segments;
    match results.verdict {
        Verdict::Undecided if segments > 0 && retransmitted(&results.plain) == 0 => format!(
            "Nothing to repair: TCP retransmitted none of the {} without bundles, so bundling \
             cannot help.",
            counted(segments, "segment")
        ),
        Verdict::Harms if cut => format!("Bundling harms: {}; {error_note}.", cut_short(results)),
        Verdict::Helps => format!("Bundling helps: {waits}; {error_note}.{note}"),
        Verdict::Harms => format!("Bundling harms: {waits}; {error_note}.{note}"),
        Verdict::Undecided => match missing_for_first_analysis(results, setting) {
            Some(missing) => format!(
                "Not clear: nothing was compared, because that needs {missing}{}.",
                left_out(results)
            ),
            None => format!(
                "Not clear: the {} of the arms differs by {} ms, which may be chance ({}{}).",
                MEASURES[0].label,
                in_ms(wait.difference),
                analysis_count(results),
                left_out(results),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use pillion_bpf::AssignBy;

    use super::*;
    use crate::trial::{Trial, TrialState};

    fn setting() -> Setting {
        Setting {
            bundled_ppm: 250_000,
            assign_by: AssignBy::Peer,
            grace_us: 50_000,
            stall_us: 300_000,
            connections_text: "all connections".to_owned(),
            location: "all devices".to_owned(),
            bundling: "{}".to_owned(),
            duration_ms: None,
        }
    }

    fn results(interim_analyses: usize) -> Results {
        let analysis = InterimAnalysis {
            segments: 4_000,
            units: 20,
            chance_of_better: 0.5,
            chance_of_worse: 0.5,
            chance_of_more_cut: 0.5,
            threshold: 0.0125,
        };
        let mut state = TrialState::new(setting(), [1, 2]);
        state.interim_analyses = vec![analysis; interim_analyses];
        Trial::new(state).results()
    }

    #[test]
    fn missing_data_is_named_until_first_analysis() {
        let missing =
            "4\u{a0}000 segments (0 seen), and 20 peers with 20 segments or more (0 seen)";
        let none = results(0);
        assert_eq!(
            verdict(&none, &setting()),
            format!("Not clear: nothing was compared, because that needs {missing}.")
        );
        let line = progress_line(&none, &setting());
        let expected = format!("; no analysis before {missing}, not clear yet");
        assert!(line.ends_with(&expected), "{line}");
        let mut enough = none;
        enough.plain.summary.segments = 4_000;
        let line = progress_line(&enough, &setting());
        assert!(line.contains("no analysis before 20 peers"), "{line}");
    }

    #[test]
    fn trial_without_loss_has_nothing_to_repair() {
        let mut results = results(1);
        (
            results.plain.summary.segments,
            results.plain.summary.lost,
            results.plain.summary.spurious,
        ) = (100, 2, 2);
        let reported = verdict(&results, &setting());
        assert!(
            reported.contains("none of the 100 segments without bundles"),
            "{reported}"
        );
        results.plain.summary.lost = 3;
        assert!(verdict(&results, &setting()).starts_with("Not clear"));
    }

    #[test]
    fn single_analysis_is_singular() {
        for (interim_analyses, words) in [(1, "1 analysis"), (2, "2 analyses")] {
            let results = results(interim_analyses);
            let line = progress_line(&results, &setting());
            assert!(
                line.ends_with(&format!("; {words}, not clear yet")),
                "{line}"
            );
            let reported = verdict(&results, &setting());
            assert!(
                reported.ends_with(&format!("chance ({words}).")),
                "{reported}"
            );
        }
    }
}
