//! Thin-stream traffic: generators and the receiver that verifies every byte.
