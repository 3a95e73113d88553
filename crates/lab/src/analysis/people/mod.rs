//! What latency is to people: how a call sounds, and how often typing stalls.

pub mod typing;
pub mod voice;
