use serde::{Deserialize, Serialize};

use super::Bottleneck;
use pillion_cli::settings::document::known::flattened;

/// The router, as files describe it: its own keys are those of the way to the receiver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", default, rename_all = "kebab-case")]
pub struct Bottlenecks {
    /// The way to the receiver.
    #[serde(flatten)]
    pub forward: Bottleneck,
    /// The way back to the senders.
    pub back: Bottleneck,
}

flattened!(Bottlenecks);
