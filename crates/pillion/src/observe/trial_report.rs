//! What a trial has found, in words, as a table and as a page.

use pillion_bpf::DrawBy;
use pillion_stats::measure::Unit;
use pillion_stats::report::number::{self, counted};
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, Stream, Table};
use serde_json::json;

use crate::observe::estimate;
use crate::trial::{
    ArmResults, Comparison, ERROR_RATE, Estimate, Look, MEASURES, Results, Setting, Summary,
    Verdict,
};

/// What is drawn for, and compared.
fn units(draw_by: DrawBy) -> &'static str {
    match draw_by {
        DrawBy::Peer => "peers",
        DrawBy::Connection => "connections",
    }
}

/// All of it, with the latencies of both arms as a figure.
pub fn page(results: &Results, setting: &Setting) -> Page {
    let units = units(setting.draw_by);
    let looks = results.looks.iter().map(|look| look_line(look, units));
    Page {
        title: "Does bundling help?".to_owned(),
        lead: verdict(results, setting),
        parts: vec![table(results, setting).into(), latencies(results).into()],
        method: vec![
            Fact::new("connections", setting.chosen.as_str()),
            Fact::new(
                "bundled",
                number::percent(f64::from(setting.bundled_ppm) / 1e6),
            ),
            Fact::new("drawn by", setting.draw_by.to_string()),
            Fact::new(
                "intervals",
                format!("95 % confidence, by bootstrap over {units}"),
            ),
            Fact::verbatim("looks", looks.collect::<Vec<_>>().join("\n")),
        ],
        data: json!({ "results": results }),
    }
}

fn latencies(results: &Results) -> Figure {
    let line = |name, arm: &ArmResults, stream: Stream| {
        let points = arm.summary.latencies.cumulative().into_iter();
        let longer = points.map(|(ms, share)| (ms, 1.0 - share));
        Line::step(name, longer.collect()).styled(Some(stream.style()))
    };
    Figure {
        title: "Who waits, and how long".to_owned(),
        caption:
            "At each latency, the share of segments that took longer to be acknowledged, on a log \
             scale."
                .to_owned(),
        x: Axis::log("ACK latency", "ms"),
        y: Axis::log("share of segments that took longer", ""),
        side: None,
        lines: vec![
            line("bundled", &results.bundled, Stream::Bundled),
            line("plain", &results.plain, Stream::Plain),
        ],
    }
}

fn look_line(look: &Look, units: &str) -> String {
    format!(
        "{} segments, {} {units}: chance of better {:.4}, of worse {:.4}, of more cut short {:.4}; \
         threshold {:.5}",
        look.segments,
        look.units,
        look.chance_of_better,
        look.chance_of_worse,
        look.chance_of_more_cut,
        look.threshold
    )
}

/// What there is too little of for a first look, if there was none.
fn too_little(results: &Results, setting: &Setting) -> Option<String> {
    let first = setting.first_look();
    let arms = [&results.bundled, &results.plain];
    let sum = |of: fn(&ArmResults) -> u64| arms.into_iter().map(of).sum::<u64>();
    let units = units(setting.draw_by);
    let each = format!("{units} with {} segments or more", first.segments_each);
    let taken = [
        (
            first.segments,
            sum(|arm| arm.summary.segments),
            "segments".to_owned(),
        ),
        (first.units, sum(|arm| arm.compared), each),
    ];
    let missing = taken.into_iter().filter(|(fewest, seen, _)| seen < fewest);
    let missing = missing.map(|(fewest, seen, of)| {
        let [fewest, seen] = [fewest, seen].map(number::count);
        format!("{fewest} {of} ({seen} seen)")
    });
    let missing: Vec<_> = missing.collect();
    (results.looks.is_empty() && !missing.is_empty()).then(|| missing.join(", and "))
}

/// How it stands, in a line.
pub fn standing(results: &Results, setting: &Setting) -> String {
    let arm = |name: &str, of: fn(&Comparison) -> Option<Estimate>, arm: &ArmResults| {
        let value = |name: &str| {
            let found = results.measures.iter().find(|it| it.measure.name == name);
            estimate(found.and_then(of), Unit::Milliseconds)
        };
        format!(
            "{name} {} units, {} segments, late by {} ms, p99 {} ms",
            arm.units,
            number::count(arm.summary.segments),
            value("late_ms"),
            value("ack_latency_ms_p99"),
        )
    };
    let looks = too_little(results, setting).map_or_else(
        || counted(results.looks.len() as u64, "look"),
        |missing| format!("no look before {missing}"),
    );
    format!(
        "{}; {}; {looks}, not clear yet{}",
        arm("bundled", |it| it.bundled, &results.bundled),
        arm("plain", |it| it.plain, &results.plain),
        left_out(results),
    )
}

