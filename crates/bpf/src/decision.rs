use serde::{Deserialize, Serialize};

use crate::contract::{flow_types, types};

/// What TFRC-SP compared when it was last asked about a reaction (RFC 4828).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Decision {
    /// Bytes of payload per second that the stream might send; headers are taken off.
    pub rate_allowed: u32,
    /// Bytes of payload per second that the stream did send, redundant bytes and retransmissions
    /// included, in the last second, or the last RTT if that is longer.
    pub rate_sent: u32,
}

/// Makes the conversion from a skeleton's type: each of the two has its own for the one C struct.
macro_rules! from_raw {
    ($($name:ident: $raw:ty),*) => {
        impl Decision {
            $(pub(crate) fn $name(raw: &$raw) -> Option<Self> {
                (raw.at > 0).then_some(Self {
                    rate_allowed: raw.rate_allowed,
                    rate_sent: raw.rate_sent,
                })
            })*
        }
    };
}

from_raw!(of_totals: types::decision, of_flow: flow_types::decision);
