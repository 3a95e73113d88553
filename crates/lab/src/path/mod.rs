//! The user-space path: connects two network namespaces with delay, rate and loss.
//!
//! It replaces tc's htb, pfifo and netem on kernels built without them. A [`Path`] carries Ethernet
//! frames between two TAP devices. Each direction has its own [`Direction`]. It processes every
//! frame in this order, like a router with a network emulator:
//!
//! 1. **rate**: a FIFO counted in packets, served at a fixed rate or at the times of a [`LinkTrace`];
//! 2. **loss**: uniform or in bursts, from a seed, or the packets of a list;
//! 3. **delay**: constant or with jitter, for all packets or for single ports. Packets stay in
//!    order, unless a [`Disorder`] delays or duplicates some.
//!
//! The [`PathStats`] counts the disposition of every frame and the error of the delay.
//!
//! ```no_run
//! use pillion_lab::path::{Direction, Loss, Path, PathConfig, Tap};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), pillion_lab::path::PathError> {
//! let clean = Direction::delayed(Duration::from_millis(75));
//! let lossy = Direction { loss: Loss::Uniform(0.05), ..clean.clone() };
//! let config = PathConfig { forward: lossy, backward: clean, seed: 1 };
//! let path = Path::start(Tap::open("left")?, Tap::open("right")?, &config)?;
//! // Move both devices into their namespaces and configure them with ip(8), run the traffic ...
//! let ledger = path.stop();
//! println!("{} packets lost", ledger.forward.lost.packets);
//! # Ok(())
//! # }
//! ```
//!
//! A path does not see drops in the kernel before it. When the path's thread is too slow, a TAP
//! device's own queue (`txqueuelen`, 500 packets or more) fills, and `ip -s link` counts the drops.

mod config;
mod delay;
mod direction;
mod link;
mod loss;
mod packet;
mod queue_log;
mod running;
mod stats;
mod trace;

use std::io;

pub(crate) use config::MAX_QUEUE;
pub use config::{Direction, Disorder, Loss, LossStep, PathConfig, PortOverride};
pub use running::{Path, Tap};
pub use stats::{DelayError, DirectionStats, JitterStats, PathStats, Volume};
pub use trace::{LinkTrace, OPPORTUNITY_BYTES};

// Errors before a path runs.

/// Why a TAP device or a path could not be created.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A field of the configuration is out of range.
    #[error("path: invalid {field} {value}: expected {range}")]
    OutOfRange {
        /// The field with its direction, such as `forward.loss`.
        field: String,
        /// The invalid value.
        value: String,
        /// The valid range.
        range: &'static str,
    },

    /// The kernel would reject or change this device name.
    #[error(
        "TAP device name {0:?}: use 1 to 15 bytes without '/', ':', '%', white space or control characters"
    )]
    Name(String),

    /// `/dev/net/tun` cannot be opened.
    #[error("cannot open /dev/net/tun: {0}; run as root, and load the kernel module tun")]
    Tun(io::Error),

    /// The kernel did not create the device.
    #[error("cannot create TAP device {name}: {cause}; run as root, and use an unused name")]
    Create {
        /// The name of the device.
        name: String,
        /// The kernel's error.
        cause: io::Error,
    },

    /// The path's thread, or the event that stops it, could not be created.
    #[error("cannot start the path's thread: {0}; raise the limits on open files and threads")]
    Thread(io::Error),
}
