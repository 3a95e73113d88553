//! The queue probe: what becomes of each packet that is offered to the queue of a device.
//!
//! A [`Recording`] watches the queueing discipline of one device, with all its children, by
//! eBPF programs on the kernel's tracepoints, and hands over a [`Packet`] for each one: when it
//! arrived and left, whether it was sent or dropped and why, and how long the queue was.

pub mod measure;
mod packet;
mod probe;
mod recording;

pub use packet::{Endpoints, Fate, Length, Packet};
pub use probe::{Error, Reasons, Target};
pub use recording::{Event, Recording, Row};

/// The Rust side of `bpf/queue/queue_probe.bpf.c`, generated from the compiled programs' BTF: the
/// structs shared with C are defined once, in `bpf/queue/queue.h`.
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code, unsafe_op_in_unsafe_fn)]
mod contract {
    include!(concat!(env!("OUT_DIR"), "/queue_probe.skel.rs"));
}
