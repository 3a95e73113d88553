//! Compared runs as tables and as a page.

use pillion_stats::measure::{Percentile, Unit};
use pillion_stats::report::{Axis, Column, Fact, Figure, Page, Part, SortedSamples, Table, number};
use serde_json::json;

use super::compare::{CONFIDENCE, Comparison, Difference, RESAMPLES, Section};
use super::{DELIVERY_LATENCY, Group, MEASURES, MeasureSource, Pool, RunMeasure};

/// Formats a measure's value; times are without their unit.
#[must_use]
pub fn format_value(value: impl Into<Option<f64>>, unit: Unit) -> String {
    let value = value.into();
    match unit {
        Unit::Milliseconds => number::millis(value),
        Unit::Bytes => number::bytes(value),
        Unit::BitPerSecond => number::rate(value),
        Unit::Share => number::percent(value),
        Unit::Number => number::amount(value),
    }
}

impl Group {
    /// Returns the measure's value in this run.
    #[must_use]
    pub fn value(&self, measure: &RunMeasure) -> Option<f64> {
        match measure.of {
            MeasureSource::Totals(of) => of(&self.totals()),
            MeasureSource::Delivery(percentile) => {
                let mut all = Percentile::LATENCY.iter().zip(self.delivery_ms);
                all.find(|(it, _)| **it == percentile)?.1
            }
        }
    }
}

/// Returns a table with a row per group and run. `first` has the columns of their names. Measures
/// without any value are omitted.
#[must_use]
pub fn groups_table<'a>(
    first: impl IntoIterator<Item = Column>,
    groups: impl IntoIterator<Item = (Vec<String>, &'a Group)>,
) -> Table {
    let rows = groups.into_iter().map(|(names, group)| {
        let values = MEASURES.map(|measure| group.value(&measure));
        (names, values)
    });
    let title = format!("Groups; delivery latency is {DELIVERY_LATENCY}");
    table(title, first, &[(None, rows.collect())])
}

/// Returns a table with a row per variant of a section. Measures without any value are omitted.
#[must_use]
pub fn values_table(section: &Section) -> Table {
    let caption = format!("{}: all runs of a variant combined", title(section));
    table(caption, variant_columns(), &[(None, variants(section))])
}

/// Returns the values of all sections in one table.
#[must_use]
pub fn all_values_table(sections: &[Section]) -> Table {
    let of_all = sections.iter();
    let of_all = of_all.map(|section| (Some(title(section)), variants(section)));
    table(
        "All runs of a variant combined",
        variant_columns(),
        &of_all.collect::<Vec<_>>(),
    )
}

/// The names of a row, and the value of each measure.
type Row = (Vec<String>, [Option<f64>; MEASURES.len()]);

fn variants(section: &Section) -> Vec<Row> {
    let rows = section.variants.iter().map(|variant| {
        let values = MEASURES.map(|measure| variant.values.get(measure.name).copied());
        (
            vec![variant.variant.clone(), variant.runs.to_string()],
            values,
        )
    });
    rows.collect()
}

fn variant_columns() -> [Column; 2] {
    [Column::left("variant"), Column::right("runs")]
}

/// Returns a table with the value of each measure per row. Each part has an optional title.
fn table(
    caption: impl Into<String>,
    first: impl IntoIterator<Item = Column>,
    parts: &[(Option<String>, Vec<Row>)],
) -> Table {
    let rows = parts.iter().flat_map(|(_, rows)| rows);
    let present = MEASURES.iter().enumerate();
    let present = present.filter(|(index, _)| rows.clone().any(|(_, row)| row[*index].is_some()));
    let present: Vec<_> = present.collect();
    let columns = present.iter().map(|(_, measure)| match measure.unit {
        Unit::Milliseconds => Column::right(measure.label).unit(measure.unit.symbol()),
        _ => Column::right(measure.label),
    });
    let mut table = Table::new(caption, first.into_iter().chain(columns));
    for (title, rows) in parts {
        if let Some(title) = title {
            table.section(&**title);
        }
        for (names, values) in rows {
            let values = present
                .iter()
                .map(|(index, measure)| format_value(values[*index], measure.unit));
            table.row(names.iter().cloned().chain(values));
        }
    }
    table
}

/// Returns a table with a row per measure and a column per variant, without the baseline; `None`
/// without other variants.
#[must_use]
pub fn differences_table(section: &Section, baseline: &str) -> Option<Table> {
    let compared = section.variants.iter();
    let compared: Vec<_> = compared.filter(|it| !it.differences.is_empty()).collect();
    if compared.is_empty() {
        return None;
    }
    let variants = compared.iter().map(|it| Column::right(&*it.variant));
    let mut table = Table::new(
        format!(
            "{}: minus {baseline}, with intervals of {:.0} % confidence",
            title(section),
            CONFIDENCE * 100.0
        ),
        std::iter::once(Column::left(format!("minus {baseline}"))).chain(variants),
    );
    for measure in MEASURES {
        let differences = compared.iter().map(|it| it.differences.get(measure.name));
        if differences.clone().all(|it| it.is_none()) {
            continue;
        }
        let cells = differences
            .map(|it| it.map_or_else(String::new, |it| format_difference(it, measure.unit)));
        let name = match measure.unit {
            Unit::Milliseconds => measure.heading(),
            _ => measure.label.to_owned(),
        };
        table.row(std::iter::once(name).chain(cells));
    }
    Some(table)
}

