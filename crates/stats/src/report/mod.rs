//! Tables, figures and the one-file HTML page.
//!
//! * [`number`]: every number for people is formatted there.
//! * [`Distribution`]: samples to quantiles, CDF and complementary CDF.
//! * [`Table`]: for the terminal and for HTML.
//! * [`Figure`]: lines on axes, as SVG.
//! * [`Choice`]: figures in one place of a page, of which a reader chooses one.
//! * [`csv_field`]: a field of a file for other tools.
//! * [`Page`]: one HTML file that needs nothing else, not even a network.
//!
//! All output is deterministic: the same input gives the same bytes.

mod distribution;
mod figure;
mod markup;
pub mod number;
mod page;
mod table;

pub use distribution::Distribution;
pub use figure::{Axis, Figure, Line, Role, STYLES, Scale, Shape, SideAxis, Stream};
pub use page::{Choice, Fact, Page, Part};
pub use table::{Align, Column, Table, columns_of};

/// A text as one field of comma-separated values (RFC 4180).
#[must_use]
pub fn csv_field(text: &str) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
