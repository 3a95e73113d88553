//! The lab: testbeds on this host, and what is run on them.
//!
//! The `live` engine is this host's own kernel: hosts are network namespaces, joined by
//! paths in user space. Nothing is simulated, and nothing stays behind: namespaces have no
//! names and devices no persistence, so both end with the process.

mod cache;
mod capture;
mod demo;
pub mod engine;
mod error;
mod group;
mod host;
mod host_pair;
mod netns;
pub mod reproduction;
pub mod run;
pub mod store;
pub mod testbed;
mod watch;

pub use cache::cache;
pub use demo::{Demo, demo_page, demo_table, run_demo};
pub use error::Error;
pub use group::{Group, GroupConfig, GroupResult, run_together};
pub use host::Host;
pub use host_pair::HostPair;
pub use netns::Namespace;
pub use watch::{PacketDirection, Seen, Truth, Watch, fates};

/// The release of the running kernel.
fn kernel_release() -> String {
    nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}
