//! The story of one byte range.

mod event;
mod story;
mod target;

pub use event::{Arrived, Copied, Event, Seen, What};
pub use story::{Story, Waited, Witness};
pub use target::{SequenceNumber, Target, TargetError};
