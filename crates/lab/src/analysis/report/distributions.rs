use pillion_stats::report::{Axis, Figure, Line, Part, Scale};
use pillion_trace::measure::Distribution;
use pillion_trace::measure::catalogue::{self, Distributed};

use crate::analysis::Summary;

/// Latency, its tail.
pub fn latency(summary: &Summary) -> Vec<Part> {
    let mut parts = Vec::new();
    let application = Wanted {
        measure: catalogue::APPLICATION_LATENCY,
        title: "When the receiver could read",
        quantity: "delivery latency",
        share: "share of byte ranges that took longer",
    };
    let acked = Wanted {
        measure: catalogue::ACK_LATENCY,
        title: "When the sender knew",
        quantity: catalogue::ACK_LATENCY.label,
        ..application
    };
    for wanted in [application, acked] {
        let figure = wanted.tail(summary).map(|figure| Figure {
            caption: "At each latency, the share of the byte ranges that took longer, on a log \
                      scale: the lower and the further left, the better."
                .to_owned(),
            ..figure
        });
        parts.extend(figure.map(Part::from));
    }
    parts
}

/// RTT and queueing delay.
pub fn delays(summary: &Summary) -> Vec<Part> {
    let rtt = Wanted {
        measure: catalogue::RTT,
        title: "Round-trip time",
        quantity: catalogue::RTT.label,
        share: "share of samples that took no longer",
    };
    let queueing = Wanted {
        measure: catalogue::DELAY_VARIATION,
        title: "Queueing delay",
        quantity: catalogue::DELAY_VARIATION.label,
        share: "share of packets that took no longer",
    };
    let figures = [rtt, queueing].map(|wanted| wanted.body(summary));
    figures.into_iter().flatten().map(Part::from).collect()
}

/// A figure of one measure.
#[derive(Clone, Copy)]
struct Wanted {
    measure: Distributed,
    title: &'static str,
    quantity: &'static str,
    share: &'static str,
}

impl Wanted {
    /// Of each group; of all where there are none, and then, of delivery, at both layers.
    fn series<'a>(&self, summary: &'a Summary) -> Vec<(&'a str, &'a Distribution)> {
        let delay = &summary.results.all.main.delay;
        let has_groups = !summary.results.groups.is_empty();
        let found: Vec<_> =
            if !has_groups && self.measure.name == catalogue::APPLICATION_LATENCY.name {
                let layers = [
                    ("application", &delay.application),
                    ("transport", &delay.transport),
                ];
                layers.into_iter().collect()
            } else {
                let together = summary.together().skip(usize::from(has_groups));
                let found =
                    together.map(|(label, together)| (label, (self.measure.of)(&together.main)));
                found.collect()
            };
        let some = |(_, distribution): &(&str, &Distribution)| !distribution.is_empty();
        found.into_iter().filter(some).collect()
    }

    fn tail(&self, summary: &Summary) -> Option<Figure> {
        let series = self.series(summary);
        let most = series
            .iter()
            .map(|(_, distribution)| distribution.len())
            .max()?;
        let smallest = 10_f64.powf((1.0 / most as f64).log10().floor());
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
