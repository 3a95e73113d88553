//! Packet traces of TCP connections, taken at one end or at both.
//!
//! [`input`] reads them. [`Analysis`] takes the [`Packet`]s of one trace and tells an
//! [`Observer`] what they mean: each packet sent, each ACK, each [`Range`] of bytes with all its
//! copies, each [`Connection`]. [`pair::analyse`] does so with two traces, and tells what became
//! of each packet between them. [`measure::Meter`] is the observer that measures all of it.

mod connection;
mod event;
mod fetch;
mod fingerprint;
mod flows;
#[cfg(test)]
mod flows_property;
#[cfg(test)]
mod flows_tests;
pub mod input;
pub mod measure;
mod packet;
pub mod pair;
#[cfg(test)]
mod pair_tests;
mod period;
mod ranges;
#[cfg(test)]
mod script;
mod sequence;
mod since;

pub use connection::{
    Connection, Counts, Direction, HalfConnection, Handshake, Outcome, Side, Start,
};
pub use event::{Acked, Ahead, Arrived, Class, Observer, Sent};
pub use flows::Analysis;
pub use packet::{Endpoint, Flags, Packet, SackBlocks, Timestamps};
pub use period::{Period, When};
pub use ranges::{Bringer, Copy, CopyKind, Delivery, Range, Readable};
