//! Tests that run in the lab kernel. Without a built kernel they print that they are skipped.

mod boot;
mod bundling;
mod common;
mod connection_setup;
mod detection;
mod engine_agreement;
mod flows;
mod governor;
mod grid;
mod group_path;
mod initial_window;
mod jitter;
mod kernel;
mod mechanisms;
mod path_size;
mod queue;
mod rate_control;
mod receiver;
mod recorded_link;
mod referee;
mod reproduce;
mod reverse_path;
mod run;
mod sanitizers;
mod scaling_ratio;
mod stream_rtt;
