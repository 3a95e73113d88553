//! Arithmetic in the kernel's integers, compared with floating point.

mod auto;
mod equation;
mod loss_events;
mod sending_rate;
mod token_bucket;
