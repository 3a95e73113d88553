//! The grid, the ticks and the titles of a figure's axes.

use super::layout::Layout;
use super::svg::{place, text_at};
use super::{Figure, SideAxis};
use crate::markup::Markup;

/// The length of the ticks of the side axis, and their labels' distance from the plot.
const TICK: f64 = 4.0;
const GAP: f64 = 7.0;

pub(super) fn draw(out: &mut Markup, figure: &Figure, layout: &Layout) {
    let [left, top, right, bottom] = layout.edges();
    let rows = layout.y.ticks.iter().map(|t| place(layout.py(*t)));
    let columns = layout.x.ticks.iter().map(|t| place(layout.px(*t)));
    let grid: String = rows
        .map(|y| format!("M{left} {y}H{right}"))
        .chain(columns.map(|x| format!("M{x} {top}V{bottom}")))
        .collect();
    let frame = format!("M{left} {top}V{bottom}H{right}");
    out.raw("\n")
        .empty("path", &[("class", "grid"), ("d", &grid)]);
    out.empty("path", &[("class", "frame"), ("d", &frame)]);

    let (plot, size) = (layout.plot, layout.format.small);
    for tick in &layout.y.ticks {
        let at = (plot.left - GAP, layout.py(*tick) + size * 0.35);
        write(out, layout, at, "end", &layout.y.label(*tick));
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

fn draw_side(out: &mut Markup, side: &SideAxis, layout: &Layout) {
    let (right, size) = (layout.plot.right, layout.format.small);
    let mut taken: Vec<f64> = Vec::new();
    let mut ticks = String::new();
    for (value, label) in &side.ticks {
        let y = layout.py(*value);
        let inside = (0.0..=1.0).contains(&layout.y.place(*value));
        if inside && taken.iter().all(|t| (t - y).abs() > size * 1.2) {
            ticks += &format!("M{} {}h{TICK}", place(right), place(y));
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
