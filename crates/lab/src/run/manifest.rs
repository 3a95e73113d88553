use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::settings::experiment::Engine;
use pillion_bpf::host::clock::monotonic_ns;
use serde::Serialize;

use crate::kernel_release;

/// What made a run, and where.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Manifest {
    /// The version of the pillion that made the run.
    version: String,
    engine: Engine,
    /// What identifies the lab kernel, its source, patches and configuration; `None` on other
    /// kernels.
    #[serde(skip_serializing_if = "Option::is_none")]
    lab_kernel: Option<String>,
    kernel: String,
    machine: String,
    processors: usize,
    /// What emulated the path: `netem`, or pillion's own `path`.
    emulator: &'static str,
    seed: u64,
    /// `CLOCK_REALTIME` at the run's begin, which traces have; and `CLOCK_MONOTONIC` at that
    /// moment, which all else has; in nanoseconds.
    begun_realtime_ns: u64,
    begun_ns: u64,
    /// `CLOCK_MONOTONIC` when the streams' barrier opened, in nanoseconds.
    barrier_ns: u64,
    ended_ns: u64,
}

/// A moment by both clocks.
pub(super) struct Begin {
    realtime_ns: u64,
    monotonic_ns: u64,
}

impl Begin {
    pub(super) fn now() -> Self {
        let realtime = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            realtime_ns: realtime.unwrap_or(Duration::ZERO).as_nanos() as u64,
            monotonic_ns: monotonic_ns(),
        }
    }
}

impl Manifest {
    pub(super) fn new(
        how: &super::How,
        begin: &Begin,
        emulator: &'static str,
        seed: u64,
        barrier_ns: u64,
    ) -> Self {
        let machine = nix::sys::utsname::uname();
        let machine = machine.map(|name| name.machine().to_string_lossy().into_owned());
        Self {
            version: how.version.to_owned(),
            engine: how.engine,
            lab_kernel: how.lab_kernel.clone(),
            kernel: kernel_release(),
            machine: machine.unwrap_or_default(),
            processors: std::thread::available_parallelism().map_or(1, Into::into),
            emulator,
            seed,
            begun_realtime_ns: begin.realtime_ns,
            begun_ns: begin.monotonic_ns,
            barrier_ns,
            ended_ns: monotonic_ns(),
        }
    }
}
