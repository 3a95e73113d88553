use pillion_stats::measure::{Percentile, Unit};
use pillion_stats::report::{Column, Table, number};

use super::compare::{CONFIDENCE, Difference, Section};
use super::{DELIVERY_LATENCY, Group, MEASURES, Of, RunMeasure};

/// A measure's value for people, without the unit of times.
#[must_use]
pub fn shown(value: impl Into<Option<f64>>, unit: Unit) -> String {
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
    /// The measure's value, in this run.
    #[must_use]
    pub fn value(&self, measure: &RunMeasure) -> Option<f64> {
        match measure.of {
            Of::Totals(of) => of(&self.totals()),
            Of::Delivery(percentile) => {
                let mut all = Percentile::LATENCY.iter().zip(self.delivery_ms);
                all.find(|(it, _)| **it == percentile)?.1
            }
        }
    }
}

/// A row for each group of each run; `first` heads the columns that name them. Measures of which
/// nothing is known are left out.
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

/// A row for each variant of a section. Measures of which nothing is known are left out.
#[must_use]
pub fn values_table(section: &Section) -> Table {
    let caption = format!("{}: all runs of a variant together", title(section));
    table(caption, of_variants(), &[(None, variants(section))])
}

/// The same of all sections, in one table.
#[must_use]
pub fn all_values_table(sections: &[Section]) -> Table {
    let of_all = sections.iter();
    let of_all = of_all.map(|section| (Some(title(section)), variants(section)));
    table(
        "All runs of a variant together",
        of_variants(),
        &of_all.collect::<Vec<_>>(),
    )
}

/// What a row is of, and the value of each measure.
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

fn of_variants() -> [Column; 2] {
    [Column::left("variant"), Column::right("runs")]
}

/// Rows with names and with the value of each measure, below the title of their part if it has one.
fn table(
    caption: impl Into<String>,
    first: impl IntoIterator<Item = Column>,
    parts: &[(Option<String>, Vec<Row>)],
) -> Table {
    let rows = parts.iter().flat_map(|(_, rows)| rows);
    let known = MEASURES.iter().enumerate();
    let known = known.filter(|(place, _)| rows.clone().any(|(_, row)| row[*place].is_some()));
    let known: Vec<_> = known.collect();
    let columns = known.iter().map(|(_, measure)| match measure.unit {
        Unit::Milliseconds => Column::right(measure.label).unit(measure.unit.symbol()),
        _ => Column::right(measure.label),
    });
    let mut table = Table::new(caption, first.into_iter().chain(columns));
    for (title, rows) in parts {
        if let Some(title) = title {
            table.section(&**title);
        }
        for (names, values) in rows {
            let values = known
                .iter()
                .map(|(place, measure)| shown(values[*place], measure.unit));
            table.row(names.iter().cloned().chain(values));
        }
    }
    table
}

/// A row for each measure, a column for each variant but the baseline; none without others.
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
        let cells = differences.map(|it| it.map_or_else(String::new, |it| told(it, measure.unit)));
        let name = match measure.unit {
            Unit::Milliseconds => measure.heading(),
            _ => measure.label.to_owned(),
        };
        table.row(std::iter::once(name).chain(cells));
    }
    Some(table)
}

/// What a section is about.
pub(super) fn title(section: &Section) -> String {
    match section.point.as_str() {
        "" => format!("group {}", section.group),
        point => format!("{point}, group {}", section.group),
    }
}

/// A difference with its confidence interval, as in `+12.3 (+9.1 to +14.8)`.
fn told(difference: &Difference, unit: Unit) -> String {
    let signed = |value: f64| {
        let text = match unit {
            Unit::Share => number::amount(value * 100.0),
            unit => shown(value, unit),
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
