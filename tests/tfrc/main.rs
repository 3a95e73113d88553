//! TFRC-SP in the kernel's integers, compared with the RFCs in floating point.

mod equation;
mod loss_events;
mod sending_rate;
