//! Two traces of the same connections, one taken at the sender and one at the receiver.
//!
//! A packet of the one is found again in the other by all of its header that the network leaves
//! alone, the k-th of equal ones for the k-th: which packets were lost, how long the others
//! took, which copy of a byte came first and what it had to wait for. Where neither IP
//! identification nor timestamps tell copies apart (IPv6 or identification 0, and timestamps
//! off) and one of several equal packets is lost, the number of losses is right and which of
//! them was lost is a guess.

mod clock;
mod engine;
mod fate;
mod hull;
mod lead;
mod link;
mod minima;
mod nat;
mod places;
mod prints;
mod run;
mod sides;
mod source;
mod tell;
mod view;

pub use clock::{Clock, LinearDelay, PathDirection};
pub use fate::{Arrival, Fate, Passage};
pub(crate) use hull::Hull;
pub(crate) use link::Link;
pub(crate) use minima::Point;
pub use run::{Finding, Options, analyse};
