//! Samples of TCP sockets over time, as the kernel tells of them (sock_diag(7)).
//!
//! [`Sockets`] asks for all connections of a network namespace at once, without a word to their
//! applications.

mod diag;
mod error;
mod sample;

pub use diag::Sockets;
pub use error::Error;
pub use sample::{Recovery, Sample, State};
