//! End-to-end tests: the binaries, real streams, and complete removal afterwards.
//!
//! Every test creates its own network namespaces, which end with it.

mod analyse;
mod attach;
mod check;
mod common;
mod compare;
mod conditions;
mod config;
mod connection_limit;
mod containers;
mod cross_check;
mod device_names;
mod devices;
mod features;
mod flows;
mod handover;
mod help;
mod holdback;
mod hooks;
mod invalid_input;
mod lab_runs;
mod leftovers;
mod lifecycle;
mod loss_recovery;
mod manager;
mod many_devices;
mod namespaces;
mod nat;
mod observe;
mod path_limits;
mod queue;
mod receive_window;
mod run;
mod service;
mod service_abuse;
mod soak;
mod socket_option;
mod sockets;
mod stats;
mod stream;
mod systemd;
mod top;
mod trace;
mod traffic;
mod wildcards;
