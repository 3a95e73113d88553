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

mod breakdown;
mod compare;
mod console;
mod error;
mod host;
mod image;
mod inside;
mod job;
mod kernel;
mod left;
mod lines;
mod machine;
mod machines;
mod run;
mod running;
mod side_by_side;
mod stall;
mod verify;
mod working;

pub use breakdown::Breakdown;
pub use compare::{Difference, differences};
pub use console::Console;
pub use error::EngineError;
pub use host::HOST_FILE;
pub use image::{Image, find_program};
pub use inside::{is_init, make_place, run_as_init};
pub use job::{Ending, Job, RESULTS};
pub use kernel::LabKernel;
pub use left::Failed;
pub use machine::Machine;
pub use machines::{Machines, memory_mib};
pub use run::run_virtually;
pub use running::Running;
pub use side_by_side::{cores, side_by_side};
pub use verify::verify;
