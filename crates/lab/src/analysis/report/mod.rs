//! The report: one HTML page.

mod connections;
mod distributions;
mod over_time;

use pillion_stats::report::{Fact, Page, Part, number};
use pillion_trace::measure::catalogue::{self, Distributed};
use serde_json::json;

use crate::analysis::{Summary, unread};

/// Everything that a summary has, with figures.
#[must_use]
pub fn page(summary: &Summary) -> Page {
    let mut parts: Vec<Part> = distributions::latency(summary);
    parts.push(summary.counts().into());
    parts.push(summary.times().into());
    parts.extend(distributions::delays(summary));
    parts.extend(over_time::figures(summary));
    parts.push(connections::table(summary).into());
    Page {
        title: summary.heading(),
        lead: lead(summary),
        parts,
        method: method(summary),
        data: json!({"all": summary.results.all, "groups": summary.results.groups}),
    }
}

fn lead(summary: &Summary) -> String {
    let main = &summary.results.all.main;
    let (latency, what) = match main.delay.application.is_empty() {
        true => (&main.latency.ack_latency, "were acknowledged"),
        false => (&main.delay.application, "could be read by the receiver"),
    };
    let quantile = |q| {
        let ns = latency.quantile(q);
        number::millis(ns.map(|ns| ns as f64 / 1e6))
    };
    if latency.is_empty() {
        return "No data was sent and acknowledged.".to_owned();
    }
    format!(
        "Half of all byte ranges {what} within {} ms of being sent; one in a hundred took longer \
         than {} ms.",
        quantile(0.5),
        quantile(0.99)
    )
}

fn method(summary: &Summary) -> Vec<Fact> {
    let mut facts = Vec::new();
    for (trace, end) in summary.traces.iter().zip(["sender", "receiver"]) {
        let counts = trace.input.counts();
        let text = format!(
            "{}: {}, {} packets, {} of them TCP",
            trace.file_name(),
            trace.input.format(),
            number::count(counts.packets),
            number::count(counts.tcp)
        );
        facts.push(Fact::new(format!("trace at the {end}"), text));
        for told in unread(counts) {
            facts.push(Fact::new(
                "not read",
                format!("{}: {told}", trace.file_name()),
            ));
        }
        for warning in trace.input.warnings() {
            facts.push(Fact::new(
                "damage",
                format!("{}: {warning}", trace.file_name()),
            ));
        }
    }
    facts.extend(
        summary
            .notes()
            .into_iter()
            .map(|note| Fact::new("note", note)),
    );
    let direction = "of each connection the one in which more new bytes went";
    facts.push(Fact::new("main direction", direction));
    let fact = |measure: Distributed| Fact::new(measure.label, measure.meaning);
    facts.push(fact(catalogue::ACK_LATENCY));
    if summary.traces.len() > 1 {
        facts.push(fact(catalogue::TRANSPORT_LATENCY));
        facts.push(fact(catalogue::APPLICATION_LATENCY));
        facts.push(fact(catalogue::DELAY_VARIATION));
    }
    facts
}
