//! What runs in the lab kernel. Where that is not built, these tests say so and do nothing.

mod boot;
mod bundling;
mod common;
mod connecting;
mod detection;
mod flows;
mod governor;
mod grid;
mod initial_window;
mod jitter;
mod kernel;
mod mechanisms;
mod own_ways;
mod path_size;
mod queue;
mod rate_control;
mod receiver;
mod referee;
mod reproduce;
mod round_trips;
mod run;
mod sanitizers;
mod scaling_ratio;
mod truth;
mod way_back;
