//! Packet traces of TCP connections, taken at one end or at both.
//!
//! [`input`] reads them. [`Analysis`] takes the [`Packet`]s of one trace and tells an
//! [`Observer`] what they mean: each packet sent, each ACK, each [`Range`] of bytes with all its
//! copies, each [`Connection`]. [`pair::analyse`] does so with two traces, and tells what became
//! of each packet between them. [`measure::Meter`] is the observer that measures all of it.

mod connection;
mod event;
mod flows;
#[cfg(test)]
mod flows_tests;
pub mod input;
mod link;
pub mod measure;
mod observer;
mod packet;
pub mod pair;
#[cfg(test)]
mod pair_tests;
#[cfg(test)]
mod property;
mod ranges;
#[cfg(test)]
mod script;

pub use connection::{Connection, Counts, HalfConnection, Handshake, Outcome, Start};
pub use event::{
    Acked, Ahead, Arrival, Arrived, Class, Direction, Fate, Passage, PathDirection, Sent, Side,
};
pub use flows::Analysis;
pub use observer::{Observer, Period, When};
pub use packet::{Endpoint, Flags, Packet, SackBlocks, Timestamps};
pub use ranges::{Bringer, Copy, CopyKind, Delivery, Range, Readable};

/// Has the processor fetch something while it is busy with what comes before: a trace of many
/// connections has each of them in memory by the time of its next packet, and no longer in a cache.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch<T>(what: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let begin = std::ptr::from_ref(what).cast::<i8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        // SAFETY: a prefetch changes nothing but caches, and ignores addresses that are not mapped.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(begin.wrapping_add(line * 64)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch<T>(_: &T) {}
