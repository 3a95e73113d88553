use serde::{Deserialize, Serialize};

use super::{Mechanisms, Sysctls, sysctls};
use crate::settings::traffic::Receiving;
use pillion_cli::settings::document::known::flattened;

/// The receiver, as files describe it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Receiver {
    /// What its application does with what comes.
    #[serde(flatten)]
    pub application: Receiving,
    /// Whether its TCP may wait for a second segment before it sends an ACK; if not, it
    /// acknowledges each (thesis, tables 4.2 and 5.1: "No DelAck").
    pub delayed_acks: bool,
    /// TCP's mechanisms on it, for what it sends itself.
    pub mechanisms: Mechanisms,
    /// Kernel parameters of this host.
    #[serde(with = "sysctls")]
    pub sysctl: Sysctls,
}

impl Default for Receiver {
    /// As stock kernels are.
    fn default() -> Self {
        Self {
            application: Receiving::default(),
            delayed_acks: true,
            mechanisms: Mechanisms::default(),
            sysctl: Sysctls::new(),
        }
    }
}

flattened!(Receiver);
