use serde::{Deserialize, Serialize};

use crate::settings::numbers;

/// The lab kernel that makes a run: the clock of all its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Kernel {
    /// How often the clock ticks (`HZ`): 100, 250, 300 or 1000 times a second.
    #[serde(deserialize_with = "numbers::ticks")]
    pub ticks_per_second: u32,
    /// Whether timers go off when they are due (`highres`), and not at the next tick.
    pub high_resolution_timers: bool,
}

impl Kernel {
    /// Ticks of the kernel that `make lab-kernel` builds.
    pub const TICKS_PER_SECOND: u32 = 1000;
}

impl Default for Kernel {
    fn default() -> Self {
        Self {
            ticks_per_second: Self::TICKS_PER_SECOND,
            high_resolution_timers: true,
        }
    }
}
