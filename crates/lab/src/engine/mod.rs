//! The virtual engine: programs in a Linux kernel whose time is virtual.
//!
//! The kernel is User Mode Linux with time travel (`make lab-kernel`): an ordinary process, in
//! which waiting costs nothing and computing takes no time. What a program sees inside, its
//! clocks, random numbers and the order of events, follows from its image and the seed alone.
//!
//! ```text
//! host    Machine --image, seed--> kernel           Running <--reports, output--+
//! inside                           /init (inside) --> program --> /results      |
//!                                    +------------------------------------------+
//! ```
//!
//! [`Image`] is what the kernel finds as its root file system, [`Job`] what it is to run,
//! [`Machine`] how it is started, [`Running`] the running kernel, and [`run_as_init`] what runs
//! inside.

mod error;
mod image;
mod inside;
mod machine;
mod machines;
mod protocol;
mod run;
mod verify;

pub use error::{EngineError, KernelCrash};
pub use image::{Image, find_program};
pub use inside::{is_init, make_place, run_as_init};
pub use machine::{Console, Machine, Running};
pub use machines::{LabKernel, Machines, cores, memory_mib, side_by_side};
pub use protocol::{Ending, Job, RESULTS};
pub use run::{Failed, HOST_FILE, run_virtually};
pub use verify::{Difference, differences, verify};
