//! Samples of TCP sockets over time, as the kernel tells of them (sock_diag(7)).
//!
//! [`Sockets`] asks for all connections of a network namespace at once, without a word to their
//! applications; [`CsvFile`] takes what was heard.

mod csv;
mod diag;
mod error;
mod sample;

pub use csv::CsvFile;
pub use diag::Sockets;
pub use error::Error;
pub use sample::{Recovery, Sample, State};
