//! The grid, the ticks and the titles of a figure's axes.

use super::geometry::{fit, text_width};
use super::layout::Layout;
use super::svg::{place, text_at};
use super::{Figure, SideAxis};
use crate::report::markup::Markup;

/// The length of the ticks of the side axis, and their labels' distance from the plot.
const TICK: f64 = 4.0;
const GAP: f64 = 7.0;
/// Between the rows of a label, in sizes of its type.
const ROW: f64 = 1.1;

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
    let room = plot.left - GAP - 2.0;
    for tick in &layout.y.ticks {
        let rows = wrapped(&layout.y.label(*tick), size, room);
        let above = (rows.len() - 1) as f64 * ROW / 2.0;
        for (place, row) in rows.iter().enumerate() {
            let down = (place as f64 * ROW - above + 0.35) * size;
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

/// The text in one row, or in two where that is too wide; what has no room there is cut.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_has_two_rows_and_is_cut_if_that_does_not_do() {
        assert_eq!(wrapped("sfq", 10.0, 60.0), ["sfq"]);
        let rows = wrapped("ITT 100 ms, one BDP", 10.0, 75.0);
        assert_eq!(rows, ["ITT 100 ms,", "one BDP"]);
        let cut = wrapped("unreasonably-long-names and-more-of-that-kind", 10.0, 60.0);
        assert_eq!(cut.len(), 2);
        assert!(cut.iter().all(|row| row.ends_with('…')), "{cut:?}");
        assert!(wrapped("unbroken-and-much-too-long", 10.0, 60.0)[0].ends_with('…'));
    }
}
