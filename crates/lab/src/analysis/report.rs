//! The report of `analyse --html`: one HTML page.

use pillion_stats::measure::{Unit, share};
use pillion_stats::report::{Axis, Column, Fact, Figure, Line, Page, Part, Scale, Table, number};
use pillion_trace::measure::catalogue::{self, DistributionMeasure};
use pillion_trace::measure::{Distribution, Measures, Rates};
use serde_json::json;

use crate::analysis::summary::{outcome, value};
use crate::analysis::{Summary, unread_packet_notes};

/// Returns a page with all tables of a summary, and with figures.
#[must_use]
pub fn page(summary: &Summary) -> Page {
    let mut parts: Vec<Part> = latency(summary);
    parts.push(summary.counts().into());
    parts.push(summary.times().into());
    parts.extend(delays(summary));
    parts.extend(over_time(summary));
    parts.push(connections_table(summary).into());
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
        return "The trace has no acknowledged data.".to_owned();
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
        for note in unread_packet_notes(counts) {
            facts.push(Fact::new(
                "not analysed",
                format!("{}: {note}", trace.file_name()),
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
    let direction = "the direction of a connection with more new bytes";
    facts.push(Fact::new("main direction", direction));
    let fact = |measure: DistributionMeasure| Fact::new(measure.label, measure.meaning);
    facts.push(fact(catalogue::ACK_LATENCY));
    if summary.traces.len() > 1 {
        facts.push(fact(catalogue::TRANSPORT_LATENCY));
        facts.push(fact(catalogue::APPLICATION_LATENCY));
        facts.push(fact(catalogue::DELAY_VARIATION));
    }
    facts
}

/// Returns the figures of latency tails.
fn latency(summary: &Summary) -> Vec<Part> {
    let mut parts = Vec::new();
    let application = FigureSpec {
        measure: catalogue::APPLICATION_LATENCY,
        title: "Delivery to the application",
        quantity: "delivery latency",
        share: "share of byte ranges that took longer",
    };
    let acked = FigureSpec {
        measure: catalogue::ACK_LATENCY,
        title: "Acknowledgement at the sender",
        quantity: catalogue::ACK_LATENCY.label,
        ..application
    };
    for spec in [application, acked] {
        let figure = spec.tail(summary).map(|figure| Figure {
            caption: "The share of byte ranges that took longer than each latency, on a log \
                      scale. Lower and further left is better."
                .to_owned(),
            ..figure
        });
        parts.extend(figure.map(Part::from));
    }
    parts
}

/// Returns the figures of RTT and queueing delay.
fn delays(summary: &Summary) -> Vec<Part> {
    let rtt = FigureSpec {
        measure: catalogue::RTT,
        title: "Round-trip time",
        quantity: catalogue::RTT.label,
        share: "share of samples up to this time",
    };
    let queueing = FigureSpec {
        measure: catalogue::DELAY_VARIATION,
        title: "Queueing delay",
        quantity: catalogue::DELAY_VARIATION.label,
        share: "share of packets up to this delay",
    };
    let figures = [rtt, queueing].map(|spec| spec.body(summary));
    figures.into_iter().flatten().map(Part::from).collect()
}

/// A figure of one measure.
#[derive(Clone, Copy)]
struct FigureSpec {
    measure: DistributionMeasure,
    title: &'static str,
    quantity: &'static str,
    share: &'static str,
}

impl FigureSpec {
    /// Returns one series per group. Without groups, all connections are one series; application
    /// latency then also has one for the transport layer.
    fn series<'a>(&self, summary: &'a Summary) -> Vec<(&'a str, &'a Distribution)> {
        let delay = &summary.results.all.main.delay;
        let has_groups = !summary.results.groups.is_empty();
        let series: Vec<_> = if !has_groups
            && self.measure.name == catalogue::APPLICATION_LATENCY.name
        {
            let layers = [
                ("application", &delay.application),
                ("transport", &delay.transport),
            ];
            layers.into_iter().collect()
        } else {
            let results = summary.all_and_groups().skip(usize::from(has_groups));
            let series = results.map(|(label, results)| (label, (self.measure.of)(&results.main)));
            series.collect()
        };
        let is_nonempty = |(_, distribution): &(&str, &Distribution)| !distribution.is_empty();
        series.into_iter().filter(is_nonempty).collect()
    }

    fn tail(&self, summary: &Summary) -> Option<Figure> {
        let series = self.series(summary);
        let max_count = series
            .iter()
            .map(|(_, distribution)| distribution.len())
            .max()?;
        let smallest = 10_f64.powf((1.0 / max_count as f64).log10().floor());
        let lines = series.iter().map(|(label, distribution)| {
            let curve = distribution.complement();
            let first = curve.first().map(|&(ns, _)| (ms(ns), 1.0));
            let rest = curve.iter().map(|&(ns, share)| (ms(ns), share));
            Line::step(*label, first.into_iter().chain(rest).collect())
        });
        Some(self.figure(lines.collect(), Scale::Log, Some(smallest)))
    }

    fn body(&self, summary: &Summary) -> Option<Figure> {
        let series = self.series(summary);
        if series.is_empty() {
            return None;
        }
        let lines = series.iter().map(|(label, distribution)| {
            let curve = distribution.curve();
            let first = curve.first().map(|&(ns, _)| (ms(ns), 0.0));
            let rest = curve.iter().map(|&(ns, share)| (ms(ns), share));
            let end = [(f64::INFINITY, 1.0)];
            Line::step(*label, first.into_iter().chain(rest).chain(end).collect())
        });
        let mut figure = self.figure(lines.collect(), Scale::Linear, Some(0.0));
        figure.x.min = None;
        let tails = series
            .iter()
            .filter_map(|(_, distribution)| distribution.quantile(0.999));
        figure.x.max = tails.max().map(ms).filter(|max| *max > 0.0);
        figure.caption = "Up to the 99.9th percentile.".to_owned();
        Some(figure)
    }

    fn figure(&self, lines: Vec<Line>, scale: Scale, min: Option<f64>) -> Figure {
        Figure {
            title: self.title.to_owned(),
            caption: String::new(),
            x: Axis {
                min: Some(0.0),
                ..Axis::linear(self.quantity, "ms")
            },
            y: Axis {
                scale,
                min,
                max: Some(1.0),
                ..Axis::linear(self.share, "")
            },
            side: None,
            lines,
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Returns the figures of rates, packets in flight and loss, by time slices.
fn over_time(summary: &Summary) -> Vec<Part> {
    let all = &summary.results.all.main;
    if all.slices.rates().nth(1).is_none() {
        return Vec::new();
    }
    let slices = format!(
        "In slices of {} s. The last one may be incomplete.",
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

/// Returns the goodput of each group. Without groups, the figure has all rates of all connections.
fn rates(summary: &Summary) -> Figure {
    let groups = &summary.results.groups;
    let goodput = |rates: &Rates| Some(rates.acked_goodput_bit_per_s / 1e3);
    if !groups.is_empty() {
        let lines = summary.all_and_groups().skip(1);
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
        line("maximum", all, |rates| {
            Some(rates.in_flight_packets_max.into())
        }),
        line("mean", all, |rates| rates.in_flight_packets_mean),
    ];
    figure("Packets in flight per connection", "packets", "", lines)
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
        "share of packets with payload",
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

/// Returns a step line with one level per slice.
fn line(label: &str, measures: &Measures, of: impl Fn(&Rates) -> Option<f64>) -> Line {
    let width_s = measures.slices.width_s();
    let mut points = Vec::new();
    let mut end = None;
    for rates in measures.slices.rates() {
        if let Some(level) = of(&rates) {
            points.push((rates.start_s, level));
            end = Some((rates.start_s + width_s, level));
        }
    }
    points.extend(end);
    Line::step(label, points)
}

/// Maximum number of connections in the table; browsers are slow with more.
const MAX_ROWS: usize = 500;

fn connections_table(summary: &Summary) -> Table {
    let connections = &summary.results.connections;
    let caption = match connections.len() {
        ..=MAX_ROWS => "Connections, in their main direction".to_owned(),
        all => format!("The first {MAX_ROWS} of {all} connections, in their main direction"),
    };
    let columns = [
        Column::right(""),
        Column::left("sender"),
        Column::left("receiver"),
        Column::right("start").unit("s"),
        Column::right("duration").unit("s"),
        Column::left("handshake"),
        Column::right("new bytes"),
        Column::right("retransmitted"),
        Column::right("bundled"),
        Column::right("lost"),
        Column::right("ACK latency p50").unit("ms"),
        Column::right("p99").unit("ms"),
    ];
    let mut table = Table::new(caption, columns);
    for single in connections.iter().take(MAX_ROWS) {
        let (main, counts) = (&single.main, &single.main.sent.counts);
        let lost = main.loss.as_deref();
        let lost = lost.map(|loss| number::count(loss.delivery_stats.lost_data_packets));
        let latency = |q| value(main.latency.ack_latency.quantile(q), Unit::Milliseconds);
        table.row([
            single.number.to_string(),
            single.sender.to_string(),
            single.receiver.to_string(),
            number::seconds(single.start_s),
            number::seconds(single.duration_s),
            outcome(single.outcome).to_owned(),
            number::count(counts.new_bytes),
            number::count(counts.retransmitted_packets),
            number::count(counts.bundled_packets),
            lost.unwrap_or_default(),
            latency(0.5),
            latency(0.99),
        ]);
    }
    table
}
