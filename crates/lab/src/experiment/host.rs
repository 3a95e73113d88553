use std::time::Duration;

use super::Sysctls;

/// A host that streams come from, and its link to the bridge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SendingHost {
    /// Its name, of letters, digits and dashes.
    pub name: String,
    /// Rate of its link in bits per second; `None` sets none.
    pub rate_bps: Option<u64>,
    /// Delay of its link, each way.
    pub delay: Duration,
    /// Kernel parameters of this host, beside those of all.
    pub sysctls: Sysctls,
}
