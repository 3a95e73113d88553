//! End to end: the binary, real streams, and what is left behind.
//!
//! Every test makes network namespaces of its own, which end with it.

mod agreement;
mod along;
mod analyse;
mod attach;
mod bad_input;
mod check;
mod coming;
mod common;
mod compare;
mod config;
mod containers;
mod containers_many;
mod demo;
mod devices;
mod devices_limits;
mod devices_names;
mod devices_start;
mod emulator;
mod features;
mod flows_closed;
mod flows_rights;
mod help;
mod hooks;
mod leftovers;
mod lifecycle;
mod namespaces;
mod observe;
mod places;
mod queue;
mod run;
mod safety;
mod same_kernel;
mod service;
mod service_strangers;
mod soak;
mod socket_option;
mod sockets;
mod stats;
mod stream;
mod systemd;
mod testbed;
mod top;
mod trace;
mod traffic;
