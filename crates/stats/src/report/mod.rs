//! Tables, figures and the single-file HTML page.
//!
//! * [`number`]: formats every number for people.
//! * [`SortedSamples`]: quantiles, CDF and complementary CDF of samples.
//! * [`Table`]: for the terminal, HTML and Markdown.
//! * [`Figure`]: lines on axes, as SVG.
//! * [`Choice`]: a set of figures of which a reader shows one.
//! * [`csv_field`]: a field of a CSV file.
//! * [`Page`]: one HTML file without external resources.
//!
//! All output is deterministic: equal input gives equal bytes.

mod distribution;
mod figure;
mod markup;
pub mod number;
mod page;
mod table;

pub use distribution::SortedSamples;
pub use figure::{Axis, Figure, Line, Role, STYLES, Scale, Shape, SideAxis, StreamKind};
pub use page::{Card, Choice, Fact, Page, Part};
pub use table::{Align, Column, Table, display_width};

/// A text as one field of comma-separated values (RFC 4180).
#[must_use]
pub fn csv_field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