/// What has found no place among the units that are compared.
fn left_out(results: &Results) -> String {
    match results.left_out {
        0 => String::new(),
        connections => format!(
            "; {} left out, for so many units are compared at most",
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
    let each = setting.first_look().segments_each;
    let compared = format!("of these compared, with {each} segments or more");
    for (name, counts) in [
        (units(setting.draw_by), arms.map(|arm| arm.units)),
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
            estimate(it.bundled, unit),
            estimate(it.plain, unit),
            estimate(it.difference, unit),
        ]);
    }
    table
}

/// Why the numbers may say otherwise than the verdict.
const BY_RANK: &str = " The times are of all segments together, of which a single unit may have most \
                       of what is late; the verdict is by how units rank.";

/// How many connections of either arm an error has ended.
fn cut_short(results: &Results) -> String {
    let arm = |arm: &ArmResults| {
        let Summary { cut, sent, .. } = arm.summary;
        let (connections, segments) = (counted(cut, "connection"), counted(sent, "segment"));
        format!("{connections} in {segments}")
    };
    format!(
        "errors cut {} short with it, and {} without",
        arm(&results.bundled),
        arm(&results.plain)
    )
}

/// The verdict in words, and how far it can be trusted.
pub fn verdict(results: &Results, setting: &Setting) -> String {
    let late = &results.measures[0];
    let by = |of: Option<Estimate>| estimate(of, Unit::Milliseconds);
    let sure = format!(
        "such a verdict comes about in at most {} of trials where there is no difference",
        number::percent(ERROR_RATE)
    );
    let waits = format!(
        "beyond the least RTT and the grace, a segment waits {} ms with it and {} ms without",
        by(late.bundled),
        by(late.plain)
    );
    let longer = late.difference.map_or(0.0, |it| it.value);
    let but = match results.verdict {
        Verdict::Helps if longer > 0.0 => BY_RANK,
        Verdict::Harms if longer < 0.0 => BY_RANK,
        _ => "",
    };
    let cut = results.looks.last().is_some_and(Look::cuts);
    match results.verdict {
        Verdict::Harms if cut => format!("Bundling harms: {}; {sure}.", cut_short(results)),
        Verdict::Helps => format!("Bundling helps: {waits}; {sure}.{but}"),
        Verdict::Harms => format!("Bundling harms: {waits}; {sure}.{but}"),
        Verdict::Undecided => match too_little(results, setting) {
            Some(missing) => format!(
                "Not clear: nothing was compared, for that takes {missing}{}.",
                left_out(results)
            ),
            None => format!(
                "Not clear: the {} of the arms differs by {} ms, which may be chance ({}{}).",
                MEASURES[0].label,
                by(late.difference),
                counted(results.looks.len() as u64, "look"),
                left_out(results),
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use pillion_bpf::DrawBy;

    use super::*;
    use crate::trial::{Record, Trial};

    fn setting() -> Setting {
        Setting {
            bundled_ppm: 250_000,
            draw_by: DrawBy::Peer,
            grace_us: 50_000,
            stall_us: 300_000,
            chosen: "all connections".to_owned(),
            places: "all devices".to_owned(),
            bundling: "{}".to_owned(),
            duration_ms: None,
        }
    }

    fn results(looks: usize) -> Results {
        let look = Look {
            segments: 4_000,
            units: 20,
            chance_of_better: 0.5,
            chance_of_worse: 0.5,
            chance_of_more_cut: 0.5,
            threshold: 0.0125,
        };
        let mut record = Record::new(setting(), [1, 2]);
        record.looks = vec![look; looks];
        Trial::new(record).results()
    }

    #[test]
    fn what_a_first_look_takes_is_said_until_there_was_one() {
        let missing =
            "4\u{a0}000 segments (0 seen), and 20 peers with 20 segments or more (0 seen)";
        let none = results(0);
        assert_eq!(
            verdict(&none, &setting()),
            format!("Not clear: nothing was compared, for that takes {missing}.")
        );
        let line = standing(&none, &setting());
        let expected = format!("; no look before {missing}, not clear yet");
        assert!(line.ends_with(&expected), "{line}");
        let mut enough = none;
        enough.plain.summary.segments = 4_000;
        let line = standing(&enough, &setting());
        assert!(line.contains("no look before 20 peers"), "{line}");
    }

    #[test]
    fn one_look_is_told_in_the_singular() {
        for (looks, words) in [(1, "1 look"), (2, "2 looks")] {
            let results = results(looks);
            let line = standing(&results, &setting());
            assert!(
                line.ends_with(&format!("; {words}, not clear yet")),
                "{line}"
            );
            let told = verdict(&results, &setting());
            assert!(told.ends_with(&format!("chance ({words}).")), "{told}");
        }
    }
}
