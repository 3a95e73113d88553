//! Figures: lines on axes, every line labelled where it runs.

mod drawing;
mod labels;
mod layout;
mod output;
mod scale;

pub use drawing::STYLES;

/// The colours and line styles of figures, light and dark.
pub(crate) const THEME: &str = include_str!("theme.css");

/// A figure: what it shows, independent of its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What the figure shows, in a few words.
    pub title: String,
    /// How to read the figure, or what to see in it; may be empty.
    pub caption: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis, at the left.
    pub y: Axis,
    /// A second set of labels for the vertical axis, at the right.
    pub side: Option<SideAxis>,
    /// The lines, those drawn last on top. The first six lines of data differ in style.
    pub lines: Vec<Line>,
}

/// How values lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; values of 0 and below lie at the lower end.
    Log,
}

/// An axis. Data outside its range is cut off at the sides and drawn along the edge at the top
/// and bottom.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The quantity that the axis shows.
    pub label: String,
    /// The unit of the quantity; empty where there is none.
    pub unit: String,
    /// How values lie on the axis.
    pub scale: Scale,
    /// The lower end of the axis; from the data where it is not given.
    pub min: Option<f64>,
    /// The upper end of the axis; from the data where it is not given.
    pub max: Option<f64>,
    /// Names that stand at 0, 1 and so on in place of numbers; the axis has room for just these.
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

    /// An axis of things that have a name and no number, from its lower end on.
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
    /// What the labels are.
    pub label: String,
    /// Values and their labels, the most important first: one that has no room is left out.
    pub ticks: Vec<(f64, String)>,
}

/// How high dots spread, of the distance between two heights.
const DOTS_HEIGHT: f64 = 0.56;

/// A line of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The line's name, written beside it. Long ones are cut, and with more lines than the figure
    /// has room for, the last ones have none.
    pub label: String,
    /// Points by increasing x. Infinities reach the edge of the figure; NaN is left out.
    pub points: Vec<(f64, f64)>,
    /// How the points are joined.
    pub shape: Shape,
    /// What the line is.
    pub role: Role,
    /// Which of the six styles, from 0, a line of data has, so that the same thing looks the same
    /// in several figures; `None` for one that no other line of the figure asks for.
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
    /// Points are dots, which nothing joins; their name stands at the axis.
    Dots,
    /// Five points are the box of a distribution, which lies: a line from the first to the second,
    /// a box from there to the fourth, divided by the third, and a line to the last.
    Box,
}

/// What a [`Line`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A measurement, in a style of its own.
    Data,
    /// Something to compare with, thin and dashed.
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

    /// Data joined by straight lines, where just the points were measured.
    pub fn marked(label: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            shape: Shape::Marked,
            ..Self::step(label, points)
        }
    }

    /// A dot for each of these values about a height, so that all of them can be seen.
    pub fn dots(label: impl Into<String>, values: &[f64], y: f64) -> Self {
        // Steps that share no divisor with their number do not line up with neighbours.
        let above = |place: usize| ((place * 4 % 9) as f64 / 8.0 - 0.5) * DOTS_HEIGHT;
        let points = values.iter().enumerate();
        Self {
            shape: Shape::Dots,
            ..Self::step(
                label,
                points.map(|(place, x)| (*x, y + above(place))).collect(),
            )
        }
    }

    /// The box of a distribution at a height: of five values in ascending order, such as its 5th,
    /// 25th, 50th, 75th and 95th percentile.
    pub fn box_of(label: impl Into<String>, values: [f64; 5], y: f64) -> Self {
        Self {
            shape: Shape::Box,
            ..Self::step(label, values.map(|x| (x, y)).to_vec())
        }
    }

    /// A vertical line of reference over the height of the figure.
    pub fn vertical(label: impl Into<String>, x: f64) -> Self {
        Self::straight(label, vec![(x, f64::NEG_INFINITY), (x, f64::INFINITY)]).reference()
    }

    /// The line, in a style of the figures'.
    #[must_use]
    pub fn styled(self, style: Option<usize>) -> Self {
        Self { style, ..self }
    }

    /// The line, as one of reference.
    pub fn reference(self) -> Self {
        Self {
            role: Role::Reference,
            ..self
        }
    }
}

/// What streams are, which have a style of their own in all figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Thin, or as thin ones are, and not bundled.
    Plain,
    /// Bundled.
    Bundled,
    /// Greedy.
    Greedy,
}

impl Stream {
    /// The style of a figure's lines of such streams.
    #[must_use]
    pub fn style(self) -> usize {
        self as usize
    }
}