/// Returns the title of a section.
pub(super) fn title(section: &Section) -> String {
    match section.point.as_str() {
        "" => format!("group {}", section.group),
        point => format!("{point}, group {}", section.group),
    }
}

/// Formats a difference with its confidence interval, as in `+12.3 (+9.1 to +14.8)`.
fn format_difference(difference: &Difference, unit: Unit) -> String {
    let signed = |value: f64| {
        let text = match unit {
            Unit::Share => number::amount(value * 100.0),
            unit => format_value(value, unit),
        };
        let is_zero = !text.contains(|digit| ('1'..='9').contains(&digit));
        if value > 0.0 && !is_zero {
            format!("+{text}")
        } else {
            text
        }
    };
    let by = signed(difference.by);
    let unit = if unit == Unit::Share { " points" } else { "" };
    match (difference.low, difference.high) {
        (Some(low), Some(high)) => format!("{by} ({} to {}){unit}", signed(low), signed(high)),
        _ => by + unit,
    }
}

/// Returns a page with tables, and for each section the figures of delivery latency.
#[must_use]
pub fn comparison_page(name: &str, comparison: &Comparison, pools: &[Pool]) -> Page {
    let mut parts: Vec<Part> = Vec::new();
    for section in &comparison.sections {
        parts.extend(figures(section, pools));
        parts.push(values_table(section).into());
        parts.extend(differences_table(section, &comparison.baseline).map(Part::from));
    }
    Page {
        title: format!("{name}: comparison of runs"),
        lead: String::new(),
        parts,
        method: method(comparison, pools),
        data: json!(comparison),
    }
}

/// Draws the distribution of delivery latency and its tail.
fn figures(section: &Section, pools: &[Pool]) -> Vec<Part> {
    let of = |variant: &str| {
        let matches = |pool: &&Pool| {
            let label = &pool.label;
            let here = label.variant == variant && label.point == section.point;
            here && pool.group == section.group
        };
        let pool = pools.iter().find(matches)?;
        Some(SortedSamples::new(pool.delivery_ms())).filter(|it| !it.is_empty())
    };
    let variants = section.variants.iter();
    let series: Vec<(&str, SortedSamples)> = variants
        .filter_map(|it| Some((it.variant.as_str(), of(&it.variant)?)))
        .collect();
    if series.is_empty() {
        return Vec::new();
    }
    let series: Vec<(&str, &SortedSamples)> = series.iter().map(|(name, it)| (*name, it)).collect();
    let axis = |max| Axis {
        max,
        ..Axis::linear("delivery latency", "ms")
    };
    let tails = series.iter().filter_map(|(_, it)| it.quantile(0.999));
    let body = Figure {
        caption: "All runs of a variant combined, up to the 99.9th percentile.".to_owned(),
        ..Figure::cdf(
            format!("{}: delivery latency", title(section)),
            axis(tails.max_by(f64::total_cmp)),
            "share of messages up to this latency",
            &series,
        )
    };
    let tail = Figure {
        caption: "All runs of a variant combined. Lower and further left is better.".to_owned(),
        ..Figure::ccdf(
            format!("{}: tail of delivery latency", title(section)),
            axis(None),
            "share of messages that took longer",
            &series,
        )
    };
    vec![body.into(), tail.into()]
}

fn method(comparison: &Comparison, pools: &[Pool]) -> Vec<Fact> {
    let delivery = format!(
        "{DELIVERY_LATENCY}; `pillion-lab analyse` has another one, from the first transmission \
         of a byte range until it could be read"
    );
    let intervals = format!(
        "{:.0} % confidence, from {RESAMPLES} draws of a bootstrap: runs (seeds) with \
         replacement, and within each run its streams; wider with few runs; the same runs give \
         the same intervals",
        comparison.confidence * 100.0
    );
    let mut facts = vec![
        Fact::new("delivery latency", delivery),
        Fact::new("confidence intervals", intervals),
        Fact::new("baseline", &*comparison.baseline),
    ];
    facts.extend(pools.iter().filter_map(|pool| {
        let missing_note = pool.totals().missing_note()?;
        Some(Fact::new(pool.name(), missing_note))
    }));
    let others = MEASURES.iter();
    let others = others.filter(|measure| matches!(measure.of, MeasureSource::Totals(_)));
    facts.extend(others.map(|measure| Fact::new(measure.label, measure.meaning)));
    facts
}
