//! What packet traces and runs tell: results as summaries, figures and pages, the story of one
//! byte, and runs side by side.
//!
//! [`Traces`] are read once, by one observer: [`pillion_trace::measure::Meter`] measures them,
//! [`List`] lists their connections, [`Witness`] keeps what concerns one byte, [`writes`] what an
//! application wrote. [`Chosen`] tells an observer of some connections alone. A [`Summary`] puts
//! results into words and tables, and [`report`] into a page. [`runs`] compares what came of an
//! experiment. Nothing is printed here.

mod connections;
mod explain;
pub mod people;
pub mod report;
pub mod reproduction;
pub mod runs;
mod summary;
mod traces;
pub mod writes;

pub use connections::{Choice, Chosen, List, Listed, ListedDirection};
pub use explain::{
    Arrived, Copied, Event, Seen, SequenceNumber, Story, Target, TargetError, Waited, What, Witness,
};
pub use summary::{Summary, outcome};
pub use traces::{ExplainError, Observed, OpenError, Trace, Traces, unread};
