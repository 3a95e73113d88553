//! The user-space path between two network namespaces.

mod command;
mod common;
mod config;
mod path;
