//! The wire: a real TCP socket at one end of a TAP device, and a scripted peer at the
//! other, which checks every segment to the byte.
//!
//! ```text
//! test --write--> socket --segment--> [bundler] --> tap0 --> Peer --verified--> Script
//!                    ^                                         |
//!                    +------------------- ACK -----------------+
//! ```
//!
//! [`Setup`] says what a test needs, [`Setup::run`] makes it in a network namespace of its
//! own, [`Wire`] is what the test talks to. Sequence numbers in scripts are relative: `1`
//! is the first byte of the stream, `1:101` the first hundred.
//!
//! Apart from all that stand [`HostPair`], [`load_verdict()`], [`tfrc`], [`samples`] and [`faults()`].
//!
//! All helpers panic when something is not as it should be: they run in tests alone.

mod answers;
mod beside;
mod cgroup;
mod constant;
mod detach;
mod device;
pub mod documented;
mod fast_open;
mod faults;
mod grow;
mod held;
mod host_pair;
mod link;
mod memory;
mod netns;
mod peer;
mod play;
mod pool;
pub mod referee;
mod restore;
pub mod samples;
mod script;
mod segment;
mod setup;
mod signature;
mod skeleton;
mod socket;
mod states;
mod tags;
mod tap;
mod tcx;
pub mod tfrc;
mod wire;

/// A library that, preloaded into a process (`LD_PRELOAD`), interrupts each of its threads by a signal
/// every few milliseconds, all the time.
pub const SIGNAL_STORM: &str = concat!(env!("OUT_DIR"), "/signal_storm.so");

pub use answers::Answers;
pub use beside::{Packet, Router};
pub use cgroup::{Beside, Nested};
pub use constant::load_verdict;
pub use detach::detach_link;
pub use device::Checksums;
pub use faults::faults;
pub use grow::Growth;
pub use host_pair::{Host, HostPair};
pub use link::Link;
pub use memory::segment_overhead;
pub use netns::{isolated, leave_scaling_ratio_alone, netstat, sysctl};
pub use setup::{Bundler, Ip, Opening, Setup, unlimited};
pub use socket::{disconnect, set_option, tcp_info};
pub use states::States;
pub use wire::Wire;
