//! A line as it runs through the drawing.

use super::geometry::Point;
use super::layout::Layout;
use super::svg::place;
use super::{Line, Shape};

/// The corners of the line within the plot, to a tenth of a unit. Empty if none of it is there.
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

/// Half of a box's height, of the distance between two heights.
const HALF: f64 = 0.3;

/// The box of five points as the data of an SVG path; `None` if there are not five, or one is NaN.
pub(super) fn boxed(line: &Line, layout: &Layout) -> Option<String> {
    let &[first, second, middle, fourth, last] = &line.points[..] else {
        return None;
    };
    if line.points.iter().any(|(x, y)| x.is_nan() || y.is_nan()) {
        return None;
    }
    let across =
        |(x, _): (f64, f64)| place(layout.px(x).clamp(layout.plot.left, layout.plot.right));
    let [first, second, middle, fourth, last] = [first, second, middle, fourth, last].map(across);
    let height = line.points[0].1;
    let [low, at, high] = [height - HALF, height, height + HALF].map(|y| place(layout.py(y)));
    Some(format!(
        "M{first} {at}H{second}M{second} {low}V{high}H{fourth}V{low}ZM{middle} {low}V{high}\
         M{fourth} {at}H{last}"
    ))
}

/// The points within the plot, each as a dot: a path that goes nowhere, and has round ends.
pub(super) fn dots(line: &Line, layout: &Layout) -> String {
    let points = line.points.iter();
    let points = points.filter(|(x, y)| !x.is_nan() && !y.is_nan());
    let dots = points.filter_map(|(x, y)| {
        let inside = (0.0..=1.0).contains(&layout.x.place(*x));
        inside.then(|| format!("M{} {}h0", place(layout.px(*x)), place(layout.py(*y))))
    });
    dots.collect()
}

/// The corners as the data of an SVG path.
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

/// The part of a line, which runs from left to right, between two verticals.
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
