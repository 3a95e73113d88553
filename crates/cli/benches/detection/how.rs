//! Whether and how numbers are taken.

use std::fs;

use nix::sys::utsname::uname;

/// Whether to measure at all: `cargo test --benches` only wants to know that it builds.
pub fn may_measure(bench: bool) -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if bench && !root {
        println!("left out: measuring the bundler needs root");
    }
    bench && root
}

/// Describes the machine, and what else is to be known; call it before anything runs, for it looks
/// at the load that others make.
pub fn how_taken(what: &str) -> String {
    let kernel = uname().map(|name| name.release().to_string_lossy().into_owned());
    let kernel = kernel.unwrap_or_else(|_| "of unknown release".to_owned());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default().to_owned();
    format!("Linux {kernel}, {cores} cores, load before the start {load}; {what}")
}
