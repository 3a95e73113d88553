//! Tests of traces: handmade, random, and simulated with known truth.

mod common;
mod damage;
mod etherparse;
mod headers;
mod input;
#[path = "../../../../fuzz/src/lib.rs"]
mod targets;
mod truth;
