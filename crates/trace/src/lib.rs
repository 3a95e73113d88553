//! Packet traces of TCP connections, taken at one end or at both.

pub mod input;
mod packet;

pub use packet::{Endpoint, Flags, Packet, SackBlocks, Timestamps};
