//! Figures: labelled lines on axes.

mod drawing;
mod labels;
mod layout;
mod output;
mod scale;

pub use drawing::STYLES;
pub(crate) use layout::SMALL;

/// The colours and line styles of figures, light and dark.
pub(crate) const THEME: &str = include_str!("theme.css");

/// A figure's content, independent of its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Short title.
    pub title: String,
    /// How to read the figure, or its main result; may be empty.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, at the left.
    pub y: Axis,
    /// A second set of labels for the vertical axis, at the right.
    pub side: Option<SideAxis>,
    /// The lines in drawing order, the last on top. The first six data lines differ in style.
    pub lines: Vec<Line>,
}

/// Mapping of values to an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; values of 0 and below are at the lower end.
    Log,
}

/// An axis. Data beyond it is clipped at the sides and drawn along the top or bottom edge.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The quantity that the axis shows.
    pub label: String,
    /// The unit of the quantity; empty if it has no unit.
    pub unit: String,
    /// Mapping of values to the axis.
    pub scale: Scale,
    /// The lower end; taken from the data if `None`.
    pub min: Option<f64>,
    /// The upper end; taken from the data if `None`.
    pub max: Option<f64>,
    /// Names at 0, 1 and so on instead of numbers; the axis covers only these.
    pub names: Vec<String>,
}

impl Axis {
    /// A linear axis over all the data.
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            label: label.into(),
            unit: unit.into(),
            scale: Scale::Linear,
            min: None,
            max: None,
            names: Vec::new(),
        }
    }

    /// An axis of named items, from its lower end up.
    pub fn names(label: impl Into<String>, names: Vec<String>) -> Self {
        Self {
            names,
            ..Self::linear(label, "")
        }
    }

    /// A log axis over all the data that is greater than 0.
    pub fn log(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            scale: Scale::Log,
            ..Self::linear(label, unit)
        }
    }

    fn title(&self) -> String {
        match self.unit.as_str() {
            "" => self.label.clone(),
            unit => format!("{}, {unit}", self.label),
        }
    }
}

/// Labels at the right of a figure for values of its vertical axis.
#[derive(Debug, Clone, PartialEq)]
pub struct SideAxis {
    /// Meaning of the labels.
    pub label: String,
    /// Values and their labels, the most important first. Labels without space are dropped.
    pub ticks: Vec<(f64, String)>,
}

/// Height over which dots spread, as a share of the distance between two heights.
const DOTS_HEIGHT: f64 = 0.56;

/// A line of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The line's name, written next to it. Long names are truncated; in a crowded figure the last
    /// lines have no label.
    pub label: String,
    /// Points by increasing x. Infinities reach the edge of the figure; NaN is dropped.
    pub points: Vec<(f64, f64)>,
    /// How the points are joined.
    pub shape: Shape,
    /// Data or reference.
    pub role: Role,
    /// One of the six styles, from 0, so that the same item looks the same in several figures.
    /// `None` takes a free style.
    pub style: Option<usize>,
}

/// How the points of a [`Line`] are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A point's y holds until the x of the next.
    Step,
    /// Points are joined by straight lines.
    Straight,
    /// Points are joined by straight lines, and each is marked by a dot.
    Marked,
    /// Separate dots; the axis shows their name.
    Dots,
    /// The box plot of five points: a line from the first to the second, a box to the fourth,
    /// divided by the third, and a line to the last.
    Box,
}

/// Role of a [`Line`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A measurement, in its own style.
    Data,
    /// A reference for comparison, thin and dashed.
    Reference,
}

impl Line {
    /// A step curve of data.
    pub fn step(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            label: label.into(),
            points,
            shape: Shape::Step,
            role: Role::Data,
            style: None,
        }
    }

    /// Data joined by straight lines.
    pub fn straight(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            shape: Shape::Straight,
            ..Self::step(label, points)
        }
    }

    /// Data joined by straight lines, with dots at the measured points.
    pub fn marked(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            shape: Shape::Marked,
            ..Self::step(label, points)
        }
    }

    /// One dot per value, spread around a height so that all are visible.
    pub fn dots(label: impl Into<String>, values: &[f64], y: f64) -> Self {
        // The multiplier shares no divisor with 9, so neighbours do not line up.
        let above = |index: usize| ((index * 4 % 9) as f64 / 8.0 - 0.5) * DOTS_HEIGHT;
        let points = values.iter().enumerate();
        Self {
            shape: Shape::Dots,
            ..Self::step(
                label,
                points.map(|(index, x)| (*x, y + above(index))).collect(),
            )
        }
    }

    /// The box plot of five ascending values at a height, such as the 5th, 25th, 50th, 75th and
    /// 95th percentile.
    pub fn box_of(label: impl Into<String>, values: [f64; 5], y: f64) -> Self {
        Self {
            shape: Shape::Box,
            ..Self::step(label, values.map(|x| (x, y)).to_vec())
        }
    }

    /// A vertical reference line over the height of the figure.
    pub fn vertical(label: impl Into<String>, x: f64) -> Self {
        Self::straight(label, vec![(x, f64::NEG_INFINITY), (x, f64::INFINITY)]).reference()
    }

    /// The line with a style of the theme.
    #[must_use]
    pub fn styled(self, style: Option<usize>) -> Self {
        Self { style, ..self }
    }

    /// The line as a reference line.
    pub fn reference(self) -> Self {
        Self {
            role: Role::Reference,
            ..self
        }
    }
}

/// Kinds of streams; each has the same style in all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamKind {
    /// Thin or comparable, and not bundled.
    Plain,
    /// Bundled.
    Bundled,
    /// Greedy.
    Greedy,
}

impl StreamKind {
    /// The style of lines for this kind of stream.
    #[must_use]
    pub fn style(self) -> usize {
        self as usize
    }
}
