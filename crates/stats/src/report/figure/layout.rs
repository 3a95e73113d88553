//! Layout of a figure in a wide and a narrow drawing; rectangles, distances and text width.

use super::scale::Domain;
use super::{Figure, Scale};

/// Size and font sizes of a drawing, in view-box units: CSS pixels if not scaled.
#[derive(Clone, Copy)]
pub(crate) struct DrawingFormat {
    /// Distinguishes a figure's drawings in class names and identifiers.
    pub(crate) name: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Font size of ticks and axis titles; 0: none are drawn.
    pub(super) small: f64,
    /// Font size of line labels; 0: none are drawn.
    pub(super) label: f64,
}

/// For a page or a computer screen.
pub(crate) const WIDE: DrawingFormat = DrawingFormat {
    name: "wide",
    width: 900.0,
    height: 470.0,
    small: 13.5,
    label: 15.0,
};

/// For a phone.
pub(crate) const NARROW: DrawingFormat = DrawingFormat {
    name: "narrow",
    width: 390.0,
    height: 400.0,
    small: 12.5,
    label: 13.5,
};

/// For an overview: lines only, without text.
pub(crate) const SMALL: DrawingFormat = DrawingFormat {
    name: "small",
    width: 180.0,
    height: 100.0,
    small: 0.0,
    label: 0.0,
};

/// A figure's axes laid out in a format.
pub(super) struct Layout {
    pub(super) format: DrawingFormat,
    pub(super) plot: Area,
    pub(super) x: Domain,
    pub(super) y: Domain,
}

impl Layout {
    pub(super) fn new(figure: &Figure, format: DrawingFormat) -> Self {
        let points = || figure.lines.iter().flat_map(|line| &line.points);
        let x_ticks = (format.width / 80.0) as usize;
        let y_ticks = match figure.y.scale {
            Scale::Linear => 5,
            Scale::Log => 8,
        };
        let y = Domain::new(&figure.y, points().map(|p| p.1), y_ticks);
        let x = Domain::new(&figure.x, points().map(|p| p.0), x_ticks);

        let widest = |labels: &mut dyn Iterator<Item = String>| {
            labels
                .map(|l| text_width(&l, format.small))
                .fold(0.0, f64::max)
        };
        let left = widest(&mut y.ticks.iter().map(|t| y.label(*t)));
        let side = figure.side.iter().flat_map(|side| &side.ticks);
        let right = widest(&mut side.map(|(_, label)| label.clone()));
        let end = widest(&mut x.ticks.iter().map(|t| x.label(*t)));
        let plot = Area {
            left: left.min(format.width / 3.0) + 12.0,
            top: format.small * 2.4,
            right: format.width - (right + 12.0).max(end / 2.0 + 2.0).min(format.width / 3.0),
            bottom: format.height - format.small * 3.4,
        };
        Self { format, plot, x, y }
    }

    /// The plot's left, top, right and bottom as coordinates.
    pub(super) fn edges(&self) -> [String; 4] {
        let plot = self.plot;
        [plot.left, plot.top, plot.right, plot.bottom].map(coordinate)
    }

    pub(super) fn px(&self, x: f64) -> f64 {
        self.plot.left + self.x.position(x) * self.plot.width()
    }

    pub(super) fn py(&self, y: f64) -> f64 {
        self.plot.bottom - self.y.position(y).clamp(0.0, 1.0) * self.plot.height()
    }
}

pub(super) type Point = (f64, f64);

/// A rectangle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    /// The smallest rectangle that holds both points.
    pub(super) fn around(a: Point, b: Point) -> Self {
        Self {
            left: a.0.min(b.0),
            top: a.1.min(b.1),
            right: a.0.max(b.0),
            bottom: a.1.max(b.1),
        }
    }

    pub(super) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(super) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(super) fn grown(&self, by: f64) -> Self {
        Self {
            left: self.left - by,
            top: self.top - by,
            right: self.right + by,
            bottom: self.bottom + by,
        }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.left <= other.right
            && other.left <= self.right
            && self.top <= other.bottom
            && other.top <= self.bottom
    }

    pub(super) fn holds(&self, inner: &Self) -> bool {
        self.left <= inner.left
            && inner.right <= self.right
            && self.top <= inner.top
            && inner.bottom <= self.bottom
    }

    /// The point of the rectangle that is nearest to `p`.
    pub(super) fn nearest(&self, p: Point) -> Point {
        (
            p.0.clamp(self.left, self.right),
            p.1.clamp(self.top, self.bottom),
        )
    }

    /// Distance between the segment and the rectangle; 0 if they touch.
    pub(super) fn distance(&self, a: Point, b: Point) -> f64 {
        if self.crossed_by(a, b) {
            return 0.0;
        }
        let corners = [
            (self.left, self.top),
            (self.right, self.top),
            (self.left, self.bottom),
            (self.right, self.bottom),
        ];
        let ends = [a, b].map(|p| length(p, self.nearest(p)));
        let corners = corners.map(|c| length(c, nearest_on(a, b, c)));
        ends.into_iter().chain(corners).fold(f64::MAX, f64::min)
    }

    /// Whether any part of the segment is inside: it is clipped at the four sides.
    fn crossed_by(&self, a: Point, b: Point) -> bool {
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let sides = [
            (-dx, a.0 - self.left),
            (dx, self.right - a.0),
            (-dy, a.1 - self.top),
            (dy, self.bottom - a.1),
        ];
        let (mut from, mut to) = (0.0_f64, 1.0_f64);
        for (direction, room) in sides {
            if direction == 0.0 && room < 0.0 {
                return false;
            } else if direction < 0.0 {
                from = from.max(room / direction);
            } else if direction > 0.0 {
                to = to.min(room / direction);
            }
        }
        from <= to
    }
}

pub(super) fn length(a: Point, b: Point) -> f64 {
    let (dx, dy) = (a.0 - b.0, a.1 - b.1);
    // `hypot` is several times slower; its range is not needed here.
    (dx * dx + dy * dy).sqrt()
}

fn nearest_on(a: Point, b: Point, p: Point) -> Point {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let square = dx * dx + dy * dy;
    let along = match square > 0.0 {
        true => (((p.0 - a.0) * dx + (p.1 - a.1) * dy) / square).clamp(0.0, 1.0),
        false => 0.0,
    };
    (a.0 + along * dx, a.1 + along * dy)
}

/// Upper estimate of the width of bold text, because the reader's font is unknown.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| advance(c) * size).sum()
}

fn advance(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | 'I' | '|' | '!' | '.' | ',' | ':' | ';' | '\'' | ' ' | '\u{a0}' => 0.33,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.98,
        'A'..='Z' => 0.74,
        '\u{1100}'.. => match c {
            '\u{2000}'..='\u{2bff}' => 0.75,
            _ => 1.05,
        },
        _ => 0.62,
    }
}

/// The text, truncated to the width with an ellipsis.
pub(super) fn fit(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.into();
    }
    let mut cut = String::new();
    let mut used = advance('…') * size;
    for c in text.chars() {
        used += advance(c) * size;
        if used > width {
            break;
        }
        cut.push(c);
    }
    cut + "…"
}

/// A coordinate, to a tenth of a unit.
pub(super) fn coordinate(v: f64) -> String {
    ((v * 10.0).round() / 10.0).to_string()
}
