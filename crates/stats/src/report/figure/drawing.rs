//! Draws a figure: grid, ticks, axis titles, lines and labels.

use super::labels::{self, LabelledLine};
use super::layout::{Layout, Point, coordinate, fit, text_width};
use super::{Figure, Line, Role, Shape, SideAxis};
use crate::report::markup::Markup;

/// Length of the side axis's ticks, and the gap between labels and plot.
const TICK: f64 = 4.0;
const GAP: f64 = 7.0;
/// Distance between the rows of a label, in font sizes.
const ROW: f64 = 1.1;

pub(super) fn draw_axes(out: &mut Markup, figure: &Figure, layout: &Layout) {
    let [left, top, right, bottom] = layout.edges();
    let rows = layout.y.ticks.iter().map(|t| coordinate(layout.py(*t)));
    let columns = layout.x.ticks.iter().map(|t| coordinate(layout.px(*t)));
    let grid: String = rows
        .map(|y| format!("M{left} {y}H{right}"))
        .chain(columns.map(|x| format!("M{x} {top}V{bottom}")))
        .collect();
    let frame = format!("M{left} {top}V{bottom}H{right}");
    out.raw("\n")
        .empty("path", &[("class", "grid"), ("d", &grid)]);
    out.empty("path", &[("class", "frame"), ("d", &frame)]);

    let (plot, size) = (layout.plot, layout.format.small);
    if size == 0.0 {
        return;
    }
    let room = plot.left - GAP - 2.0;
    for tick in &layout.y.ticks {
        let rows = wrapped(&layout.y.label(*tick), size, room);
        let above = (rows.len() - 1) as f64 * ROW / 2.0;
        for (index, row) in rows.iter().enumerate() {
            let down = (index as f64 * ROW - above + 0.35) * size;
            let at = (plot.left - GAP, layout.py(*tick) + down);
            write(out, layout, at, "end", row);
        }
    }
    for tick in &layout.x.ticks {
        let at = (layout.px(*tick), plot.bottom + size * 1.4);
        write(out, layout, at, "middle", &layout.x.label(*tick));
    }
    let above = plot.top - size * 0.95;
    write(out, layout, (2.0, above), "start", &figure.y.title());
    let middle = (plot.left + plot.right) / 2.0;
    let below = layout.format.height - size * 0.5;
    write(out, layout, (middle, below), "middle", &figure.x.title());
    if let Some(side) = &figure.side {
        let at = (layout.format.width - 2.0, above);
        write(out, layout, at, "end", &side.label);
        draw_side(out, side, layout);
    }
}

/// The text in one row, or in two if it is too wide. Rows that still do not fit are truncated.
fn wrapped(text: &str, size: f64, room: f64) -> Vec<String> {
    let width = |text: &str| text_width(text, size);
    if width(text) <= room {
        return vec![text.to_owned()];
    }
    let breaks = text.match_indices(' ').map(|(at, _)| text.split_at(at));
    let widest = |(first, second): &(&str, &str)| width(first).max(width(second.trim_start()));
    let best = breaks.min_by(|one, other| widest(one).total_cmp(&widest(other)));
    let (first, second) = best.unwrap_or((text, ""));
    let rows = [first, second.trim_start()].into_iter();
    let rows = rows.filter(|row| !row.is_empty());
    rows.map(|row| fit(row, size, room)).collect()
}

fn draw_side(out: &mut Markup, side: &SideAxis, layout: &Layout) {
    let (right, size) = (layout.plot.right, layout.format.small);
    let mut taken: Vec<f64> = Vec::new();
    let mut ticks = String::new();
    for (value, label) in &side.ticks {
        let y = layout.py(*value);
        let inside = (0.0..=1.0).contains(&layout.y.position(*value));
        if inside && taken.iter().all(|t| (t - y).abs() > size * 1.2) {
            ticks += &format!("M{} {}h{TICK}", coordinate(right), coordinate(y));
            let at = (right + GAP, y + size * 0.35);
            write(out, layout, at, "start", label);
            taken.push(y);
        }
    }
    if !ticks.is_empty() {
        out.empty("path", &[("class", "frame"), ("d", &ticks)]);
    }
}

