use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Mechanisms, Rate, Sysctls, sysctls};
use pillion_cli::settings::times;

/// A sending host, as files describe it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// Rate of its link; `None` sets none.
    pub rate: Option<Rate>,
    /// Delay of its link, each way.
    #[serde(with = "times::milliseconds")]
    pub delay: Duration,
    /// TCP's mechanisms on it.
    pub mechanisms: Mechanisms,
    /// More kernel parameters of this host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
}
