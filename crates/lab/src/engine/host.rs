use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::Machine;
use crate::kernel_release;

/// The file of a run's folder that tells of the host that it was made on: the only one in which
/// two runs may differ.
pub const HOST_FILE: &str = "host.json";

/// Where and how a run was made.
#[derive(Debug, Clone, Serialize)]
pub(super) struct HostFacts {
    /// pillion's version, with its commit.
    pillion: String,
    /// When the run began, in seconds since 1970.
    begun: u64,
    /// Real time that the run took, in seconds.
    real_s: f64,
    /// Virtual time from the kernel's start to its last report, in seconds.
    virtual_s: f64,
    /// Virtual seconds for each real second.
    speed: f64,
    /// The release of the host's kernel.
    host_kernel: String,
    /// The name of the host's processor.
    processor: String,
    /// Memory of the lab kernel in MiB.
    memory_mib: u32,
    /// The lab kernel: its release, source, patches and configuration, as it was built.
    lab_kernel: BTreeMap<&'static str, String>,
}

impl HostFacts {
    pub fn gather(
        machine: &Machine,
        pillion: &str,
        begun: SystemTime,
        real: Duration,
        virtual_time: Duration,
    ) -> Self {
        let since = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (real_s, virtual_s) = (real.as_secs_f64(), virtual_time.as_secs_f64());
        Self {
            pillion: pillion.to_owned(),
            begun: since.as_secs(),
            real_s,
            virtual_s,
            speed: virtual_s / real_s,
            host_kernel: kernel_release(),
            processor: processor(),
            memory_mib: machine.memory_mib,
            lab_kernel: machine.kernel.described(),
        }
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    let name = line.and_then(|line| line.split_once(": "));
    name.map_or_else(String::new, |(_, name)| name.to_owned())
}
