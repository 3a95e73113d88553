//! One file or folder for each subcommand.

pub mod analyse;
mod board;
pub mod boot;
pub mod compare;
pub mod demo;
mod netns;
pub mod plan;
mod progress;
pub mod queue;
mod records_output;
pub mod reproduce;
pub mod run;
pub mod sockets;
pub mod store;
pub mod traffic;
