//! The analysis of packet traces and lab runs. It produces summaries, figures, HTML pages,
//! histories of single bytes and comparisons of runs.
//!
//! [`Traces`] are read once, by one observer. [`pillion_trace::measure::Meter`] measures them,
//! [`ConnectionList`] lists connections, [`ByteObserver`] records the history of a byte, and
//! [`writes`] restores an application's writes. [`FilteredObserver`] restricts an observer to some
//! connections. A [`Summary`] formats results as text and tables, and [`report`] as a page.
//! [`runs`] compares the runs of an experiment. No function here prints.

mod connections;
mod explain;
pub mod people;
pub mod report;
pub mod reproduction;
pub mod runs;
mod summary;
mod traces;
pub mod writes;

pub use connections::{
    ConnectionFilter, ConnectionList, FilteredObserver, ListedConnection, ListedDirection,
};
pub use explain::{
    BlockedRange, ByteObserver, CopyReason, Event, EventKind, PacketDisposition, SequenceNumber,
    Target, TargetError, Timeline, TraceSide,
};
pub use summary::{Summary, outcome};
pub use traces::{ExplainError, Observation, OpenError, Trace, Traces, unread_packet_notes};
