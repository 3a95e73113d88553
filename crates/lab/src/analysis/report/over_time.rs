use pillion_stats::measure::share;
use pillion_stats::report::{Axis, Figure, Line, Part};
use pillion_trace::measure::{Measures, Rates};

use crate::analysis::Summary;

/// Rates, packets in flight and loss, slice by slice.
pub fn figures(summary: &Summary) -> Vec<Part> {
    let all = &summary.results.all.main;
    if all.slices.rates().nth(1).is_none() {
        return Vec::new();
    }
    let slices = format!(
        "In slices of {} s; the last one may be cut short by the end of the trace.",
        summary.results.slice_s
    );
    let figures = [
        rates(summary),
        in_flight(all),
        losses(all, summary.traces.len() > 1),
    ];
    let captioned = figures.into_iter().map(|figure| Figure {
        caption: slices.clone(),
        ..figure
    });
    captioned.map(Part::from).collect()
}

/// Of each group, or of all in more detail where there are none.
fn rates(summary: &Summary) -> Figure {
    let groups = &summary.results.groups;
    let goodput = |rates: &Rates| Some(rates.acked_goodput_bit_per_s / 1e3);
    if !groups.is_empty() {
        let lines = summary.together().skip(1);
        let lines = lines.map(|(name, group)| line(name, &group.main, goodput));
        return figure(
            "Goodput",
            "new payload acknowledged",
            "kbit/s",
            lines.collect(),
        );
    }
    let all = &summary.results.all.main;
    let mut lines = vec![
        line("throughput, sent", all, |rates| {
            Some(rates.sent_throughput_bit_per_s / 1e3)
        }),
        line("goodput, acknowledged", all, goodput),
    ];
    if summary.traces.len() > 1 {
        lines.push(line("goodput, readable", all, |rates| {
            Some(rates.received_goodput_bit_per_s / 1e3)
        }));
    }
    figure("Throughput and goodput", "rate", "kbit/s", lines)
}

fn in_flight(all: &Measures) -> Figure {
    let lines = vec![
        line("most", all, |rates| {
            Some(rates.in_flight_packets_max.into())
        }),
        line("mean", all, |rates| rates.in_flight_packets_mean),
    ];
    figure("Packets in flight of a connection", "packets", "", lines)
}

fn losses(all: &Measures, with_receiver: bool) -> Figure {
    let percent = |packets: u32, rates: &Rates| {
        share(packets.into(), rates.data_packets.into()).map(|share| share * 100.0)
    };
    let mut lines = vec![line("retransmitted", all, |rates| {
        percent(rates.retransmitted_packets, rates)
    })];
    if with_receiver {
        let lost = |rates: &Rates| percent(rates.lost_data_packets, rates);
        lines.insert(0, line("lost", all, lost));
    }
    figure(
        "Loss and retransmission",
        "of the packets with payload",
        "%",
        lines,
    )
}

fn figure(title: &str, quantity: &str, unit: &str, lines: Vec<Line>) -> Figure {
    Figure {
        title: title.to_owned(),
        caption: String::new(),
        x: Axis {
            min: Some(0.0),
            ..Axis::linear("time", "s")
        },
        y: Axis {
            min: Some(0.0),
            ..Axis::linear(quantity, unit)
        },
        side: None,
        lines,
    }
}

/// A level for each slice.
fn line(label: &str, measures: &Measures, of: impl Fn(&Rates) -> Option<f64>) -> Line {
    let width_s = measures.slices.width_s();
    let mut points = Vec::new();
    let mut end = None;
    for rates in measures.slices.rates() {
        if let Some(level) = of(&rates) {
            points.push((rates.begin_s, level));
            end = Some((rates.begin_s + width_s, level));
        }
    }
    points.extend(end);
    Line::step(label, points)
}
