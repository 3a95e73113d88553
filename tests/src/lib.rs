//! Test harness: a real TCP socket at one end of a TAP device, and a scripted peer at the other,
//! which checks every byte of every segment.
//!
//! ```text
//! test --write--> socket --segment--> [bundler] --> tap0 --> Peer --verified--> Script
//!                    ^                                         |
//!                    +------------------- ACK -----------------+
//! ```
//!
//! [`Setup`] describes the connection, [`Setup::run`] creates it in its own network namespace, and
//! tests use [`Wire`] to control it. Sequence numbers in scripts are relative: `1` is the first
//! byte of the stream, `1:101` the first hundred.
//!
//! [`HostPair`], [`load_verdict()`], [`tfrc`], [`samples`] and [`faults()`] are independent of
//! that.
//!
//! All helpers panic on errors, because only tests use them.

use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub mod auto;
mod cgroup;
pub mod doc_commands;
mod faults;
mod host_pair;
mod netns;
mod other_traffic;
mod peer;
mod programs;
pub mod referee;
pub mod samples;
mod segment;
mod setup;
mod socket;
mod steps;
mod tap;
pub mod tfrc;
pub mod token_bucket;
mod wire;

/// Path of a library for `LD_PRELOAD` that interrupts each thread of a process with a signal every
/// few milliseconds.
pub const SIGNAL_STORM: &str = concat!(env!("OUT_DIR"), "/signal_storm.so");

pub use cgroup::{ForeignProgram, NestedCgroups};
pub use faults::faults;
pub use host_pair::{Host, HostPair};
pub use netns::{disable_scaling_ratio_clamp, isolated, netstat, nft, sysctl};
pub use other_traffic::{Packet, Router};
pub use programs::{
    FirstProgram, OptionHandler, SegmentPadder, StateCounter, detach_link, load_verdict,
};
pub use setup::{Bundler, Ip, Opening, Setup, limit_one, unlimited};
pub use socket::{disconnect, segment_overhead, set_option, tcp_info};
pub use tap::{Checksums, Link};
pub use wire::Wire;

/// Sends a signal to a child process.
pub fn send_signal(process: &Child, signal: Signal) {
    kill(Pid::from_raw(process.id().cast_signed()), signal).expect("the process exists");
}
