//! The user-space path: joins two network namespaces with delay, rate and loss.
//!
//! It stands in for tc's htb, pfifo and netem on kernels built without them. A [`Path`] carries
//! Ethernet frames between two TAP devices. Each direction is a [`Direction`] of its own and does
//! to every frame, in this order, what a router and a network emulator behind it do:
//!
//! 1. **rate**: a FIFO counted in packets, served at a fixed rate;
//! 2. **loss**: uniform or in runs, from a seed, or the packets of a list;
//! 3. **delay**: fixed or with jitter, for all packets or for those to single ports. Order is
//!    kept, unless a [`Disorder`] holds packets back or doubles them.
//!
//! What became of every frame, and how exactly the delay was kept, is in the [`Ledger`].
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
//! A path does not see what the kernel drops before it: when the path's thread falls behind, a
//! TAP device's own queue (`txqueuelen`, 500 packets or more) fills, and `ip -s link` counts the
//! drops.

mod config;
mod delay;
mod direction;
mod ledger;
mod link;
mod loss;
mod packet;
mod running;

use std::io;

pub use config::{Direction, Disorder, Own, PathConfig};
pub use ledger::{Counts, DelayError, Ledger, Obtained, Volume};
pub use loss::Loss;
pub use running::{Path, Tap};

// Errors before a path runs.

/// Why a TAP device or a path could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// A field of the configuration is outside its range.
    #[error("path: {field} is {value}; it must be {range}")]
    OutOfRange {
        /// The field, with its direction, such as `forward.loss`.
        field: String,
        /// The value given for the field.
        value: String,
        /// The values allowed for the field.
        range: &'static str,
    },

    /// The kernel would refuse, or change, this device name.
    #[error(
        "TAP device name {0:?}: use 1 to 15 bytes without '/', ':', '%', white space or control characters"
    )]
    Name(String),

    /// `/dev/net/tun` cannot be opened.
    #[error("cannot open /dev/net/tun: {0}; run as root, with the kernel module tun loaded")]
    Tun(io::Error),

    /// The kernel refused to create the device.
    #[error("cannot create TAP device {name}: {cause}; run as root, and use a name not yet taken")]
    Create {
        /// The name of the device.
        name: String,
        /// What the kernel said of the device.
        cause: io::Error,
    },

    /// The path's thread, or the event that stops it, could not be made.
    #[error("cannot start the path's thread: {0}; raise the limits on open files and threads")]
    Thread(io::Error),
}
