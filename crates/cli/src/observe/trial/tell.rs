//! What a trial has found, in words, as a table and as a page.

use clap::ValueEnum;
use pillion_bundler::DrawBy;
use pillion_measure::Unit;
use pillion_report::number::{self, counted};
use pillion_report::{Axis, Column, Fact, Figure, Line, Page, Stream, Table};
use pillion_trial::{
    ArmResults, Comparison, ERROR_RATE, Estimate, Look, MEASURES, Results, Setting, Summary,
    Verdict,
};
use serde_json::json;

use crate::observe::words::estimate;

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
    let draw = setting.draw_by.to_possible_value();
    let looks = results.looks.iter().map(|look| look_line(look, units));
    Page {
        title: "Does bundling help?".to_owned(),
        lead: verdict(results),
        parts: vec![
            table(results, setting.draw_by).into(),
            latencies(results).into(),
        ],
        method: vec![
            Fact::new("connections", setting.chosen.as_str()),
            Fact::new(
                "bundled",
                number::percent(f64::from(setting.bundled_ppm) / 1e6),
            ),
            Fact::new(
                "drawn by",
                draw.map_or_else(String::new, |it| it.get_name().to_owned()),
            ),
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

/// How it stands, in a line.
pub fn standing(results: &Results) -> String {
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
    format!(
        "{}; {}; {} looks, not clear yet{}",
        arm("bundled", |it| it.bundled, &results.bundled),
        arm("plain", |it| it.plain, &results.plain),
        results.looks.len(),
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

pub fn table(results: &Results, draw_by: DrawBy) -> Table {
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
    for (name, counts) in [
        (units(draw_by), arms.map(|arm| arm.units)),
        (
            "of these compared, with 20 segments or more",
            arms.map(|arm| arm.compared),
        ),
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
pub fn verdict(results: &Results) -> String {
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
        Verdict::Undecided => format!(
            "Not clear: the {} of the arms differs by {} ms, which may be chance ({} looks{}).",
            MEASURES[0].label,
            by(late.difference),
            results.looks.len(),
            left_out(results),
        ),
    }
}
