//! One file or folder for each subcommand.

pub mod analyse;
mod board;
pub mod boot;
pub mod compare;
pub mod demo;
pub mod grid;
pub mod list;
mod machine;
mod netns;
pub mod plan;
mod progress;
pub mod queue;
mod records_output;
pub mod remove;
pub mod reproduce;
pub mod run;
pub mod run_one;
pub mod show;
pub mod sockets;
mod store;
pub mod traffic;
pub mod verify;
