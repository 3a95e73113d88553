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

mod by_port;
mod config;
mod delay_line;
mod delays;
mod direction;
mod disorder;
mod error;
mod jitter;
mod ledger;
mod link;
mod loss;
mod loss_model;
mod losses;
mod packet;
mod promptness;
mod punctuality;
mod running;
mod tap;
mod variation;

pub use config::{Direction, Disorder, Own, PathConfig};
pub use error::PathError;
pub use ledger::{Counts, DelayError, Ledger, Obtained, Volume};
pub use loss::Loss;
pub use running::Path;
pub use tap::Tap;
