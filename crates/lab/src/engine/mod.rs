//! The virtual engine: runs programs in a Linux kernel with virtual time.
//!
//! The kernel is User Mode Linux with time travel (`make lab-kernel`): an ordinary process in which
//! waiting costs nothing and computing takes no time. Clocks, random numbers and the order of
//! events inside depend only on the image and the seed.
//!
//! ```text
//! host    Machine --image, seed--> kernel           Running <--reports, output--+
//! inside                           /init (inside) --> program --> /results      |
//!                                    +------------------------------------------+
//! ```
//!
//! [`Image`] is the kernel's root file system, and [`Job`] the program to run. A [`Machine`] starts
//! the kernel, [`RunningKernel`] is the running kernel, and [`run_as_init`] is the first process
//! inside.

mod error;
mod image;
mod init;
mod lab_kernel;
mod machine;
mod machines;
mod protocol;
mod run;
mod verify;

pub use error::{EngineError, KernelCrash};
pub use image::{Image, find_program};
pub use init::{is_init, prepare_guest, run_as_init};
pub use lab_kernel::LabKernel;
pub use machine::{Console, Machine, RunningKernel};
pub use machines::{Machines, cores, memory_mib, run_parallel};
pub use protocol::{Job, ProgramExit, RESULTS};
pub use run::{HOST_FILE, RunFailure, run_virtually};
pub use verify::{Difference, differences, verify};
