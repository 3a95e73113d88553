use pillion_stats::report::{Axis, Distribution, Fact, Figure, Page, Part};
use serde_json::json;

use super::compare::{Comparison, Section};
use super::pool::Pool;
use super::resample::RESAMPLES;
use super::table::{differences_table, title, values_table};
use super::{DELIVERY_LATENCY, MEASURES, Of};

/// The comparison with its figures, for each section the delivery latency of all variants.
#[must_use]
pub fn comparison_page(name: &str, comparison: &Comparison, pools: &[Pool]) -> Page {
    let mut parts: Vec<Part> = Vec::new();
    for section in &comparison.sections {
        parts.extend(figures(section, pools));
        parts.push(values_table(section).into());
        parts.extend(differences_table(section, &comparison.baseline).map(Part::from));
    }
    Page {
        title: format!("{name}: runs side by side"),
        lead: String::new(),
        parts,
        method: method(comparison, pools),
        data: json!(comparison),
    }
}

/// Body and tail.
fn figures(section: &Section, pools: &[Pool]) -> Vec<Part> {
    let of = |variant: &str| {
        let is_it = |pool: &&Pool| {
            let label = &pool.label;
            let here = label.variant == variant && label.point == section.point;
            here && pool.group == section.group
        };
        let pool = pools.iter().find(is_it)?;
        Some(Distribution::new(pool.delivery_ms())).filter(|it| !it.is_empty())
    };
    let variants = section.variants.iter();
    let series: Vec<(&str, Distribution)> = variants
        .filter_map(|it| Some((it.variant.as_str(), of(&it.variant)?)))
        .collect();
    if series.is_empty() {
        return Vec::new();
    }
    let series: Vec<(&str, &Distribution)> = series.iter().map(|(name, it)| (*name, it)).collect();
    let axis = |max| Axis {
        max,
        ..Axis::linear("delivery latency", "ms")
    };
    let tails = series.iter().filter_map(|(_, it)| it.quantile(0.999));
    let body = Figure {
        caption: "All runs of a variant together, up to the 99.9th percentile.".to_owned(),
        ..Figure::cdf(
            format!("{}: delivery latency", title(section)),
            axis(tails.max_by(f64::total_cmp)),
            "share of messages that took no longer",
            &series,
        )
    };
    let tail = Figure {
        caption: "All runs of a variant together: the lower and the further left, the better."
            .to_owned(),
        ..Figure::ccdf(
            format!("{}: its tail", title(section)),
            axis(None),
            "share of messages that took longer",
            &series,
        )
    };
    vec![body.into(), tail.into()]
}

fn method(comparison: &Comparison, pools: &[Pool]) -> Vec<Fact> {
    let delivery = format!(
        "{DELIVERY_LATENCY}; `pillion-lab analyse` measures another one, from the first time that TCP \
         sent a byte range until it could be read"
    );
    let intervals = format!(
        "of {:.0} %, by bootstrap: {RESAMPLES} times runs (seeds) are drawn with replacement, and \
         of each its streams; the same runs give the same intervals",
        comparison.confidence * 100.0
    );
    let mut facts = vec![
        Fact::new("delivery latency", delivery),
        Fact::new("intervals of confidence", intervals),
        Fact::new("compared with", &*comparison.baseline),
    ];
    facts.extend(pools.iter().filter_map(|pool| {
        let survivors = pool.totals().survivors()?;
        Some(Fact::new(pool.name(), survivors))
    }));
    let others = MEASURES.iter();
    let others = others.filter(|measure| matches!(measure.of, Of::Totals(_)));
    facts.extend(others.map(|measure| Fact::new(measure.label, measure.meaning)));
    facts
}
