//! Packet traces of TCP connections, taken at one end or at both.
//!
//! [`input`] reads them. [`analyse`] processes the [`Packet`]s of one trace and reports to an
//! [`Observer`]: each packet sent, each ACK, each [`Range`] of bytes with its copies, each
//! [`Connection`]. [`pair::analyse`] does the same with two traces and also reports each packet's
//! disposition. [`measure::Meter`] is the observer that measures all of it.

/// Adds each listed field of the second value to the same field of the first.
macro_rules! add_fields {
    ($own:ident += $other:ident: $($field:ident),+) => {
        $($own.$field += $other.$field;)+
    };
}

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
mod source;

pub use connection::{
    Connection, ConnectionOutcome, DirectionCounts, HalfConnection, Handshake, Start,
};
pub use event::{
    Arrival, ArrivedPacket, Class, ClockOffset, DeliveryStats, Direction, Disposition,
    PathDirection, ReceivedAck, SentPacket, Side,
};
pub use flows::{Analysis, analyse};
pub use observer::{Observer, Period, TimePoint};
pub use packet::{Endpoint, Flags, Packet, SackBlocks, Timestamps};
pub use ranges::{CopyKind, Delivery, FirstArrival, Range, ReadTime, SentCopy};

/// Prefetches a value while earlier packets are processed. In a trace of many connections, a
/// connection has left the cache by the time of its next packet.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let start = std::ptr::from_ref(value).cast::<i8>();
    for line in 0..size_of::<T>().div_ceil(64) {
        // SAFETY: a prefetch only affects caches and ignores unmapped addresses.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line * 64)) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn prefetch<T>(_: &T) {}
