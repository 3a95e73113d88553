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

mod beside;
mod cgroup;
pub mod documented;
mod faults;
mod host_pair;
mod netns;
mod peer;
mod play;
mod programs;
pub mod referee;
pub mod samples;
mod segment;
mod setup;
mod socket;
mod tap;
pub mod tfrc;
mod wire;

/// A library that, preloaded into a process (`LD_PRELOAD`), interrupts each of its threads by a signal
/// every few milliseconds, all the time.
pub const SIGNAL_STORM: &str = concat!(env!("OUT_DIR"), "/signal_storm.so");

pub use beside::{Packet, Router};
pub use cgroup::{Beside, Nested};
pub use faults::faults;
pub use host_pair::{Host, HostPair};
pub use netns::{isolated, leave_scaling_ratio_alone, netstat, sysctl};
pub use programs::{Answers, Growth, States, detach_link, load_verdict};
pub use setup::{Bundler, Ip, Opening, Setup, unlimited};
pub use socket::{disconnect, segment_overhead, set_option, tcp_info};
pub use tap::{Checksums, Link};
pub use wire::Wire;
