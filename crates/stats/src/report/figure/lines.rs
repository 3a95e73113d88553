//! The lines of a figure and their labels.

use super::labels::{self, Labelled};
use super::layout::Layout;
use super::svg::{place, text_at};
use super::{Figure, Line, Role, Shape, trace};
use crate::report::markup::Markup;

/// The number of styles for lines of data, in the theme. A style beyond them has the colour of the one
/// as many before it, and another dash.
pub const STYLES: usize = 6;

pub(super) fn draw(out: &mut Markup, figure: &Figure, layout: &Layout) {
    let (named, lines): (Vec<&Line>, Vec<&Line>) = figure
        .lines
        .iter()
        .partition(|line| matches!(line.shape, Shape::Box | Shape::Dots));
    // Their names stand at the axis.
    for line in named {
        let (class, d) = match line.shape {
            Shape::Box => ("box", trace::boxed(line, layout)),
            _ => ("dots", Some(trace::dots(line, layout))),
        };
        let style = line.style.map(|it| format!(" {}", class_of(it)));
        let class = format!("{class}{}", style.unwrap_or_default());
        if let Some(d) = d.filter(|d| !d.is_empty()) {
            out.raw("\n").empty("path", &[("class", &class), ("d", &d)]);
        }
    }
    let classes = classes(&lines);
    let mut labelled = Vec::with_capacity(lines.len());
    for (line, class) in lines.into_iter().zip(&classes) {
        let path = trace::trace(line, layout);
        if !path.is_empty() {
            let attributes = [
                ("class", &*format!("line {class}")),
                ("d", &trace::path_data(&path)),
                ("data-label", &line.label),
            ];
            out.raw("\n").empty("path", &attributes);
        }
        if line.shape == Shape::Marked {
            let class = format!("dots {class}");
            let d = trace::dots(line, layout);
            out.empty("path", &[("class", &class), ("d", &d)]);
        }
        // A single point has its label beside it as a line has.
        let path = match path[..] {
            [point] => vec![point; 2],
            _ => path,
        };
        labelled.push(Labelled {
            label: label(line, path.is_empty()),
            size: match line.role {
                Role::Data => layout.format.label,
                Role::Reference => layout.format.small,
            },
            path,
        });
    }
    if figure.lines.is_empty() {
        labelled.push(Labelled {
            label: "no data".into(),
            size: layout.format.label,
            path: Vec::new(),
        });
    }
    let labels = labels::place(&labelled, layout.plot);
    let classes = classes.iter().map(String::as_str).chain(["reference"]);
    for ((label, line), class) in labels.iter().zip(&labelled).zip(classes) {
        let Some(label) = label else { continue };
        if let Some((from, to)) = label.leader {
            let [x, y, to_x, to_y] = [from.0, from.1, to.0, to.1].map(place);
            let d = format!("M{x} {y}L{to_x} {to_y}");
            out.empty("path", &[("class", "leader"), ("d", &d)]);
        }
        let centre = (label.area.left + label.area.right) / 2.0;
        let base = label.area.top + line.size * 0.97;
        let class = format!("label {class}");
        text_at(
            out,
            &class,
            (centre, base),
            line.size,
            "middle",
            &label.text,
        );
    }
}

/// Each line's style: its own, or one after the other of those that are free; the same for all
/// references.
fn classes(lines: &[&Line]) -> Vec<String> {
    let taken: Vec<usize> = lines.iter().filter_map(|line| line.style).collect();
    let mut free = (0..).filter(|style| !taken.contains(style));
    let mut class = |line: &&Line| match line.role {
        Role::Data => class_of(line.style.or_else(|| free.next()).unwrap_or_default()),
        Role::Reference => "reference".into(),
    };
    lines.iter().map(&mut class).collect()
}

fn class_of(style: usize) -> String {
    let again = if style < STYLES { "" } else { " again" };
    format!("style{}{again}", style % STYLES)
}

fn label(line: &Line, empty: bool) -> String {
    match (line.role, empty) {
        (Role::Data, true) => format!("no data: {}", line.label),
        (Role::Reference, true) => String::new(),
        (_, false) => line.label.clone(),
    }
}
