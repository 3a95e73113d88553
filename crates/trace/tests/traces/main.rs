//! Traces made by hand, by chance and by conversations of which the truth is known.

mod common;
mod damage;
mod etherparse;
mod headers;
mod input;
#[path = "../../../../fuzz/src/lib.rs"]
mod targets;
mod truth;
