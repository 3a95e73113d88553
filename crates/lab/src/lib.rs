//! Lab: testbeds on this host and in the lab kernel, and the experiments on them.
//!
//! The `live` engine uses this host's own kernel: hosts are network namespaces, joined by paths in
//! user space. Nothing is simulated. Nothing remains after a run: namespaces have no names and
//! devices are not persistent, so both disappear with the process.

pub mod analysis;
mod cache;
pub mod campaign;
mod capture;
mod demo;
pub mod engine;
mod error;
pub mod grid;
mod hash;
mod lock;
mod measure_ref;
mod netns;
pub mod path;
pub mod queue;
pub mod records;
pub mod reproduction;
pub mod run;
mod run_key;
pub mod settings;
pub mod sockets;
pub mod store;
pub mod testbed;
pub mod traffic;

pub use cache::cache;
pub use demo::{Demo, DemoSettings, GroupOutcome, demo_page, demo_table};
pub use error::Error;
pub use measure_ref::{MeasureError, MeasureRef};
pub use netns::Namespace;
pub use run_key::{Part, RunKey, Selector};

/// Name of the program, the prefix of its log lines.
pub const PROGRAM: &str = "pillion-lab";

/// Returns the release of the running kernel.
fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}
