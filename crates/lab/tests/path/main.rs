//! The user-space path between two network namespaces.

mod common;
mod config;
mod path;
