//! Tables, figures and the one-file HTML page.
//!
//! * [`number`]: every number for people is formatted there.
//! * [`Distribution`]: samples to quantiles, CDF and complementary CDF.
//! * [`Table`]: for the terminal and for HTML.
//! * [`Figure`]: lines on axes, as SVG.
//! * [`Choice`]: figures in one place of a page, of which a reader chooses one.
//! * [`csv`]: fields of files for other tools.
//! * [`Page`]: one HTML file that needs nothing else, not even a network.
//!
//! All output is deterministic: the same input gives the same bytes.

mod choice;
pub mod csv;
mod distribution;
mod figure;
mod markup;
pub mod number;
mod page;
mod table;

pub use choice::Choice;
pub use distribution::Distribution;
pub use figure::{Axis, Figure, Line, Role, STYLES, Scale, Shape, SideAxis, Stream};
pub use page::{Fact, Page, Part};
pub use table::{Align, Column, Table, columns_of};
