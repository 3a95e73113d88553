//! Where the parts of a figure lie, in a wide and in a narrow drawing.

use super::geometry::{Area, text_width};
use super::scale::Domain;
use super::svg::place;
use super::{Figure, Scale};

/// A drawing's size and type, in the units of its view box: CSS pixels if shown unscaled.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// The format's name, which tells a figure's drawings apart in class names and identifiers.
    pub(crate) name: &'static str,
    pub(super) width: f64,
    pub(super) height: f64,
    /// Size of the type of ticks and titles of axes.
    pub(super) small: f64,
    /// Size of the type of labels of lines.
    pub(super) label: f64,
}

/// The format for a page or a screen of a computer.
pub(crate) const WIDE: Format = Format {
    name: "wide",
    width: 900.0,
    height: 470.0,
    small: 13.5,
    label: 15.0,
};

/// The format for a telephone.
pub(crate) const NARROW: Format = Format {
    name: "narrow",
    width: 390.0,
    height: 400.0,
    small: 12.5,
    label: 13.5,
};

/// A figure's axes laid out in a format.
pub(super) struct Layout {
    pub(super) format: Format,
    pub(super) plot: Area,
    pub(super) x: Domain,
    pub(super) y: Domain,
}

impl Layout {
    pub(super) fn new(figure: &Figure, format: Format) -> Self {
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
        [plot.left, plot.top, plot.right, plot.bottom].map(place)
    }

    pub(super) fn px(&self, x: f64) -> f64 {
        self.plot.left + self.x.place(x) * self.plot.width()
    }

    pub(super) fn py(&self, y: f64) -> f64 {
        self.plot.bottom - self.y.place(y).clamp(0.0, 1.0) * self.plot.height()
    }
}
