//! What packet traces and runs tell: results as summaries, figures and pages, the story of one
//! byte, and runs side by side.
//!
//! [`Traces`] are read once, by one observer: [`pillion_trace::measure::Meter`] measures them,
//! [`List`] lists their connections, [`Witness`] keeps what concerns one byte, [`writes`] what an
//! application wrote. [`Chosen`] tells an observer of some connections alone. A [`Summary`] puts
//! results into words and tables, and [`report`] into a page. [`runs`] compares what came of an
//! experiment. Nothing is printed here.

mod choice;
mod error;
mod explain;
mod list;
pub mod people;
pub mod report;
pub mod reproduction;
pub mod runs;
mod summary;
mod traces;
mod unread;
pub mod writes;

pub use choice::{Choice, Chosen};
pub use error::{ExplainError, OpenError};
pub use explain::{
    Arrived, Copied, Event, Seen, SequenceNumber, Story, Target, TargetError, Waited, What, Witness,
};
pub use list::{List, Listed, ListedDirection};
pub use summary::{Summary, outcome};
pub use traces::{Observed, Trace, Traces};
pub use unread::unread;
