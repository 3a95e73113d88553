//! The queue probe: what becomes of each packet that is offered to the queue of a device.
//!
//! A [`Recording`] watches the queueing discipline of one device, with all its children, by
//! eBPF programs on the kernel's tracepoints, and hands over a [`Packet`] for each one: when it
//! arrived and left, whether it was sent or dropped and why, and how long the queue was.

mod contract;
pub mod measure;
mod packet;
mod probe;
mod recording;

pub use packet::{Endpoints, Fate, Length, Packet};
pub use probe::Error;
pub use probe::Reasons;
pub use probe::Target;
pub use recording::Row;
pub use recording::{Event, Recording};
