//! What became of each byte of a stream, in ranges of bytes that shared one fate.

mod acknowledge;
mod deliver;
mod range;
mod tracker;

pub use range::{Bringer, Copy, CopyKind, Delivery, Range, Readable};
pub(crate) use tracker::Tracker;