fn write(out: &mut Markup, layout: &Layout, at: (f64, f64), anchor: &str, text: &str) {
    text_at(out, "axis", at, layout.format.small, anchor, text);
}

/// Number of line styles in the theme. Further styles repeat the colours with another dash pattern.
pub const STYLES: usize = 6;

pub(super) fn draw_lines(out: &mut Markup, figure: &Figure, layout: &Layout) {
    let (named, lines): (Vec<&Line>, Vec<&Line>) = figure
        .lines
        .iter()
        .partition(|line| matches!(line.shape, Shape::Box | Shape::Dots));
    // The axis shows their names.
    for line in named {
        let (class, d) = match line.shape {
            Shape::Box => ("box", boxed(line, layout)),
            _ => ("dots", Some(dots(line, layout))),
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
        let path = trace(line, layout);
        if !path.is_empty() {
            let attributes = [
                ("class", &*format!("line {class}")),
                ("d", &path_data(&path)),
                ("data-label", &line.label),
            ];
            out.raw("\n").empty("path", &attributes);
        }
        if line.shape == Shape::Marked {
            let class = format!("dots {class}");
            let d = dots(line, layout);
            out.empty("path", &[("class", &class), ("d", &d)]);
        }
        // The label of a single point is placed like that of a line.
        let path = match path[..] {
            [point] => vec![point; 2],
            _ => path,
        };
        labelled.push(LabelledLine {
            label: label(line, path.is_empty()),
            size: match line.role {
                Role::Data => layout.format.label,
                Role::Reference => layout.format.small,
            },
            path,
        });
    }
    if figure.lines.is_empty() {
        labelled.push(LabelledLine {
            label: "no data".into(),
            size: layout.format.label,
            path: Vec::new(),
        });
    }
    if layout.format.label == 0.0 {
        return;
    }
    let labels = labels::place_all(&labelled, layout.plot);
    let classes = classes.iter().map(String::as_str).chain(["reference"]);
    for ((label, line), class) in labels.iter().zip(&labelled).zip(classes) {
        let Some(label) = label else { continue };
        if let Some((from, to)) = label.leader {
            let [x, y, to_x, to_y] = [from.0, from.1, to.0, to.1].map(coordinate);
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

/// Assigns each line's style: its own, or the next free one. All reference lines share one style.
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

/// The corners of the line within the plot, to a tenth of a unit. Empty if the line is outside.
pub(super) fn trace(line: &Line, layout: &Layout) -> Vec<Point> {
    let mut corners: Vec<Point> = Vec::with_capacity(2 * line.points.len());
    for &(x, y) in line
        .points
        .iter()
        .filter(|p| !p.0.is_nan() && !p.1.is_nan())
    {
        let next = (layout.px(x), layout.py(y));
        if let (Shape::Step, Some(&(_, level))) = (line.shape, corners.last()) {
            corners.push((next.0, level));
        }
        corners.push(next);
    }
    let cut = cut(&corners, layout.plot.left, layout.plot.right);
    simplify(cut)
}

/// Half of a box's height, as a share of the distance between two boxes.
const HALF: f64 = 0.3;

/// The box of five points as SVG path data; `None` unless there are five points without NaN.
pub(super) fn boxed(line: &Line, layout: &Layout) -> Option<String> {
    let &[first, second, middle, fourth, last] = &line.points[..] else {
        return None;
    };
    if line.points.iter().any(|(x, y)| x.is_nan() || y.is_nan()) {
        return None;
    }
    let across =
        |(x, _): (f64, f64)| coordinate(layout.px(x).clamp(layout.plot.left, layout.plot.right));
    let [first, second, middle, fourth, last] = [first, second, middle, fourth, last].map(across);
    let height = line.points[0].1;
    let [low, at, high] = [height - HALF, height, height + HALF].map(|y| coordinate(layout.py(y)));
    Some(format!(
        "M{first} {at}H{second}M{second} {low}V{high}H{fourth}V{low}ZM{middle} {low}V{high}\
         M{fourth} {at}H{last}"
    ))
}

/// The points within the plot as dots: zero-length paths with round caps.
pub(super) fn dots(line: &Line, layout: &Layout) -> String {
    let points = line.points.iter();
    let points = points.filter(|(x, y)| !x.is_nan() && !y.is_nan());
    let dots = points.filter_map(|(x, y)| {
        let inside = (0.0..=1.0).contains(&layout.x.position(*x));
        inside.then(|| {
            format!(
                "M{} {}h0",
                coordinate(layout.px(*x)),
                coordinate(layout.py(*y))
            )
        })
    });
    dots.collect()
}

/// The corners as SVG path data.
pub(super) fn path_data(corners: &[Point]) -> String {
    let mut out = String::new();
    let mut previous: Option<Point> = None;
    for &(x, y) in corners {
        out += &match previous {
            None => format!("M{x} {y}"),
            Some((_, level)) if level == y => format!("H{x}"),
            Some((at, _)) if at == x => format!("V{y}"),
            Some(_) => format!("L{x} {y}"),
        };
        previous = Some((x, y));
    }
    out
}

/// Clips a line that runs from left to right to the area between two verticals.
fn cut(corners: &[Point], left: f64, right: f64) -> Vec<Point> {
    let inside = |p: Point| (left - 0.01..=right + 0.01).contains(&p.0);
    let mut out = Vec::with_capacity(corners.len());
    if let &[only] = corners
        && inside(only)
    {
        out.push(only);
    }
    for pair in corners.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        let at = |x: f64| (x, a.1 + (b.1 - a.1) * (x - a.0) / (b.0 - a.0));
        if b.0 < left || a.0 > right || (a.0 == b.0 && !inside(a)) {
            continue;
        }
        out.push(if a.0 < left { at(left) } else { a });
        out.push(if b.0 > right { at(right) } else { b });
    }
    out
}

fn simplify(corners: Vec<Point>) -> Vec<Point> {
    let round = |v: f64| (v * 10.0).round() / 10.0;
    let mut out: Vec<Point> = Vec::with_capacity(corners.len());
    for (x, y) in corners {
        let next = (round(x), round(y));
        if out.last() == Some(&next) {
            continue;
        }
        if let &[.., a, b] = out.as_slice()
            && ((a.0 == b.0 && b.0 == next.0) || (a.1 == b.1 && b.1 == next.1))
        {
            out.pop();
        }
        out.push(next);
    }
    out
}

fn text_at(out: &mut Markup, class: &str, at: (f64, f64), size: f64, anchor: &str, text: &str) {
    let attributes = [
        ("class", class),
        ("x", &coordinate(at.0)),
        ("y", &coordinate(at.1)),
        ("font-size", &size.to_string()),
        ("text-anchor", anchor),
    ];
    out.raw("\n").element("text", &attributes, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_name_wraps_to_two_rows_then_is_truncated() {
        assert_eq!(wrapped("sfq", 10.0, 60.0), ["sfq"]);
        let rows = wrapped("ITT 100 ms, one BDP", 10.0, 75.0);
        assert_eq!(rows, ["ITT 100 ms,", "one BDP"]);
        let cut = wrapped("unreasonably-long-names and-more-of-that-kind", 10.0, 60.0);
        assert_eq!(cut.len(), 2);
        assert!(cut.iter().all(|row| row.ends_with('…')), "{cut:?}");
        assert!(wrapped("unbroken-and-much-too-long", 10.0, 60.0)[0].ends_with('…'));
    }
}
