//! Subcommands, one file or folder each.

pub mod analyse;
pub mod boot;
pub mod compare;
pub mod demo;
mod netns;
pub mod path;
pub mod plan;
mod progress;
mod progress_display;
pub mod queue;
mod records_output;
pub mod reproduce;
pub mod run;
pub mod sockets;
pub mod store;
pub mod traffic;
