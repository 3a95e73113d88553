use serde::{Deserialize, Serialize};

use crate::contract::types;

/// What TFRC-SP compared when it was last asked about a reaction (RFC 4828).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Decision {
    /// Bytes of payload per second that the stream might send; headers are taken off.
    pub rate_allowed: u32,
    /// Bytes of payload per second that the stream did send, redundant bytes and retransmissions
    /// included, in the last second, or the last RTT if that is longer.
    pub rate_sent: u32,
}

impl Decision {
    /// `None` before the first one.
    pub(crate) fn from_raw(raw: &types::decision) -> Option<Self> {
        (raw.at > 0).then_some(Self {
            rate_allowed: raw.rate_allowed,
            rate_sent: raw.rate_sent,
        })
    }
}
