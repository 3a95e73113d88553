//! The queue probe: records the disposition of each packet offered to a device's queue.
//!
//! A [`Recording`] observes the queueing discipline of one device, with all its children, by eBPF
//! programs on the kernel's tracepoints. For each packet, it returns a [`Packet`]: times of arrival
//! and departure, disposition, reason of a drop, and queue length.

pub mod measure;
mod packet;
mod probe;
mod recording;

pub use packet::{Disposition, Endpoints, Length, Packet};
pub use probe::{Error, Reasons, Target};
pub use recording::{Event, Recording, Row};

/// The Rust side of `bpf/queue/queue_probe.bpf.c`, generated from the compiled programs' BTF.
/// `bpf/queue/queue.h` defines the structs shared with C.
#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks)]
#[allow(clippy::cast_lossless, clippy::semicolon_if_nothing_returned)]
#[allow(dead_code, unsafe_op_in_unsafe_fn)]
mod contract {
    include!(concat!(env!("OUT_DIR"), "/queue_probe.skel.rs"));
}
